//! Un-rotation: gradients of query and key become columns of U while they are packed into chunks.

use qkv_rope_op::{Dims, Pairing, View};

use crate::kernel::CHUNK;
use crate::workspace::Region;

/// Some tokens of some heads of one projection, to be un-rotated and packed.
pub(crate) struct Unrotate<'a> {
    pub(crate) dims: Dims,
    pub(crate) grad: View<'a, 4>,
    /// The tables and the pairing, or `None` for value heads, which pass through.
    pub(crate) rotary: Option<Rotary<'a>>,
    pub(crate) heads: std::ops::Range<usize>,
    /// Tokens of the problem.
    pub(crate) tokens: std::ops::Range<usize>,
    /// Tokens of zeros to write after them, so that a sum over tokens may run to a whole chunk.
    pub(crate) padding: usize,
    /// The projection's first chunk column.
    pub(crate) to: Region,
    /// Where the projection's columns begin in the region, in elements.
    pub(crate) to_offset_elems: usize,
    /// Elements from one chunk column to the next.
    pub(crate) column_stride_elems: usize,
    /// The token of the problem that is the first of the packed block.
    pub(crate) block_start: usize,
}

/// Rotary tables.
#[derive(Clone, Copy)]
pub(crate) struct Rotary<'a> {
    pub(crate) cos: View<'a, 3>,
    pub(crate) sin: View<'a, 3>,
    pub(crate) pairing: Pairing,
}

/// Runs the task with or without fused multiply-add. Inlined into one function per instruction set, where the loops
/// become vector code.
///
/// # Safety
/// No other thread may touch these tokens of these heads' columns meanwhile.
#[inline(always)]
pub(crate) unsafe fn unrotate<const FUSED: bool>(task: &Unrotate<'_>) {
    let (seq, head_dim) = (task.dims.seq(), task.dims.head_dim());
    let mut row = vec![0.0_f32; head_dim];
    for head in task.heads.clone() {
        for token in task.tokens.clone() {
            let (batch, position) = (token / seq, token % seq);
            let grad = task.grad.row(&[batch, head, position]);
            match &task.rotary {
                Some(rotary) => rotate_row::<FUSED>(grad, rotary, batch, position, &mut row),
                None => row.copy_from_slice(grad),
            }
            // SAFETY: passed on to the caller.
            unsafe { scatter(task, head * head_dim, token, &row) };
        }
        row.fill(0.0);
        for token in task.tokens.end..task.tokens.end + task.padding {
            // SAFETY: passed on to the caller.
            unsafe { scatter(task, head * head_dim, token, &row) };
        }
    }
}

#[inline(always)]
fn rotate_row<const FUSED: bool>(grad: &[f32], rotary: &Rotary<'_>, batch: usize, position: usize, to: &mut [f32]) {
    let cos = rotary.cos.row(&[batch, position]);
    let sin = rotary.sin.row(&[batch, position]);
    let (grad, tail) = grad.split_at(cos.len());
    let (to, to_tail) = to.split_at_mut(cos.len());
    to_tail.copy_from_slice(tail);
    match rotary.pairing {
        Pairing::HalfSplit => half_split::<FUSED>(grad, cos, sin, to),
        Pairing::Interleaved => interleaved::<FUSED>(grad, cos, sin, to),
    }
}

#[inline(always)]
fn half_split<const FUSED: bool>(grad: &[f32], cos: &[f32], sin: &[f32], to: &mut [f32]) {
    let half = grad.len() / 2;
    let (grad0, grad1) = (&grad[..half], &grad[half..][..half]);
    let (cos0, cos1) = (&cos[..half], &cos[half..][..half]);
    let (sin0, sin1) = (&sin[..half], &sin[half..][..half]);
    let (to0, to1) = to.split_at_mut(half);
    let (to0, to1) = (&mut to0[..half], &mut to1[..half]);
    for i in 0..half {
        to0[i] = multiply_add::<FUSED>(grad0[i], cos0[i], grad1[i] * sin1[i]);
        to1[i] = multiply_add::<FUSED>(grad1[i], cos1[i], -(grad0[i] * sin0[i]));
    }
}

#[inline(always)]
fn interleaved<const FUSED: bool>(grad: &[f32], cos: &[f32], sin: &[f32], to: &mut [f32]) {
    let pairs = grad.as_chunks::<2>().0.iter().zip(cos.as_chunks::<2>().0).zip(sin.as_chunks::<2>().0);
    for (to, ((grad, cos), sin)) in to.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
        to[0] = multiply_add::<FUSED>(grad[0], cos[0], grad[1] * sin[1]);
        to[1] = multiply_add::<FUSED>(grad[1], cos[1], -(grad[0] * sin[0]));
    }
}

/// Whether `mul_add` is one instruction on the build's target, whatever the machine can do.
pub(crate) const FUSED: bool = cfg!(any(target_feature = "fma", target_arch = "aarch64"));

/// a·b + c. Unfused where the target has no such instruction: a call into the C library per element is no option.
#[inline(always)]
pub(crate) fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// Writes a head's row of one token into the chunk columns that it covers.
///
/// # Safety
/// As [`unrotate`].
#[inline(always)]
unsafe fn scatter(task: &Unrotate<'_>, first_column: usize, token: usize, row: &[f32]) {
    let lane_offset = task.to_offset_elems + (token - task.block_start) * CHUNK;
    if first_column.is_multiple_of(CHUNK) && row.len().is_multiple_of(CHUNK) {
        for (index, values) in row.as_chunks::<CHUNK>().0.iter().enumerate() {
            let offset = (first_column / CHUNK + index) * task.column_stride_elems + lane_offset;
            // SAFETY: `piece` checked the bounds; the caller promised that nobody else touches this token's columns.
            unsafe { task.to.piece(offset, CHUNK).cast::<[f32; CHUNK]>().write(*values) };
        }
        return;
    }
    for (index, &value) in row.iter().enumerate() {
        let column = first_column + index;
        let offset = column / CHUNK * task.column_stride_elems + lane_offset + column % CHUNK;
        // SAFETY: as above.
        unsafe { task.to.piece(offset, 1).write(value) };
    }
}

//! The plain structs that cross the border. Enumerations cross as integers: C may write anything into them.

use qkv_rope::{Dims, Pairing, Precision, Problem, Requested, Write};

use crate::error::{Failure, qkv_rope_status};

/// The version of this interface; goes into qkv_rope_problem.abi_version.
pub const QKV_ROPE_ABI_VERSION: u32 = 1;

/// The most dimensions of a tensor.
pub const QKV_ROPE_MAX_RANK: usize = 4;

/// Pairs (i, i + R/2): NeoX, Hugging Face Llama.
pub const QKV_ROPE_HALF_SPLIT: i32 = 0;
/// Pairs (2i, 2i + 1): GPT-J.
pub const QKV_ROPE_INTERLEAVED: i32 = 1;

/// f32 operands, f32 fused multiply-add. The only precision on CPUs; refused on GPUs.
pub const QKV_ROPE_IEEE: i32 = 0;
/// Two 11-bit terms per operand; refused on CPUs.
pub const QKV_ROPE_SPLIT: i32 = 1;
/// One 11-bit term per operand; refused on CPUs.
pub const QKV_ROPE_FAST: i32 = 2;

/// The output is not computed and costs nothing.
pub const QKV_ROPE_NONE: i32 = 0;
/// The output's old contents are never read.
pub const QKV_ROPE_OVERWRITE: i32 = 1;
/// The gradient is computed in full, then added with one f32 addition per element.
pub const QKV_ROPE_ACCUMULATE: i32 = 2;

/// The sizes of a problem.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qkv_rope_dims {
    /// B.
    pub batch: u64,
    /// S.
    pub seq: u64,
    /// E.
    pub hidden: u64,
    /// H.
    pub query_heads: u64,
    /// K.
    pub kv_heads: u64,
    /// D, even.
    pub head_dim: u64,
    /// R, even, at most D. Only the first R elements of a head are rotated.
    pub rotary_dim: u64,
}

/// Everything that a session is prepared for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qkv_rope_problem {
    /// QKV_ROPE_ABI_VERSION.
    pub abi_version: u32,
    /// QKV_ROPE_HALF_SPLIT or QKV_ROPE_INTERLEAVED.
    pub pairing: i32,
    /// QKV_ROPE_IEEE, QKV_ROPE_SPLIT or QKV_ROPE_FAST.
    pub precision: i32,
    /// QKV_ROPE_NONE, QKV_ROPE_OVERWRITE or QKV_ROPE_ACCUMULATE, as the three below.
    pub grad_hidden_states: i32,
    /// As above.
    pub grad_q_weight: i32,
    /// As above.
    pub grad_k_weight: i32,
    /// As above.
    pub grad_v_weight: i32,
    /// Must be 0.
    pub reserved: i32,
    /// The sizes.
    pub dims: qkv_rope_dims,
}

/// An f32 tensor to read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qkv_rope_tensor {
    /// The first element, 4-byte aligned. Null means that the tensor is not given, unless it is empty.
    pub data: *const f32,
    /// The dimensions that shape and strides have.
    pub rank: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Extents, outermost first.
    pub shape: [u64; QKV_ROPE_MAX_RANK],
    /// Distances between neighbours in elements, outermost first. 0 repeats a dimension; the last must be 1.
    pub strides: [i64; QKV_ROPE_MAX_RANK],
}

/// An f32 tensor to write. No two indices may name the same element.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qkv_rope_output {
    /// The first element, 4-byte aligned. Ignored when `write` is QKV_ROPE_NONE; null only when the tensor is empty.
    pub data: *mut f32,
    /// The dimensions that shape and strides have.
    pub rank: u32,
    /// QKV_ROPE_NONE, QKV_ROPE_OVERWRITE or QKV_ROPE_ACCUMULATE, as in the problem.
    pub write: i32,
    /// Extents, outermost first.
    pub shape: [u64; QKV_ROPE_MAX_RANK],
    /// Distances between neighbours in elements, outermost first. The last must be 1.
    pub strides: [i64; QKV_ROPE_MAX_RANK],
}

/// The inputs of a call. Weights are needed for grad_hidden_states only, hidden_states for weight gradients only.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qkv_rope_inputs {
    /// [B, H, S, D].
    pub grad_query: qkv_rope_tensor,
    /// [B, K, S, D].
    pub grad_key: qkv_rope_tensor,
    /// [B, K, S, D].
    pub grad_value: qkv_rope_tensor,
    /// [B, S, E].
    pub hidden_states: qkv_rope_tensor,
    /// [H*D, E].
    pub q_weight: qkv_rope_tensor,
    /// [K*D, E].
    pub k_weight: qkv_rope_tensor,
    /// [K*D, E].
    pub v_weight: qkv_rope_tensor,
    /// [B, S, R]. Any values: halves may differ, and cos² + sin² need not be 1.
    pub cos: qkv_rope_tensor,
    /// [B, S, R].
    pub sin: qkv_rope_tensor,
}

/// The outputs of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct qkv_rope_outputs {
    /// [B, S, E].
    pub grad_hidden_states: qkv_rope_output,
    /// [H*D, E].
    pub grad_q_weight: qkv_rope_output,
    /// [K*D, E].
    pub grad_k_weight: qkv_rope_output,
    /// [K*D, E].
    pub grad_v_weight: qkv_rope_output,
}

fn invalid(what: &str, found: i32) -> Failure {
    Failure::new(qkv_rope_status::QKV_ROPE_INVALID_VALUE, format!("{what}: found {found}, which is none of its values"))
}

/// What a write mode asks for.
pub(crate) fn write(name: &str, mode: i32) -> Result<Option<Write>, Failure> {
    match mode {
        QKV_ROPE_NONE => Ok(None),
        QKV_ROPE_OVERWRITE => Ok(Some(Write::Overwrite)),
        QKV_ROPE_ACCUMULATE => Ok(Some(Write::Accumulate)),
        other => Err(invalid(&format!("write mode of {name}"), other)),
    }
}

impl qkv_rope_dims {
    fn checked(&self) -> Result<Dims, Failure> {
        // 64-bit addresses are what the library compiles for.
        let [batch, seq, hidden, query_heads, kv_heads, head_dim, rotary_dim] =
            [self.batch, self.seq, self.hidden, self.query_heads, self.kv_heads, self.head_dim, self.rotary_dim]
                .map(|extent| extent as usize);
        Ok(Dims::new(batch, seq, hidden, query_heads, kv_heads, head_dim)?.with_rotary_dim(rotary_dim)?)
    }
}

impl qkv_rope_problem {
    pub(crate) fn checked(&self) -> Result<Problem, Failure> {
        if self.abi_version != QKV_ROPE_ABI_VERSION {
            let (found, expected) = (self.abi_version, QKV_ROPE_ABI_VERSION);
            let text = format!("problem.abi_version: found {found}, this library has {expected}");
            return Err(Failure::new(qkv_rope_status::QKV_ROPE_WRONG_VERSION, text));
        }
        if self.reserved != 0 {
            return Err(invalid("problem.reserved", self.reserved));
        }
        let pairing = match self.pairing {
            QKV_ROPE_HALF_SPLIT => Pairing::HalfSplit,
            QKV_ROPE_INTERLEAVED => Pairing::Interleaved,
            other => return Err(invalid("problem.pairing", other)),
        };
        let precision = match self.precision {
            QKV_ROPE_IEEE => Precision::Ieee,
            QKV_ROPE_SPLIT => Precision::Split,
            QKV_ROPE_FAST => Precision::Fast,
            other => return Err(invalid("problem.precision", other)),
        };
        let outputs = Requested {
            grad_hidden: write("grad_hidden_states", self.grad_hidden_states)?,
            grad_q_weight: write("grad_q_weight", self.grad_q_weight)?,
            grad_k_weight: write("grad_k_weight", self.grad_k_weight)?,
            grad_v_weight: write("grad_v_weight", self.grad_v_weight)?,
        };
        Ok(Problem { dims: self.dims.checked()?, pairing, precision, outputs })
    }
}

//! The gradients of all heads un-rotated and gathered into U, one row per token.

use qkv_rope_op::{OwnedInputs, Pairing};
use rayon::prelude::*;

/// Tokens that one task handles.
const TOKENS_PER_TASK: usize = 16;

/// Fills `target` (T x N) from the gradients, on the current pool.
pub(super) fn unrotate(inputs: &OwnedInputs, pairing: Pairing, target: &mut [f32]) {
    let rows = inputs.dims().rows();
    if rows == 0 {
        return;
    }
    target.par_chunks_mut(rows * TOKENS_PER_TASK).enumerate().for_each(|(task, chunk)| {
        for (index, row) in chunk.chunks_exact_mut(rows).enumerate() {
            unrotate_token(inputs, pairing, task * TOKENS_PER_TASK + index, row);
        }
    });
}

/// Fills one row of U: the heads of query, key and value, one after the other.
fn unrotate_token(inputs: &OwnedInputs, pairing: Pairing, token: usize, row: &mut [f32]) {
    let (dims, views) = (inputs.dims(), inputs.views());
    let (batch, seq) = (token / dims.seq(), token % dims.seq());
    let (cos, sin) = (views.cos.row(&[batch, seq]), views.sin.row(&[batch, seq]));
    let groups = [
        (views.grad_query, dims.query_heads(), true),
        (views.grad_key, dims.kv_heads(), true),
        (views.grad_value, dims.kv_heads(), false),
    ];
    let mut parts = row.chunks_exact_mut(dims.head_dim());
    for (view, heads, is_rotated) in groups {
        for (head, part) in (0..heads).zip(&mut parts) {
            part.copy_from_slice(view.row(&[batch, head, seq]));
            match pairing {
                _ if !is_rotated => {}
                Pairing::HalfSplit => half_split(&mut part[..dims.rotary_dim()], cos, sin),
                Pairing::Interleaved => interleaved(&mut part[..dims.rotary_dim()], cos, sin),
            }
        }
    }
}

fn half_split(part: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = part.len() / 2;
    let (low, high) = part.split_at_mut(half);
    let (cos_low, cos_high) = cos.split_at(half);
    let (sin_low, sin_high) = sin.split_at(half);
    for i in 0..half {
        let (first, second) = (low[i], high[i]);
        low[i] = first * cos_low[i] + second * sin_high[i];
        high[i] = second * cos_high[i] - first * sin_low[i];
    }
}

fn interleaved(part: &mut [f32], cos: &[f32], sin: &[f32]) {
    for ((pair, cos), sin) in part.chunks_exact_mut(2).zip(cos.chunks_exact(2)).zip(sin.chunks_exact(2)) {
        let (first, second) = (pair[0], pair[1]);
        pair[0] = first * cos[0] + second * sin[1];
        pair[1] = second * cos[1] - first * sin[0];
    }
}

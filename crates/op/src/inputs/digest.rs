//! A fingerprint of an input's contents, whatever its strides.

use sha2::{Digest, Sha256};

use crate::error::Tensor;
use crate::problem::Inputs;
use crate::view::View;

/// SHA-256 of the elements of `tensor` in the order of a densely packed tensor, each as 4 little-endian bytes. `None`
/// when it is absent or an output.
pub fn digest(inputs: &Inputs<'_>, tensor: Tensor) -> Option<[u8; 32]> {
    match tensor {
        Tensor::GradQuery => Some(of_view(&inputs.grad_query)),
        Tensor::GradKey => Some(of_view(&inputs.grad_key)),
        Tensor::GradValue => Some(of_view(&inputs.grad_value)),
        Tensor::HiddenStates => inputs.hidden_states.as_ref().map(of_view),
        Tensor::QWeight => inputs.q_weight.as_ref().map(of_view),
        Tensor::KWeight => inputs.k_weight.as_ref().map(of_view),
        Tensor::VWeight => inputs.v_weight.as_ref().map(of_view),
        Tensor::Cos => Some(of_view(&inputs.cos)),
        Tensor::Sin => Some(of_view(&inputs.sin)),
        _ => None,
    }
}

fn of_view<const RANK: usize>(view: &View<'_, RANK>) -> [u8; 32] {
    const BLOCK_ELEMS: usize = 1024;
    let mut bytes = [[0_u8; 4]; BLOCK_ELEMS];
    let mut hasher = Sha256::new();
    for row in view.rows() {
        for block in row.chunks(BLOCK_ELEMS) {
            for (bytes, value) in bytes.iter_mut().zip(block) {
                *bytes = value.to_le_bytes();
            }
            hasher.update(bytes[..block.len()].as_flattened());
        }
    }
    hasher.finalize().into()
}

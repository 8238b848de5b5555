//! What a problem costs at least: the arithmetic and the bytes that no implementation can avoid.

use serde::Serialize;

use crate::problem::Problem;

/// Least work of a problem, and the floor it sets on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Floating-point operations of the two products: 2·T·N·E each for grad_hidden and the weight gradients, counting
    /// only what was requested. The rotation (6 per rotated pair) is not counted.
    pub flops: u128,
    /// Every needed input read once, every requested output written once (and read once where it is accumulated).
    pub min_bytes: u128,
}

impl Cost {
    /// The cost of `problem`.
    pub fn of(problem: &Problem) -> Self {
        let dims = problem.dims;
        let (tokens, hidden) = (dims.tokens() as u128, dims.hidden() as u128);
        let requested = problem.outputs;
        let (mut flops, mut elems, mut rotated) = (0, 0, false);
        for segment in dims.segments() {
            let rows = segment.rows(dims).len() as u128;
            let weight_grad = requested.get(segment.weight_gradient);
            if requested.grad_hidden.is_some() || weight_grad.is_some() {
                elems += tokens * rows;
                rotated |= segment.rotated;
            }
            if requested.grad_hidden.is_some() {
                flops += 2 * tokens * rows * hidden;
                elems += rows * hidden;
            }
            if let Some(write) = weight_grad {
                flops += 2 * tokens * rows * hidden;
                elems += rows * hidden * write.touches();
            }
        }
        if let Some(write) = requested.grad_hidden {
            elems += tokens * hidden * write.touches();
        }
        if requested.any_weight() {
            elems += tokens * hidden;
        }
        if rotated {
            elems += 2 * tokens * dims.rotary_dim() as u128;
        }
        Self { flops, min_bytes: elems * size_of::<f32>() as u128 }
    }

    /// The least time in nanoseconds on a device that does `flops_per_ns` and moves `bytes_per_ns` at the same time.
    pub fn floor_ns(&self, flops_per_ns: f64, bytes_per_ns: f64) -> f64 {
        (self.flops as f64 / flops_per_ns).max(self.min_bytes as f64 / bytes_per_ns)
    }
}

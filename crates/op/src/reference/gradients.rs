//! The whole backward pass at once, on one thread.

use super::{ROWS_AT_A_TIME, Reference};
use crate::error::{Error, Tensor};
use crate::problem::{Inputs, Problem};

/// The requested outputs in f64, densely packed; `None` where not requested. Accumulation is not part of it.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are the four outputs")]
pub struct Gradients {
    pub grad_hidden: Option<Vec<f64>>,
    pub grad_q_weight: Option<Vec<f64>>,
    pub grad_k_weight: Option<Vec<f64>>,
    pub grad_v_weight: Option<Vec<f64>>,
}

impl Gradients {
    /// The values of one output; `None` when it was not requested or when `tensor` is an input.
    pub fn tensor(&self, tensor: Tensor) -> Option<&[f64]> {
        match tensor {
            Tensor::GradHiddenStates => self.grad_hidden.as_deref(),
            Tensor::GradQWeight => self.grad_q_weight.as_deref(),
            Tensor::GradKWeight => self.grad_k_weight.as_deref(),
            Tensor::GradVWeight => self.grad_v_weight.as_deref(),
            _ => None,
        }
    }
}

/// All requested outputs of `problem` on `inputs`.
///
/// # Errors
/// What [`Problem::validate_inputs`] finds.
pub fn backward(problem: &Problem, inputs: &Inputs<'_>) -> Result<Gradients, Error> {
    let reference = Reference::new(problem, inputs)?;
    let [query, key, value] = problem.dims.segments();
    let weight = |segment: crate::dims::Segment| {
        problem.outputs.get(segment.weight_gradient)?;
        let rows = segment.first_row..segment.first_row + segment.heads * problem.dims.head_dim();
        Some(by_rows(rows, |rows| reference.grad_weight(rows)))
    };
    Ok(Gradients {
        grad_hidden: problem
            .outputs
            .grad_hidden
            .map(|_| by_rows(0..problem.dims.tokens(), |tokens| reference.grad_hidden(tokens))),
        grad_q_weight: weight(query),
        grad_k_weight: weight(key),
        grad_v_weight: weight(value),
    })
}

fn by_rows(rows: std::ops::Range<usize>, compute: impl Fn(&[usize]) -> Vec<f64>) -> Vec<f64> {
    let rows: Vec<usize> = rows.collect();
    rows.chunks(ROWS_AT_A_TIME).flat_map(compute).collect()
}

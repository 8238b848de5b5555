//! The whole backward pass at once, on one thread.

use std::ops::Range;

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
    Ok(Gradients::by_rows(
        problem,
        |tokens| reference.grad_hidden(tokens).values,
        |rows| reference.grad_weight(rows).values,
    ))
}

impl Gradients {
    /// What `problem` requests, computed a few rows at a time: rows of grad_hidden, rows of the stacked weight gradients.
    pub(crate) fn by_rows(
        problem: &Problem,
        grad_hidden: impl Fn(&[usize]) -> Vec<f64>,
        grad_weight: impl Fn(&[usize]) -> Vec<f64>,
    ) -> Self {
        let [query, key, value] = problem.dims.segments().map(|segment| {
            problem.outputs.get(segment.weight_gradient)?;
            Some(chunked(segment.rows(problem.dims), &grad_weight))
        });
        Self {
            grad_hidden: problem.outputs.grad_hidden.map(|_| chunked(0..problem.dims.tokens(), &grad_hidden)),
            grad_q_weight: query,
            grad_k_weight: key,
            grad_v_weight: value,
        }
    }
}

fn chunked(rows: Range<usize>, compute: impl Fn(&[usize]) -> Vec<f64>) -> Vec<f64> {
    let rows: Vec<usize> = rows.collect();
    rows.chunks(ROWS_AT_A_TIME).flat_map(compute).collect()
}

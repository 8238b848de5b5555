//! The operation in f64, written to be read: the oracle that every backend is judged by.
//!
//! [`Reference`] computes chosen rows, so that a caller can spread them over threads or sample them; [`backward`] is
//! the whole of it on one thread.

mod gradients;
mod operands;
mod product;
mod projection;
mod rotation;
mod rounded;

pub use gradients::{Gradients, backward};
pub use projection::{Projected, Vectors};

use crate::error::Error;
use crate::problem::{Inputs, Problem};
use operands::LeftRows;
use product::{TILE_F32, TILE_F64};
use rotation::rotate;

/// How many rows to ask for at a time: fewer read the other operand too often, more fill the caches.
pub const ROWS_AT_A_TIME: usize = 256;

/// The reference for one set of inputs.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    problem: Problem,
    inputs: Inputs<'a>,
    /// The power of two that brings the largest weight into [1, 2).
    weight_scale: f64,
    /// The same for hidden states.
    hidden_scale: f64,
}

/// Some rows of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// The values, row-major.
    pub values: Vec<f64>,
    /// What componentwise errors are relative to: |U| · |W| or |U|ᵀ · |X|, where |U| counts both products of a rotated
    /// element, so that their cancelling is not held against the matrix product. Good to 3 digits.
    pub magnitudes: Vec<f64>,
}

impl<'a> Reference<'a> {
    /// The reference of `problem` on `inputs`.
    ///
    /// # Errors
    /// What [`Problem::validate_inputs`] finds.
    pub fn new(problem: &Problem, inputs: &Inputs<'a>) -> Result<Self, Error> {
        let mut reference = Self::of_u(problem, inputs)?;
        if problem.outputs.grad_hidden.is_some() {
            reference.weight_scale = scale_of((0..problem.dims.rows()).map(|row| largest(reference.weight_row(row))));
        }
        if problem.outputs.any_weight() {
            let tokens = 0..problem.dims.tokens();
            reference.hidden_scale = scale_of(tokens.map(|token| largest(reference.hidden_row(token))));
        }
        Ok(reference)
    }

    /// As [`Reference::new`], for rows and columns of U only: the magnitudes of products may over- or underflow.
    ///
    /// # Errors
    /// What [`Problem::validate_inputs`] finds.
    pub fn of_u(problem: &Problem, inputs: &Inputs<'a>) -> Result<Self, Error> {
        problem.validate_inputs(inputs)?;
        Ok(Self { problem: *problem, inputs: *inputs, weight_scale: 1.0, hidden_scale: 1.0 })
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Row `token` of U: the un-rotated gradients of all heads, N elements.
    pub fn u_row(&self, token: usize) -> Vec<f64> {
        self.u_rows(&[token]).values.row(0).collect()
    }

    /// Column `row` of U, T elements; `row` counts the rows of the stacked weights.
    pub fn u_column(&self, row: usize) -> Vec<f64> {
        self.u_columns(&[row]).values.row(0).collect()
    }

    /// Rows `tokens` of grad_hidden = U · W.
    ///
    /// Shapes: `tokens.len()` x E.
    ///
    /// # Panics
    /// When the problem does not ask for grad_hidden, or a token is out of range.
    pub fn grad_hidden(&self, tokens: &[usize]) -> Rows {
        let left = self.u_rows(tokens);
        self.product(&left, |row| self.weight_row(row), self.weight_scale)
    }

    /// Rows `rows` of the stacked weight gradients Uᵀ · X; rows of outputs that were not asked for are allowed.
    ///
    /// Shapes: `rows.len()` x E.
    ///
    /// # Panics
    /// When the problem asks for no weight gradient, or a row is out of range.
    pub fn grad_weight(&self, rows: &[usize]) -> Rows {
        let left = self.u_columns(rows);
        self.product(&left, |token| self.hidden_row(token), self.hidden_scale)
    }

    fn product<'r>(&self, left: &LeftRows, right: impl Fn(usize) -> &'r [f32] + Copy, scale: f64) -> Rows {
        let columns = self.problem.dims.hidden();
        let values = left.values.times::<TILE_F64, _>(columns, right, f64::from);
        // In f32, where three digits are enough, and under powers of two, so that nothing over- or underflows.
        let (narrow, row_scales) = left.magnitudes.narrowed();
        let scaled = narrow.times::<TILE_F32, _>(columns, right, |value| (f64::from(value.abs()) * scale) as f32);
        let rows = scaled.chunks(columns.max(1)).zip(row_scales);
        let magnitudes =
            rows.flat_map(|(row, row_scale)| row.iter().map(move |&sum| f64::from(sum) / (row_scale * scale)));
        Rows { values, magnitudes: magnitudes.collect() }
    }

    /// The forward operation on the same hidden states, weights and tables: rotated query and key heads and plain value
    /// heads. For the adjoint identity: its inner product with the gradients is that of grad_hidden with the hidden
    /// states, and that of the weight gradients with the weights.
    ///
    /// Shapes: T x N, row-major.
    ///
    /// # Panics
    /// When the problem does not need hidden states and weights.
    pub fn forward(&self) -> Vec<f64> {
        let dims = self.problem.dims;
        let mut activations = Vec::with_capacity(dims.tokens() * dims.rows());
        for token in 0..dims.tokens() {
            let hidden = self.hidden_row(token);
            let mut row: Vec<f64> = (0..dims.rows()).map(|row| dot(self.weight_row(row), hidden)).collect();
            for segment in dims.segments() {
                let (cos, sin) = self.tables(&segment, token);
                let heads = &mut row[segment.rows(dims)];
                heads.chunks_mut(dims.head_dim().max(1)).for_each(|head| rotate(self.problem.pairing, head, cos, sin));
            }
            activations.append(&mut row);
        }
        activations
    }

    /// Row `token` of the gradients as they were given, N elements.
    pub fn gradient_row(&self, token: usize) -> Vec<f32> {
        let heads = self.problem.dims.segments().into_iter().flat_map(|segment| {
            (0..segment.heads).flat_map(move |head| self.gradient(&segment, head, token).iter().copied())
        });
        heads.collect()
    }
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(&left, &right)| f64::from(left) * f64::from(right)).sum()
}

fn largest(values: &[f32]) -> f64 {
    f64::from(values.iter().map(|value| value.abs()).filter(|value| value.is_finite()).fold(0.0, f32::max))
}

/// The power of two that brings the largest of `magnitudes` into [1, 2); 1 when all are zero or none is finite.
fn scale_of(magnitudes: impl Iterator<Item = f64>) -> f64 {
    let largest = magnitudes.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if largest < f64::MIN_POSITIVE {
        return 1.0;
    }
    2f64.powi(-libm::ilogb(largest))
}

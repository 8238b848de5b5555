//! The operation in f64, written to be read: the oracle that every backend is judged by.
//!
//! [`Reference`] computes chosen rows, so that a caller can spread them over threads or sample them; [`backward`] is
//! the whole of it on one thread.

mod gradients;
mod product;
mod projection;
mod rotation;
mod rounded;

pub use gradients::{Gradients, backward};
pub use projection::{Projected, Vectors};

use crate::dims::Segment;
use crate::error::{Error, Tensor};
use crate::problem::{Inputs, Problem};
use crate::view::View;
use product::{Left, TILE_F32, TILE_F64};
use rotation::{Terms, rotate, unrotated};

/// How many rows to ask for at a time: fewer read the other operand too often, more fill the caches.
pub const ROWS_AT_A_TIME: usize = 256;

/// The reference for one set of inputs.
#[derive(Clone, Copy, Debug)]
pub struct Reference<'a> {
    problem: Problem,
    inputs: Inputs<'a>,
    weight_scale: f64,
    hidden_scale: f64,
}

impl<'a> Reference<'a> {
    /// The reference of `problem` on `inputs`.
    ///
    /// # Errors
    /// What [`Problem::validate_inputs`] finds.
    pub fn new(problem: &Problem, inputs: &Inputs<'a>) -> Result<Self, Error> {
        problem.validate_inputs(inputs)?;
        let mut reference = Self { problem: *problem, inputs: *inputs, weight_scale: 1.0, hidden_scale: 1.0 };
        if problem.outputs.grad_hidden.is_some() {
            reference.weight_scale = scale_of((0..problem.dims.rows()).map(|row| largest(reference.weight_row(row))));
        }
        if problem.outputs.any_weight() {
            let rows = (0..problem.dims.tokens()).map(|token| largest(reference.hidden_row(token)));
            reference.hidden_scale = scale_of(rows);
        }
        Ok(reference)
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Row `token` of U: the un-rotated gradients of all heads, N elements.
    pub fn u_row(&self, token: usize) -> Vec<f64> {
        self.u_row_terms(token).map(Terms::value).collect()
    }

    /// Column `row` of U, T elements; a row of the stacked weights.
    pub fn u_column(&self, row: usize) -> Vec<f64> {
        self.u_column_terms(row).map(Terms::value).collect()
    }

    /// Rows `tokens` of grad_hidden = U · W.
    ///
    /// Shapes: `tokens.len()` x E, row-major.
    ///
    /// # Panics
    /// When the problem does not ask for grad_hidden, or a token is out of range.
    pub fn grad_hidden(&self, tokens: &[usize]) -> Vec<f64> {
        let left = self.u_rows(tokens);
        left.times::<TILE_F64, _>(self.problem.dims.hidden(), |row| self.weight_row(row), f64::from)
    }

    /// Rows `rows` of the stacked weight gradients Uᵀ · X; rows of outputs that were not asked for are allowed.
    ///
    /// Shapes: `rows.len()` x E, row-major.
    ///
    /// # Panics
    /// When the problem asks for no weight gradient, or a row is out of range.
    pub fn grad_weight(&self, rows: &[usize]) -> Vec<f64> {
        let left = self.u_columns(rows);
        left.times::<TILE_F64, _>(self.problem.dims.hidden(), |token| self.hidden_row(token), f64::from)
    }

    /// The magnitudes that componentwise errors of [`Reference::grad_hidden`] are relative to: |U| · |W|, where |U|
    /// counts both products of a rotated element, so that their cancelling is not held against the matrix product.
    /// Good to 3 digits.
    ///
    /// # Panics
    /// As [`Reference::grad_hidden`].
    pub fn grad_hidden_magnitude(&self, tokens: &[usize]) -> Vec<f64> {
        let rows = tokens.iter().map(|&token| self.u_row_terms(token).map(Terms::magnitude).collect());
        let (left, scales) = scaled_left(tokens.len(), self.problem.dims.rows(), rows);
        let columns = self.problem.dims.hidden();
        let scale = self.weight_scale;
        let products =
            left.times::<TILE_F32, _>(columns, |row| self.weight_row(row), |value| scaled_magnitude(value, scale));
        unscale(&products, columns, &scales, scale)
    }

    /// As [`Reference::grad_hidden_magnitude`], |U|ᵀ · |X| for [`Reference::grad_weight`].
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn grad_weight_magnitude(&self, rows: &[usize]) -> Vec<f64> {
        let lefts = rows.iter().map(|&row| self.u_column_terms(row).map(Terms::magnitude).collect());
        let (left, scales) = scaled_left(rows.len(), self.problem.dims.tokens(), lefts);
        let columns = self.problem.dims.hidden();
        let scale = self.hidden_scale;
        let products =
            left.times::<TILE_F32, _>(columns, |token| self.hidden_row(token), |value| scaled_magnitude(value, scale));
        unscale(&products, columns, &scales, scale)
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
                let heads = &mut row[segment.first_row..][..segment.heads * dims.head_dim()];
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

    fn u_rows(&self, tokens: &[usize]) -> Left<f64> {
        let mut left = Left::zeros(tokens.len(), self.problem.dims.rows());
        for (index, &token) in tokens.iter().enumerate() {
            left.set_row(index, self.u_row_terms(token).map(Terms::value));
        }
        left
    }

    fn u_columns(&self, rows: &[usize]) -> Left<f64> {
        let mut left = Left::zeros(rows.len(), self.problem.dims.tokens());
        for (index, &row) in rows.iter().enumerate() {
            left.set_row(index, self.u_column_terms(row).map(Terms::value));
        }
        left
    }

    fn u_row_terms(&self, token: usize) -> impl Iterator<Item = Terms> {
        let (pairing, elements) = (self.problem.pairing, self.problem.dims.head_dim());
        self.problem.dims.segments().into_iter().flat_map(move |segment| {
            let (cos, sin) = self.tables(&segment, token);
            (0..segment.heads).flat_map(move |head| {
                let gradient = self.gradient(&segment, head, token);
                (0..elements).map(move |element| unrotated(pairing, gradient, cos, sin, element))
            })
        })
    }

    fn u_column_terms(&self, row: usize) -> impl Iterator<Item = Terms> {
        let (pairing, dims) = (self.problem.pairing, self.problem.dims);
        let segment = self.segment(row);
        let head = (row - segment.first_row) / dims.head_dim();
        let element = (row - segment.first_row) % dims.head_dim();
        (0..dims.tokens()).map(move |token| {
            let (cos, sin) = self.tables(&segment, token);
            unrotated(pairing, self.gradient(&segment, head, token), cos, sin, element)
        })
    }

    fn segment(&self, row: usize) -> Segment {
        let dims = self.problem.dims;
        let segment = dims.segments().into_iter().find(|segment| segment.rows(dims).contains(&row));
        segment.unwrap_or_else(|| panic!("row {row} of {}", dims.rows()))
    }

    fn place(&self, token: usize) -> (usize, usize) {
        (token / self.problem.dims.seq(), token % self.problem.dims.seq())
    }

    fn gradient(&self, segment: &Segment, head: usize, token: usize) -> &'a [f32] {
        let (batch, seq) = self.place(token);
        let view = match segment.gradient {
            Tensor::GradQuery => &self.inputs.grad_query,
            Tensor::GradKey => &self.inputs.grad_key,
            _ => &self.inputs.grad_value,
        };
        view.row(&[batch, head, seq])
    }

    fn tables(&self, segment: &Segment, token: usize) -> (&'a [f32], &'a [f32]) {
        let (batch, seq) = self.place(token);
        match segment.rotated {
            true => (self.inputs.cos.row(&[batch, seq]), self.inputs.sin.row(&[batch, seq])),
            false => (&[], &[]),
        }
    }

    fn hidden_row(&self, token: usize) -> &'a [f32] {
        let (batch, seq) = self.place(token);
        needed(self.inputs.hidden_states).row(&[batch, seq])
    }

    fn weight_row(&self, row: usize) -> &'a [f32] {
        let segment = self.segment(row);
        let view = match segment.weight {
            Tensor::QWeight => self.inputs.q_weight,
            Tensor::KWeight => self.inputs.k_weight,
            _ => self.inputs.v_weight,
        };
        needed(view).row(&[row - segment.first_row])
    }
}

fn needed<const RANK: usize>(view: Option<View<'_, RANK>>) -> View<'_, RANK> {
    view.expect("the problem asks for an output that needs this input, as documented")
}

fn dot(left: &[f32], right: &[f32]) -> f64 {
    left.iter().zip(right).map(|(&left, &right)| f64::from(left) * f64::from(right)).sum()
}

fn largest(values: &[f32]) -> f64 {
    f64::from(values.iter().map(|value| value.abs()).filter(|value| value.is_finite()).fold(0.0, f32::max))
}

/// The power of two that brings the largest of `magnitudes` into [1, 2); 1 when all are zero.
fn scale_of(magnitudes: impl Iterator<Item = f64>) -> f64 {
    let largest = magnitudes.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if largest < f64::MIN_POSITIVE {
        return 1.0;
    }
    2f64.powi(-libm::ilogb(largest))
}

fn scaled_magnitude(value: f32, scale: f64) -> f32 {
    (f64::from(value.abs()) * scale) as f32
}

/// Rows of magnitudes in f32, each with its own power of two so that no product over- or underflows.
fn scaled_left(rows: usize, terms: usize, values: impl Iterator<Item = Vec<f64>>) -> (Left<f32>, Vec<f64>) {
    let mut left = Left::zeros(rows, terms);
    let mut scales = Vec::with_capacity(rows);
    for (index, row) in values.enumerate() {
        let scale = scale_of(row.iter().copied());
        left.set_row(index, row.iter().map(|value| (value * scale) as f32));
        scales.push(scale);
    }
    (left, scales)
}

fn unscale(products: &[f32], columns: usize, row_scales: &[f64], scale: f64) -> Vec<f64> {
    let rows = products.chunks(columns.max(1)).zip(row_scales);
    rows.flat_map(|(row, row_scale)| row.iter().map(move |&value| f64::from(value) / (row_scale * scale))).collect()
}

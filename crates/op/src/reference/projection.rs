//! Projections of the outputs on a few vectors (Freivalds): out · r against U · (W · r) costs a matrix-vector product
//! instead of a matrix product.

use super::Reference;
use super::product::{Left, TILE_F64};
use super::rotation::Terms;

/// E x P vectors, row-major: element `e` of vector `p` at `e * P + p`.
#[derive(Clone, Debug)]
pub struct Vectors {
    /// P, how many vectors there are.
    pub count: usize,
    /// Their elements.
    pub elements: Vec<f64>,
}

/// One of the right sides times the vectors: W · R (N x P) or X · R (T x P).
#[derive(Clone, Debug)]
pub struct Projected {
    count: usize,
    elements: Vec<f64>,
}

impl Projected {
    fn row(&self, row: usize) -> &[f64] {
        &self.elements[row * self.count..][..self.count]
    }
}

fn magnitudes(row: &[f32]) -> Vec<f32> {
    row.iter().map(|value| value.abs()).collect()
}

impl Vectors {
    fn magnitudes(&self) -> Self {
        Self { count: self.count, elements: self.elements.iter().map(|element| element.abs()).collect() }
    }

    /// A row of E elements times the vectors, P sums.
    pub fn project(&self, row: &[f32]) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for (&value, factors) in row.iter().zip(self.elements.chunks(self.count.max(1))) {
            sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += f64::from(value) * factor);
        }
        sums
    }
}

impl Reference<'_> {
    /// W · R.
    ///
    /// # Panics
    /// As [`Reference::grad_hidden`].
    pub fn project_weights(&self, vectors: &Vectors) -> Projected {
        let rows = 0..self.problem.dims.rows();
        Projected {
            count: vectors.count,
            elements: rows.flat_map(|row| vectors.project(self.weight_row(row))).collect(),
        }
    }

    /// X · R.
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn project_hidden_states(&self, vectors: &Vectors) -> Projected {
        let tokens = 0..self.problem.dims.tokens();
        let elements = tokens.flat_map(|token| vectors.project(self.hidden_row(token))).collect();
        Projected { count: vectors.count, elements }
    }

    /// |W| · |R|, for [`Reference::grad_hidden_projected_magnitude`].
    ///
    /// # Panics
    /// As [`Reference::grad_hidden`].
    pub fn project_weight_magnitudes(&self, vectors: &Vectors) -> Projected {
        let vectors = vectors.magnitudes();
        let rows = (0..self.problem.dims.rows()).map(|row| self.weight_row(row));
        let elements = rows.flat_map(|row| vectors.project(&magnitudes(row))).collect();
        Projected { count: vectors.count, elements }
    }

    /// |X| · |R|, for [`Reference::grad_weight_projected_magnitude`].
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn project_hidden_state_magnitudes(&self, vectors: &Vectors) -> Projected {
        let vectors = vectors.magnitudes();
        let tokens = (0..self.problem.dims.tokens()).map(|token| self.hidden_row(token));
        let elements = tokens.flat_map(|row| vectors.project(&magnitudes(row))).collect();
        Projected { count: vectors.count, elements }
    }

    /// What errors of [`Reference::grad_hidden_projected`] are relative to, as [`Reference::grad_hidden_magnitude`] is
    /// for single elements: |U| · (|W| · |R|).
    ///
    /// # Panics
    /// As [`Reference::grad_hidden`].
    pub fn grad_hidden_projected_magnitude(&self, tokens: &[usize], weights: &Projected) -> Vec<f64> {
        let mut left = Left::zeros(tokens.len(), self.problem.dims.rows());
        for (index, &token) in tokens.iter().enumerate() {
            left.set_row(index, self.u_row_terms(token).map(Terms::magnitude));
        }
        left.times::<TILE_F64, _>(weights.count, |row| weights.row(row), |value| value)
    }

    /// As [`Reference::grad_hidden_projected_magnitude`], |U|ᵀ · (|X| · |R|).
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn grad_weight_projected_magnitude(&self, rows: &[usize], hidden_states: &Projected) -> Vec<f64> {
        let mut left = Left::zeros(rows.len(), self.problem.dims.tokens());
        for (index, &row) in rows.iter().enumerate() {
            left.set_row(index, self.u_column_terms(row).map(Terms::magnitude));
        }
        left.times::<TILE_F64, _>(hidden_states.count, |token| hidden_states.row(token), |value| value)
    }

    /// Rows `tokens` of grad_hidden · R = U · (W · R), from [`Reference::project_weights`].
    ///
    /// Shapes: `tokens.len()` x P, row-major.
    ///
    /// # Panics
    /// As [`Reference::grad_hidden`].
    pub fn grad_hidden_projected(&self, tokens: &[usize], weights: &Projected) -> Vec<f64> {
        self.u_rows(tokens).times::<TILE_F64, _>(weights.count, |row| weights.row(row), |value| value)
    }

    /// Rows `rows` of the stacked weight gradients times R = Uᵀ · (X · R), from [`Reference::project_hidden_states`].
    ///
    /// Shapes: `rows.len()` x P, row-major.
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn grad_weight_projected(&self, rows: &[usize], hidden_states: &Projected) -> Vec<f64> {
        self.u_columns(rows).times::<TILE_F64, _>(hidden_states.count, |token| hidden_states.row(token), |value| value)
    }
}

//! Projections of the outputs on a few vectors (Freivalds): out · R against U · (W · R) costs a few matrix-vector
//! products instead of a matrix product.

use super::operands::LeftRows;
use super::product::TILE_F64;
use super::{Reference, Rows};

/// E x P vectors, row-major: element `e` of vector `p` at `e * P + p`.
#[derive(Clone, Debug)]
pub struct Vectors {
    /// P, how many vectors there are.
    pub count: usize,
    /// Their elements.
    pub elements: Vec<f64>,
}

/// A right side times the vectors: W · R (N x P) or X · R (T x P), and the same of the magnitudes.
#[derive(Clone, Debug)]
pub struct Projected {
    count: usize,
    values: Vec<f64>,
    magnitudes: Vec<f64>,
}

impl Vectors {
    /// A row of E elements times the vectors, P sums.
    pub fn project(&self, row: &[f32]) -> Vec<f64> {
        let mut sums = vec![0.0; self.count];
        for (&value, factors) in row.iter().zip(self.elements.chunks(self.count.max(1))) {
            sums.iter_mut().zip(factors).for_each(|(sum, factor)| *sum += f64::from(value) * factor);
        }
        sums
    }

    /// The same vectors without signs.
    pub fn magnitudes(&self) -> Self {
        Self { count: self.count, elements: self.elements.iter().map(|element| element.abs()).collect() }
    }

    fn project_all<'r>(&self, rows: impl Iterator<Item = &'r [f32]>) -> Projected {
        let magnitudes_of = self.magnitudes();
        let mut projected = Projected { count: self.count, values: Vec::new(), magnitudes: Vec::new() };
        for row in rows {
            let magnitudes: Vec<f32> = row.iter().map(|value| value.abs()).collect();
            projected.values.append(&mut self.project(row));
            projected.magnitudes.append(&mut magnitudes_of.project(&magnitudes));
        }
        projected
    }
}

impl Projected {
    /// `left` times this.
    fn after(&self, left: &LeftRows) -> Rows {
        let count = self.count;
        let values = left.values.times::<TILE_F64, _>(count, |row| &self.values[row * count..][..count], |value| value);
        let magnitudes =
            left.magnitudes.times::<TILE_F64, _>(count, |row| &self.magnitudes[row * count..][..count], |value| value);
        Rows { values, magnitudes }
    }
}

impl Reference<'_> {
    /// W · R.
    ///
    /// # Panics
    /// As [`Reference::grad_hidden`].
    pub fn project_weights(&self, vectors: &Vectors) -> Projected {
        vectors.project_all((0..self.problem.dims.rows()).map(|row| self.weight_row(row)))
    }

    /// X · R.
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn project_hidden_states(&self, vectors: &Vectors) -> Projected {
        vectors.project_all((0..self.problem.dims.tokens()).map(|token| self.hidden_row(token)))
    }

    /// Rows `tokens` of grad_hidden · R = U · (W · R), from [`Reference::project_weights`]; the magnitudes are
    /// |U| · (|W| · |R|).
    ///
    /// Shapes: `tokens.len()` x P.
    ///
    /// # Panics
    /// As [`Reference::grad_hidden`].
    pub fn grad_hidden_projected(&self, tokens: &[usize], weights: &Projected) -> Rows {
        weights.after(&self.u_rows(tokens))
    }

    /// Rows `rows` of the stacked weight gradients times R = Uᵀ · (X · R), from [`Reference::project_hidden_states`].
    ///
    /// Shapes: `rows.len()` x P.
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn grad_weight_projected(&self, rows: &[usize], hidden_states: &Projected) -> Rows {
        hidden_states.after(&self.u_columns(rows))
    }
}

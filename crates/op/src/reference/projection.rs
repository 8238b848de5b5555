//! Projections of the outputs on a few vectors (Freivalds): out · R against U · (W · R) costs a few matrix-vector
//! products instead of a matrix product.

use super::operands::LeftRows;
use super::product::{Left, TILE_F64};
use super::{ROWS_AT_A_TIME, Reference, Rows};

/// Rows that are worth a thread of their own: about a millisecond.
const LEAST_ROWS: usize = 64;

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

    /// `rows` rows, `row(i)` being one of them, times the vectors. On all processors: there are as many rows as tokens.
    fn project_all<'r>(&self, rows: usize, row: impl Fn(usize) -> &'r [f32] + Sync) -> Projected {
        let (count, magnitudes_of) = (self.count, self.magnitudes());
        let zeros = vec![0.0; rows * count];
        let mut projected = Projected { count, values: zeros.clone(), magnitudes: zeros };
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let part_rows = rows.div_ceil(threads).next_multiple_of(8).max(LEAST_ROWS);
        let part_len = part_rows * count.max(1);
        let parts = projected.values.chunks_mut(part_len).zip(projected.magnitudes.chunks_mut(part_len));
        std::thread::scope(|scope| {
            for (part, (values, magnitudes)) in parts.enumerate() {
                let (row, magnitudes_of) = (&row, &magnitudes_of);
                let project = move || {
                    let rows: Vec<&[f32]> = (part * part_rows..).take(values.len() / count).map(row).collect();
                    let len = ROWS_AT_A_TIME * count;
                    let results = values.chunks_mut(len).zip(magnitudes.chunks_mut(len));
                    for (rows, (values, magnitudes)) in rows.chunks(ROWS_AT_A_TIME).zip(results) {
                        let left = Left::of_rows(rows);
                        values.copy_from_slice(&self.after(&left));
                        magnitudes.copy_from_slice(&magnitudes_of.after(&left.map(f64::abs)));
                    }
                };
                scope.spawn(project);
            }
        });
        projected
    }

    /// `left` times these.
    fn after(&self, left: &Left<f64>) -> Vec<f64> {
        let count = self.count;
        left.times::<TILE_F64, _>(count, |element| &self.elements[element * count..][..count], |value| value)
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
        vectors.project_all(self.problem.dims.rows(), |row| self.weight_row(row))
    }

    /// X · R.
    ///
    /// # Panics
    /// As [`Reference::grad_weight`].
    pub fn project_hidden_states(&self, vectors: &Vectors) -> Projected {
        vectors.project_all(self.problem.dims.tokens(), |token| self.hidden_row(token))
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

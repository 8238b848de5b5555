//! A matrix product for reference values: the sum over k of left[i][k] · right[k][j], in order of k, with nothing
//! clever but blocking, so that a full check takes seconds.

use std::ops::{Add, AddAssign, Mul, Range};

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

/// Rows of a tile.
const TILE_ROWS: usize = 8;
/// Columns of a tile.
const TILE_COLUMNS: usize = 24;
/// Terms of the sum per pass over the right side: a panel of 128 x 24 f64 is 24 KiB, which stays in the first cache.
const BLOCK_TERMS: usize = 128;

/// f64 for values, f32 for magnitudes.
pub(super) trait Real: Copy + Default + AddAssign + Add<Output = Self> + Mul<Output = Self> {
    /// `self * factor + addend`, rounded once.
    fn fused(self, factor: Self, addend: Self) -> Self;
}

impl Real for f64 {
    #[inline(always)]
    fn fused(self, factor: Self, addend: Self) -> Self {
        self.mul_add(factor, addend)
    }
}

impl Real for f32 {
    #[inline(always)]
    fn fused(self, factor: Self, addend: Self) -> Self {
        self.mul_add(factor, addend)
    }
}

/// The left side: strips of [`TILE_ROWS`] rows, each stored term by term.
pub(super) struct Left<F> {
    strips: Vec<[F; TILE_ROWS]>,
    rows: usize,
    terms: usize,
}

impl<F: Real> Left<F> {
    /// Zeros, to be set row by row.
    pub(super) fn zeros(rows: usize, terms: usize) -> Self {
        Self { strips: vec![[F::default(); TILE_ROWS]; rows.div_ceil(TILE_ROWS) * terms], rows, terms }
    }

    /// Sets row `row` to `values`, one for each term.
    pub(super) fn set_row(&mut self, row: usize, values: impl Iterator<Item = F>) {
        let lane = row % TILE_ROWS;
        let strip = &mut self.strips[row / TILE_ROWS * self.terms..][..self.terms];
        strip.iter_mut().zip(values).for_each(|(terms, value)| terms[lane] = value);
    }

    /// left · right, row-major, where `right(k)` is row k of the right side and has `columns` elements, each mapped by
    /// `map`.
    pub(super) fn times<'a, T: Copy + 'a>(
        &self,
        columns: usize,
        right: impl Fn(usize) -> &'a [T],
        map: impl Fn(T) -> F,
    ) -> Vec<F> {
        let mut out = vec![F::default(); self.rows * columns];
        let mut panel = Vec::with_capacity(BLOCK_TERMS);
        for first in (0..self.terms).step_by(BLOCK_TERMS) {
            let block = first..self.terms.min(first + BLOCK_TERMS);
            for column in (0..columns).step_by(TILE_COLUMNS) {
                let width = TILE_COLUMNS.min(columns - column);
                panel.clear();
                panel.extend(block.clone().map(|term| tile_row(&right(term)[column..column + width], &map)));
                self.add_panel(block.clone(), &panel, column..column + width, &mut out);
            }
        }
        out
    }

    fn add_panel(&self, block: Range<usize>, panel: &[[F; TILE_COLUMNS]], place: Range<usize>, out: &mut [F]) {
        let columns = out.len() / self.rows.max(1);
        for (strip, out) in out.chunks_mut(TILE_ROWS * columns).enumerate() {
            let sums = tile(&self.strips[strip * self.terms..][block.clone()], panel);
            for (out, sums) in out.chunks_mut(columns).zip(&sums) {
                out[place.clone()].iter_mut().zip(sums).for_each(|(out, &sum)| *out += sum);
            }
        }
    }
}

fn tile_row<T: Copy, F: Real>(values: &[T], map: impl Fn(T) -> F) -> [F; TILE_COLUMNS] {
    let mut row = [F::default(); TILE_COLUMNS];
    row.iter_mut().zip(values).for_each(|(element, &value)| *element = map(value));
    row
}

/// The sums of one tile over one block of terms.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw+fma", "x86_64+avx2+fma", "aarch64+neon"))]
fn tile<F: Real>(left: &[[F; TILE_ROWS]], right: &[[F; TILE_COLUMNS]]) -> [[F; TILE_COLUMNS]; TILE_ROWS] {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    let mut sums = [[F::default(); TILE_COLUMNS]; TILE_ROWS];
    for (left, right) in left.iter().zip(right) {
        for (sums, &factor) in sums.iter_mut().zip(left) {
            for (sum, &element) in sums.iter_mut().zip(right) {
                // Where there is no such instruction, a fused multiply-add is a slow function.
                *sum = if FUSED { factor.fused(element, *sum) } else { *sum + factor * element };
            }
        }
    }
    sums
}

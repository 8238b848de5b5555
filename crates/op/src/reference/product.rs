//! A matrix product for reference values: the sum over k of left[i][k] · right[k][j], in order of k, with nothing
//! clever but blocking, so that a full check takes seconds.

use std::ops::{Add, AddAssign, Mul, Range};

use multiversion::multiversion;
use multiversion::target::target_cfg_f;

use super::scale_of;

/// Rows of a tile.
const TILE_ROWS: usize = 8;
/// Columns of a tile: three vectors of 64 bytes.
pub(super) const TILE_F64: usize = 24;
/// As [`TILE_F64`], for f32.
pub(super) const TILE_F32: usize = 48;
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

    /// Rows of equal length.
    pub(super) fn of_rows(rows: &[&[f32]]) -> Self
    where
        F: From<f32>,
    {
        let mut left = Self::zeros(rows.len(), rows.first().map_or(0, |row| row.len()));
        for (index, row) in rows.iter().enumerate() {
            row.iter().enumerate().for_each(|(term, &value)| left.set(index, term, value.into()));
        }
        left
    }

    /// Sets one element.
    pub(super) fn set(&mut self, row: usize, term: usize, value: F) {
        self.strips[row / TILE_ROWS * self.terms + term][row % TILE_ROWS] = value;
    }

    /// The elements of one row.
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = F> {
        let strip = &self.strips[row / TILE_ROWS * self.terms..][..self.terms];
        strip.iter().map(move |terms| terms[row % TILE_ROWS])
    }

    /// The same with each element mapped by `of`.
    pub(super) fn map(&self, of: impl Fn(F) -> F) -> Self {
        let strips = self.strips.iter().map(|terms| terms.map(&of)).collect();
        Self { strips, rows: self.rows, terms: self.terms }
    }

    /// left · right, row-major, where `right(k)` is row k of the right side and has `columns` elements, each mapped by
    /// `map`. Tiles are `TILE` columns wide.
    pub(super) fn times<'a, const TILE: usize, T: Copy + 'a>(
        &self,
        columns: usize,
        right: impl Fn(usize) -> &'a [T],
        map: impl Fn(T) -> F,
    ) -> Vec<F> {
        let mut out = vec![F::default(); self.rows * columns];
        if out.is_empty() {
            return out;
        }
        let mut panel: Vec<[F; TILE]> = Vec::with_capacity(BLOCK_TERMS);
        for first in (0..self.terms).step_by(BLOCK_TERMS) {
            let block = first..self.terms.min(first + BLOCK_TERMS);
            let rows: Vec<&[T]> = block.clone().map(&right).collect();
            for column in (0..columns).step_by(TILE) {
                let place = column..columns.min(column + TILE);
                panel.clear();
                panel.extend(rows.iter().map(|row| tile_row(&row[place.clone()], &map)));
                self.add_panel(block.clone(), &panel, place, &mut out);
            }
        }
        out
    }

    fn add_panel<const TILE: usize>(
        &self,
        block: Range<usize>,
        panel: &[[F; TILE]],
        place: Range<usize>,
        out: &mut [F],
    ) {
        let columns = out.len() / self.rows;
        for (strip, out) in out.chunks_mut(TILE_ROWS * columns).enumerate() {
            let sums = tile(&self.strips[strip * self.terms..][block.clone()], panel);
            for (out, sums) in out.chunks_mut(columns).zip(&sums) {
                out[place.clone()].iter_mut().zip(sums).for_each(|(out, &sum)| *out += sum);
            }
        }
    }
}

impl Left<f64> {
    /// The same in f32, each row times a power of two of its own that brings its largest element into [1, 2); and these
    /// powers.
    pub(super) fn narrowed(&self) -> (Left<f32>, Vec<f64>) {
        let (mut strips, mut scales) = (Vec::with_capacity(self.strips.len()), Vec::new());
        for strip in self.strips.chunks(self.terms.max(1)) {
            let scale: [f64; TILE_ROWS] = std::array::from_fn(|lane| scale_of(strip.iter().map(|terms| terms[lane])));
            strips.extend(strip.iter().map(|terms| std::array::from_fn(|lane| (terms[lane] * scale[lane]) as f32)));
            scales.extend(scale);
        }
        scales.resize(self.rows, 1.0);
        (Left { strips, rows: self.rows, terms: self.terms }, scales)
    }
}

fn tile_row<const TILE: usize, T: Copy, F: Real>(values: &[T], map: impl Fn(T) -> F) -> [F; TILE] {
    let mut row = [F::default(); TILE];
    row.iter_mut().zip(values).for_each(|(element, &value)| *element = map(value));
    row
}

/// The sums of one tile over one block of terms.
///
/// The rows are named one by one because LLVM keeps sums in vector registers only in this form: over an array of rows
/// the same loops run at 4 GFLOP/s instead of 106 (Zen 5, f64, rustc 1.95).
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx512bw+fma", "x86_64+avx2+fma"))]
fn tile<F: Real, const COLUMNS: usize>(left: &[[F; TILE_ROWS]], right: &[[F; COLUMNS]]) -> [[F; COLUMNS]; TILE_ROWS] {
    const FUSED: bool = target_cfg_f!(any(target_feature = "fma", target_arch = "aarch64"));
    // Where there is no such instruction, a fused multiply-add is a slow function.
    let term = |factor: F, element: F, sum: F| match FUSED {
        true => factor.fused(element, sum),
        false => sum + factor * element,
    };
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = [[F::default(); COLUMNS]; TILE_ROWS];
    for (left, right) in left.iter().zip(right) {
        for j in 0..COLUMNS {
            a[j] = term(left[0], right[j], a[j]);
            b[j] = term(left[1], right[j], b[j]);
            c[j] = term(left[2], right[j], c[j]);
            d[j] = term(left[3], right[j], d[j]);
            e[j] = term(left[4], right[j], e[j]);
            f[j] = term(left[5], right[j], f[j]);
            g[j] = term(left[6], right[j], g[j]);
            h[j] = term(left[7], right[j], h[j]);
        }
    }
    [a, b, c, d, e, f, g, h]
}

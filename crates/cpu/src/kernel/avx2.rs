//! AVX2 with FMA: tiles of 8 x 24, computed as two halves of 4 rows whose sums fill 12 of the 16 registers.

use std::arch::asm;
use std::arch::x86_64::{
    __m256, _MM_HINT_T0, _mm_prefetch, _mm256_add_ps, _mm256_load_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::{CHUNK, Kernel, Tile};
use crate::pack::{PackRows, pack_rows};
use crate::unrotate::{Unrotate, unrotate};

const LANES: usize = 8;
const LINE: usize = 16;
const VECTORS: usize = 3;
const WIDTH: usize = LANES * VECTORS;
const HALF: usize = CHUNK / 2;

pub(super) const KERNEL: Kernel =
    Kernel { width: WIDTH, over_columns: tile::<CHUNK, 1>, over_tokens: tile::<1, CHUNK>, pack, unrotate: rotate };

/// `ROW` and `STEP` are the distances inside a chunk between rows of the tile and between terms of the sum.
///
/// # Safety
/// As [`super::TileFn`].
#[target_feature(enable = "avx2,fma")]
unsafe fn tile<const ROW: usize, const STEP: usize>(tile: &Tile) {
    for half in 0..2 {
        // SAFETY: passed on to the caller.
        unsafe { half_tile::<ROW, STEP>(tile, half * HALF) };
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn half_tile<const ROW: usize, const STEP: usize>(tile: &Tile, first_row: usize) {
    let mut sums = [[_mm256_setzero_ps(); VECTORS]; HALF];
    let (mut u, mut panel) = (tile.u.wrapping_add(first_row * ROW), tile.panel);
    // Each half fetches half of what comes next.
    let mut next_panel = tile.next_panel.wrapping_add(first_row / HALF * LINE);
    let mut next_u = tile.next_u.wrapping_add(first_row * CHUNK);
    for chunk in 0..tile.chunks {
        let output = tile.rows[first_row + chunk % HALF].wrapping_add(chunk / HALF % 3 * LINE);
        for line in [output.cast_const(), next_panel, next_u, next_u.wrapping_add(LINE)] {
            _mm_prefetch::<_MM_HINT_T0>(line.cast());
        }
        for step in 0..CHUNK {
            let columns: [__m256; VECTORS] = std::array::from_fn(|vector| {
                let at = panel.wrapping_add(step * WIDTH + vector * LANES);
                // SAFETY: the panel holds 8 aligned rows for each chunk, as the caller promised.
                unsafe { _mm256_load_ps(at) }
            });
            for (row, sums) in sums.iter_mut().enumerate() {
                let factor = u.wrapping_add(row * ROW + step * STEP);
                // SAFETY: the chunk holds 64 elements, as the caller promised.
                unsafe { broadcast_multiply_add(factor, &columns, sums) };
            }
        }
        u = u.wrapping_add(tile.u_stride_elems);
        panel = panel.wrapping_add(CHUNK * WIDTH);
        next_panel = next_panel.wrapping_add(2 * LINE);
        next_u = next_u.wrapping_add(tile.u_stride_elems);
    }
    for (row, sums) in tile.rows[first_row..].iter().zip(sums) {
        for (vector, sum) in sums.into_iter().enumerate() {
            let at = row.wrapping_add(vector * LANES);
            // SAFETY: the row holds WIDTH initialised elements, as the caller promised.
            let value = if tile.add { _mm256_add_ps(unsafe { _mm256_loadu_ps(at) }, sum) } else { sum };
            // SAFETY: as above, and it is writable.
            unsafe { _mm256_storeu_ps(at, value) };
        }
    }
}

/// `sums[v] += *factor · columns[v]`. In assembly because 12 sums, 3 columns and the factor are all 16 registers: from
/// intrinsics the compiler makes an order that spills sums in every step, for half the speed.
///
/// # Safety
/// `factor` must be readable.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn broadcast_multiply_add(factor: *const f32, columns: &[__m256; VECTORS], sums: &mut [__m256; VECTORS]) {
    let [sum0, sum1, sum2] = sums;
    // SAFETY: reads one element, promised by the caller, and changes only registers it names.
    unsafe {
        asm!(
            "vbroadcastss {broadcast}, dword ptr [{factor}]",
            "vfmadd231ps {sum0}, {broadcast}, {column0}",
            "vfmadd231ps {sum1}, {broadcast}, {column1}",
            "vfmadd231ps {sum2}, {broadcast}, {column2}",
            factor = in(reg) factor,
            broadcast = out(ymm_reg) _,
            sum0 = inout(ymm_reg) *sum0,
            sum1 = inout(ymm_reg) *sum1,
            sum2 = inout(ymm_reg) *sum2,
            column0 = in(ymm_reg) columns[0],
            column1 = in(ymm_reg) columns[1],
            column2 = in(ymm_reg) columns[2],
            options(readonly, nostack, preserves_flags),
        );
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn pack(task: &PackRows<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { pack_rows::<WIDTH>(task) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn rotate(task: &Unrotate<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { unrotate::<true>(task) }
}

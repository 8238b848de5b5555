//! AVX-512: tiles of 8 x 48, whose sums fill 24 of the 32 registers.

use std::arch::x86_64::{
    __m512, _MM_HINT_T0, _mm_prefetch, _mm512_add_ps, _mm512_fmadd_ps, _mm512_load_ps, _mm512_loadu_ps, _mm512_set1_ps,
    _mm512_setzero_ps, _mm512_storeu_ps,
};

use super::{CHUNK, Kernel, Tile};
use crate::pack::{PackRows, pack_rows};
use crate::unrotate::{Unrotate, unrotate};

const LANES: usize = 16;
const VECTORS: usize = 3;
const WIDTH: usize = LANES * VECTORS;

pub(super) const KERNEL: Kernel =
    Kernel { width: WIDTH, over_columns: tile::<CHUNK, 1>, over_tokens: tile::<1, CHUNK>, pack, unrotate: rotate };

/// `ROW` and `STEP` are the distances inside a chunk between rows of the tile and between terms of the sum.
///
/// # Safety
/// As [`super::TileFn`].
#[target_feature(enable = "avx512f")]
unsafe fn tile<const ROW: usize, const STEP: usize>(tile: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); VECTORS]; CHUNK];
    let (mut u, mut panel) = (tile.u, tile.panel);
    let (mut next_u, mut next_panel) = (tile.next_u, tile.next_panel);
    for chunk in 0..tile.chunks {
        // One line of the output, one of the next panel and four of the next chunk at a time: issued together before
        // the loop, they would hold up the loads of the loop itself.
        let output = tile.rows[chunk % CHUNK].wrapping_add(chunk / CHUNK % 4 * LANES);
        _mm_prefetch::<_MM_HINT_T0>(output.cast());
        _mm_prefetch::<_MM_HINT_T0>(next_panel.cast());
        for line in 0..4 {
            _mm_prefetch::<_MM_HINT_T0>(next_u.wrapping_add(line * LANES).cast());
        }
        for step in 0..CHUNK {
            let columns: [__m512; VECTORS] = std::array::from_fn(|vector| {
                let at = panel.wrapping_add(step * WIDTH + vector * LANES);
                // SAFETY: the panel holds 8 aligned rows for each chunk, as the caller promised.
                unsafe { _mm512_load_ps(at) }
            });
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the chunk holds 64 elements, as the caller promised.
                let factor = _mm512_set1_ps(unsafe { *u.wrapping_add(row * ROW + step * STEP) });
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_fmadd_ps(factor, column, *sum);
                }
            }
        }
        u = u.wrapping_add(tile.u_stride_elems);
        next_u = next_u.wrapping_add(tile.u_stride_elems);
        panel = panel.wrapping_add(CHUNK * WIDTH);
        next_panel = next_panel.wrapping_add(LANES);
    }
    for (row, sums) in tile.rows.iter().zip(sums) {
        for (vector, sum) in sums.into_iter().enumerate() {
            let at = row.wrapping_add(vector * LANES);
            // SAFETY: the row holds WIDTH initialised elements, as the caller promised.
            let value = if tile.add { _mm512_add_ps(unsafe { _mm512_loadu_ps(at) }, sum) } else { sum };
            // SAFETY: as above, and it is writable.
            unsafe { _mm512_storeu_ps(at, value) };
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn pack(task: &PackRows<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { pack_rows::<WIDTH>(task) }
}

#[target_feature(enable = "avx512f,avx2,fma")]
unsafe fn rotate(task: &Unrotate<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { unrotate::<true>(task) }
}

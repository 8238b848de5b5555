//! Plain Rust: the same tile, vectorised by the compiler for whatever the build targets. Tiles of 8 x 16, computed as
//! four pairs of rows, so that sums fit the 16 four-lane registers of SSE2 and the 32 of NEON.

use super::{CHUNK, Kernel, Tile};
use crate::pack::{PackRows, pack_rows};
use crate::unrotate::{FUSED, Unrotate, multiply_add, unrotate};

const WIDTH: usize = 16;
const ROWS: usize = 2;

pub(super) const KERNEL: Kernel =
    Kernel { width: WIDTH, over_columns: tile::<CHUNK, 1>, over_tokens: tile::<1, CHUNK>, pack, unrotate: rotate };

/// `ROW` and `STEP` are the distances inside a chunk between rows of the tile and between terms of the sum.
///
/// # Safety
/// As [`super::TileFn`].
unsafe fn tile<const ROW: usize, const STEP: usize>(tile: &Tile) {
    for first_row in (0..CHUNK).step_by(ROWS) {
        // SAFETY: passed on to the caller.
        unsafe { row_pair::<ROW, STEP>(tile, first_row) };
    }
}

unsafe fn row_pair<const ROW: usize, const STEP: usize>(tile: &Tile, first_row: usize) {
    let mut sums = [[0.0_f32; WIDTH]; ROWS];
    let (mut u, mut panel) = (tile.u.wrapping_add(first_row * ROW), tile.panel);
    for _ in 0..tile.chunks {
        for step in 0..CHUNK {
            // SAFETY: the panel holds 8 rows for each chunk, as the caller promised.
            let columns = unsafe { &*panel.wrapping_add(step * WIDTH).cast::<[f32; WIDTH]>() };
            for (row, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the chunk holds 64 elements, as the caller promised.
                let factor = unsafe { *u.wrapping_add(row * ROW + step * STEP) };
                for (sum, &column) in sums.iter_mut().zip(columns) {
                    *sum = multiply_add::<FUSED>(factor, column, *sum);
                }
            }
        }
        u = u.wrapping_add(tile.u_stride_elems);
        panel = panel.wrapping_add(CHUNK * WIDTH);
    }
    for (&row, sums) in tile.rows[first_row..].iter().zip(&sums) {
        // SAFETY: the row holds WIDTH initialised, writable elements, as the caller promised.
        unsafe { crate::product::merge_row(row, sums, tile.add) };
    }
}

unsafe fn pack(task: &PackRows<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { pack_rows::<WIDTH>(task) }
}

unsafe fn rotate(task: &Unrotate<'_>) {
    // SAFETY: passed on to the caller.
    unsafe { unrotate::<FUSED>(task) }
}

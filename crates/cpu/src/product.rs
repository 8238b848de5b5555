//! One task of a product: some rows of an output, some panels of the second operand, the whole sum of a block.

use crate::kernel::{CHUNK, Kernel, MAX_WIDTH, SumOver, Tile};

/// A block of packed U as the left factor of a product.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    /// The first chunk of the first row tile.
    pub(crate) base: *const f32,
    /// Elements from the chunk of one row tile to that of the next.
    pub(crate) tile_stride_elems: usize,
    /// Elements from one chunk to the next along the sum.
    pub(crate) sum_stride_elems: usize,
    /// Which side of a chunk is summed over.
    pub(crate) sum_over: SumOver,
}

/// Where the rows of an output, or of a scratch copy of one, begin: `group` rows evenly spaced, then the next group.
/// A [B, S, E] tensor has a group per batch entry; a matrix is one group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    base: *mut f32,
    group: usize,
    group_stride_elems: usize,
    row_stride_elems: usize,
}

// SAFETY: Rows are addresses; writing through them is unsafe and states why no other thread does.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

impl Rows {
    /// The rows of a row-major matrix.
    pub(crate) fn matrix(base: *mut f32, row_stride_elems: usize) -> Self {
        Self { base, group: usize::MAX, group_stride_elems: 0, row_stride_elems }
    }

    /// The rows of a [groups, group, columns] tensor.
    pub(crate) fn grouped(base: *mut f32, group: usize, strides_elems: [usize; 2]) -> Self {
        Self { base, group, group_stride_elems: strides_elems[0], row_stride_elems: strides_elems[1] }
    }

    /// The same rows from `column` on.
    pub(crate) fn at_column(self, column: usize) -> Self {
        Self { base: self.base.wrapping_add(column), ..self }
    }

    /// The address of a row.
    pub(crate) fn row(&self, row: usize) -> *mut f32 {
        let offset = row / self.group * self.group_stride_elems + row % self.group * self.row_stride_elems;
        self.base.wrapping_add(offset)
    }

    /// Addresses of the 8 rows from `row`. Those past the last row are not to be used.
    fn eight(&self, row: usize) -> [*mut f32; CHUNK] {
        let (mut group, mut within) = (row / self.group, row % self.group);
        std::array::from_fn(|_| {
            let at = self.base.wrapping_add(group * self.group_stride_elems + within * self.row_stride_elems);
            within += 1;
            if within == self.group {
                (group, within) = (group + 1, 0);
            }
            at
        })
    }
}

/// `rows × columns` of an output, computed by one thread.
pub(crate) struct Product {
    pub(crate) kernel: Kernel,
    pub(crate) u: Factor,
    /// The first panel, at the first term of the sum.
    pub(crate) panels: *const f32,
    pub(crate) panel_stride_elems: usize,
    /// Columns of the output; the last panel may have fewer than the kernel's width.
    pub(crate) columns: usize,
    pub(crate) rows: usize,
    /// Chunks of the whole sum and of one block of it.
    pub(crate) sum_chunks: usize,
    pub(crate) block_chunks: usize,
    pub(crate) to: Rows,
    /// The output's row that is the first of the product.
    pub(crate) first_row: usize,
    /// Add to what the output holds instead of overwriting it. Later blocks of the sum always add.
    pub(crate) add: bool,
}

#[repr(align(64))]
struct EdgeTile([f32; CHUNK * MAX_WIDTH]);

impl Product {
    /// Computes the product.
    ///
    /// # Safety
    /// The factor and the panels must be readable for the sizes given, the rows writable and touched by no other
    /// thread, and the kernel's instruction set available.
    pub(crate) unsafe fn run(&self) {
        let mut first = 0;
        while first < self.sum_chunks {
            let chunks = self.block_chunks.min(self.sum_chunks - first);
            for panel in 0..self.columns.div_ceil(self.kernel.width) {
                // SAFETY: passed on to the caller.
                unsafe { self.panel(panel, first, chunks) };
            }
            first += chunks;
        }
    }

    /// All rows of one panel over one block of the sum.
    unsafe fn panel(&self, panel: usize, first: usize, chunks: usize) {
        let width = self.kernel.width;
        let tile_fn = self.kernel.tile(self.u.sum_over);
        let add = first > 0 || self.add;
        let column = panel * width;
        let columns = width.min(self.columns - column);
        let operand = self.panels.wrapping_add(panel * self.panel_stride_elems + first * CHUNK * width);
        let mut next = if (panel + 1) * width < self.columns {
            operand.wrapping_add(self.panel_stride_elems)
        } else {
            self.panels.wrapping_add((first + chunks) * CHUNK * width)
        };
        for tile in 0..self.rows.div_ceil(CHUNK) {
            let row = tile * CHUNK;
            let rows = CHUNK.min(self.rows - row);
            let u = self.u.base.wrapping_add(tile * self.u.tile_stride_elems + first * self.u.sum_stride_elems);
            let mut call = Tile {
                chunks,
                u,
                next_u: u.wrapping_add(self.u.tile_stride_elems),
                u_stride_elems: self.u.sum_stride_elems,
                panel: operand,
                next_panel: next,
                rows: [std::ptr::null_mut(); CHUNK],
                add,
            };
            next = next.wrapping_add(chunks * 16);
            let to = self.to.at_column(column).eight(self.first_row + row);
            if rows == CHUNK && columns == width {
                call.rows = to;
                // SAFETY: the caller promised the memory and the instruction set; the tile is whole.
                unsafe { tile_fn(&call) };
                continue;
            }
            let mut edge = EdgeTile([0.0; CHUNK * MAX_WIDTH]);
            let base = edge.0.as_mut_ptr();
            call.rows = std::array::from_fn(|index| base.wrapping_add(index * width));
            call.add = false;
            // SAFETY: as above, and the edge tile has room for a whole one.
            unsafe { tile_fn(&call) };
            for (&to, sums) in to.iter().take(rows).zip(edge.0.chunks_exact(width)) {
                // SAFETY: the caller promised `self.rows` rows of `self.columns` columns.
                unsafe { merge_row(to, &sums[..columns], add) };
            }
        }
    }
}

/// Writes or adds one row of sums.
///
/// # Safety
/// `to` must be writable for the length of `sums` and touched by no other thread.
pub(crate) unsafe fn merge_row(to: *mut f32, sums: &[f32], add: bool) {
    // SAFETY: promised by the caller; output memory is initialised, as ViewMut requires.
    let to = unsafe { std::slice::from_raw_parts_mut(to, sums.len()) };
    if add {
        for (to, sum) in to.iter_mut().zip(sums) {
            *to += sum;
        }
    } else {
        to.copy_from_slice(sums);
    }
}

//! Micro-kernels: one register tile of a product, per instruction set.
//!
//! Both products of the operation multiply a block of U, stored in chunks of 8 tokens x 8 columns ([`Chunk`] in
//! memory: token-major), by panels of a second operand. grad_hidden sums over columns, grad_weight over tokens; the
//! chunk is the same bytes for both, read along one side or the other, so U is un-rotated and packed once.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::isa::Isa;
use crate::pack::PackRows;
use crate::unrotate::Unrotate;

/// Tokens, and columns of U, in a chunk; the rows of a register tile.
pub(crate) const CHUNK: usize = 8;

/// Which side of the chunks of U is summed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumOver {
    /// Columns: the tile's rows are tokens (grad_hidden = U·W).
    Columns,
    /// Tokens: the tile's rows are columns of U (grad_weight = Uᵀ·X).
    Tokens,
}

/// One call of a micro-kernel: `rows[i][0..width] (+)= Σ_k u(i, k) · panel(k, 0..width)`.
pub(crate) struct Tile {
    /// Chunks along the sum, 8 terms each.
    pub(crate) chunks: usize,
    /// The first chunk of U.
    pub(crate) u: *const f32,
    /// Elements from one chunk to the next along the sum.
    pub(crate) u_stride_elems: usize,
    /// Rows of `width` elements, 8 a chunk, 64-byte aligned.
    pub(crate) panel: *const f32,
    /// Memory that a later tile will read first; fetched into the cache while this one is computed.
    pub(crate) next_panel: *const f32,
    /// The first chunk of the tile that follows, likewise.
    pub(crate) next_u: *const f32,
    /// Where each row of the tile begins.
    pub(crate) rows: [*mut f32; CHUNK],
    /// Add to what is there instead of overwriting it.
    pub(crate) add: bool,
}

/// A micro-kernel.
///
/// # Safety
/// The instruction set must be available; all pointers of the tile must be valid for what it says.
pub(crate) type TileFn = unsafe fn(&Tile);

/// The micro-kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// Columns of a register tile, which is the width of a panel.
    pub(crate) width: usize,
    pub(crate) over_columns: TileFn,
    pub(crate) over_tokens: TileFn,
    /// [`crate::pack::pack_rows`] at this width.
    pub(crate) pack: unsafe fn(&PackRows<'_>),
    /// [`crate::unrotate::unrotate`] with this instruction set.
    pub(crate) unrotate: unsafe fn(&Unrotate<'_>),
}

impl Kernel {
    pub(crate) fn of(isa: Isa) -> Self {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::KERNEL,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::KERNEL,
            _ => portable::KERNEL,
        }
    }

    pub(crate) fn tile(&self, sum_over: SumOver) -> TileFn {
        match sum_over {
            SumOver::Columns => self.over_columns,
            SumOver::Tokens => self.over_tokens,
        }
    }
}

/// The largest width of any kernel: the size of a stack tile for ragged edges.
pub(crate) const MAX_WIDTH: usize = 48;

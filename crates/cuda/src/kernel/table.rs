//! The rows that are compiled, and the sizes that are the same in all of them.

use qkv_rope_cuda_ptx::product;
use qkv_rope_op::Pairing;

use super::{Access, Kernel, PrepShape, ProductTile, Terms};

/// The tile of [`Kernel::HopperProduct`].
pub const HOPPER_TILE: ProductTile = ProductTile {
    rows: product::ROWS,
    cols: product::COLS,
    depth: product::DEPTH,
    cluster: product::CLUSTER,
    warps: 8,
    resident: 1,
    terms: Terms::One,
};

/// Rows of W of one `prep` or `settle` program.
pub const WEIGHT_ROWS: u32 = 8;
/// Columns that are rounded at a time.
pub const CAST_COLS: u32 = 256;
/// Tokens of one `prep_any` program.
pub const PREP_ANY_TOKENS: u32 = 8;
/// Pairs that `prep_any` rotates at a time.
pub(super) const PREP_ANY_PAIRS: u32 = 64;
/// Rows of one `finish` program.
pub const FINISH_ROWS: u32 = 8;

const fn product(rows: u32, cols: u32, depth: u32, cluster: u32, warps: u32, resident: u32, terms: Terms) -> Kernel {
    Kernel::Product(ProductTile { rows, cols, depth, cluster, warps, resident, terms })
}

const fn prep(terms: Terms, half: u32, tokens: u32, heads: u32, unroll: u32, warps: u32, occupancy: u32) -> Kernel {
    Kernel::Prep { terms, access: Access::Wide, half, shape: PrepShape { tokens, heads, unroll, warps, occupancy } }
}

/// Every row.
pub const KERNELS: &[Kernel] = &[
    prep(Terms::One, 32, 8, 1, 2, 4, 6),
    prep(Terms::One, 64, 8, 1, 4, 4, 6),
    prep(Terms::One, 128, 8, 1, 2, 4, 4),
    prep(Terms::Two, 32, 8, 1, 2, 4, 6),
    prep(Terms::Two, 64, 8, 1, 4, 4, 4),
    prep(Terms::Two, 128, 8, 1, 2, 4, 6),
    Kernel::PrepAny { terms: Terms::One, pairing: Pairing::HalfSplit },
    Kernel::PrepAny { terms: Terms::One, pairing: Pairing::Interleaved },
    Kernel::PrepAny { terms: Terms::Two, pairing: Pairing::HalfSplit },
    Kernel::PrepAny { terms: Terms::Two, pairing: Pairing::Interleaved },
    Kernel::Settle { terms: Terms::One, access: Access::Wide },
    Kernel::Settle { terms: Terms::One, access: Access::Narrow },
    Kernel::Settle { terms: Terms::Two, access: Access::Wide },
    Kernel::Settle { terms: Terms::Two, access: Access::Narrow },
    product(128, 128, 32, 1, 4, 1, Terms::One),
    product(128, 256, 64, 1, 8, 1, Terms::One),
    product(256, 256, 64, 2, 8, 1, Terms::One),
    product(128, 128, 64, 1, 8, 1, Terms::Two),
    PORTABLE_FAST,
    PORTABLE_SPLIT,
    finish(128, 128, Access::Wide),
    finish(128, 128, Access::Narrow),
    finish(128, 256, Access::Wide),
    finish(128, 256, Access::Narrow),
    finish(256, 256, Access::Wide),
    finish(256, 256, Access::Narrow),
    finish(64, 128, Access::Wide),
    finish(64, 128, Access::Narrow),
    Kernel::HopperPrep,
    Kernel::HopperPrepAny,
    Kernel::HopperProduct,
    Kernel::HopperFinish,
];

/// The tile for architectures with little shared memory; no such GPU has been measured.
pub(super) const PORTABLE_FAST: Kernel = product(128, 128, 32, 1, 8, 1, Terms::One);
/// As [`PORTABLE_FAST`], for `split`.
pub(super) const PORTABLE_SPLIT: Kernel = product(64, 128, 32, 1, 8, 1, Terms::Two);

const fn finish(rows: u32, cols: u32, access: Access) -> Kernel {
    Kernel::Finish { slot: rows * cols, cols, access }
}

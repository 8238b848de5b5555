//! The kernels as named rows: what was compiled, for which architectures, and what must hold of the result.
//!
//! `cargo xtask kernels` compiles exactly these rows; the plan picks among them; the archive is looked up by their names.

mod arch;
mod table;

use std::fmt;

use qkv_rope_cuda_ptx::{finish, prep::Rows, product};
use qkv_rope_op::Pairing;
use serde::Serialize;

pub use arch::Arch;
pub use table::{CAST_COLS, FINISH_ROWS, HOPPER_TILE, KERNELS, PREP_ANY_TOKENS, WEIGHT_ROWS};
use table::{PORTABLE_FAST, PORTABLE_SPLIT, PREP_ANY_PAIRS};

/// fp16 terms per operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Terms {
    /// `fast`: one term, one product.
    One,
    /// `split`: a term and the rest, three products.
    Two,
}

impl Terms {
    /// 1 or 2.
    pub fn count(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// What may be assumed of caller's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Base addresses and leading strides are multiples of 16 bytes.
    Wide,
    /// Multiples of 4 bytes.
    Narrow,
}

impl Access {
    /// The divisor of addresses, in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Wide => 16,
            Self::Narrow => 4,
        }
    }

    /// The divisor of strides and extents, in elements.
    pub fn elems(self) -> u32 {
        self.bytes() / 4
    }
}

/// Tile of the product kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct ProductTile {
    /// Rows of the output tile.
    pub rows: u32,
    /// Columns of the output tile.
    pub cols: u32,
    /// Elements of the contraction per step.
    pub depth: u32,
    /// Thread blocks that share a tile.
    pub cluster: u32,
    /// Warps that multiply, per thread block.
    pub warps: u32,
    /// Thread blocks that share a multiprocessor.
    pub resident: u32,
    /// Terms per operand.
    pub terms: Terms,
}

/// How `prep` divides the gradients among programs and steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct PrepShape {
    /// Tokens of one program.
    pub tokens: u32,
    /// Heads of one load.
    pub heads: u32,
    /// Loads of query heads that are under way together.
    pub unroll: u32,
    /// Warps per thread block.
    pub warps: u32,
    /// Thread blocks per multiprocessor to plan registers for. Left to itself the assembler unrolls the head loop until
    /// it spills; this limits what it may plan with.
    pub occupancy: u32,
}

/// One compiled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// Un-rotates and rounds the gradients, rounds X and W.
    Prep {
        /// Terms per operand.
        terms: Terms,
        /// What is assumed of the inputs.
        access: Access,
        /// Half of a head, rounded up to a power of two.
        half: u32,
        /// How the work is divided.
        shape: PrepShape,
    },
    /// As `Prep`, for either pairing, partial rotation, any head size and 4-byte alignment; slower.
    PrepAny {
        /// Terms per operand.
        terms: Terms,
        /// Which elements are rotated together.
        pairing: Pairing,
    },
    /// Checks the scales of X and W and redoes what they do not fit.
    Settle {
        /// Terms per operand.
        terms: Terms,
        /// What is assumed of the inputs.
        access: Access,
    },
    /// Both matrix products.
    Product(ProductTile),
    /// Sums partial tiles; accumulates; writes rows that are not aligned.
    Finish {
        /// Elements of a scratch slot.
        slot: u32,
        /// Columns of a scratch slot.
        cols: u32,
        /// What is assumed of the outputs.
        access: Access,
    },
    /// `fast` on Hopper: as `Prep`, in one pass whatever the magnitudes.
    HopperPrep,
    /// `fast` on Hopper: as `HopperPrep`, for any pairing, rotation, head size and alignment; slower.
    HopperPrepAny,
    /// `fast` on Hopper: both matrix products.
    HopperProduct,
    /// `fast` on Hopper: as `Finish`, for any alignment.
    HopperFinish,
}

/// What a kernel is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Tiles of the `cutile` crate, in crates/cuda-kernels; the assembler chooses threads and shared memory.
    Tiles,
    /// PTX from crates/cuda-ptx.
    Ptx,
}

impl Kernel {
    /// The module that defines it, which its file is named after.
    pub fn module(self) -> &'static str {
        match self {
            Self::Prep { .. } | Self::PrepAny { .. } => "prep",
            Self::Settle { .. } => "settle",
            Self::Product(_) => "product",
            Self::Finish { .. } => "finish",
            Self::HopperPrep | Self::HopperPrepAny | Self::HopperProduct | Self::HopperFinish => "ptx",
        }
    }

    /// What it is written with.
    pub fn source(self) -> Source {
        if self.module() == "ptx" { Source::Ptx } else { Source::Tiles }
    }

    /// Dynamic shared memory of a block, where it has any.
    pub fn dynamic_shared_bytes(self) -> Option<u32> {
        (self == Self::HopperProduct).then_some(product::SHARED_BYTES)
    }

    /// The text of a kernel of [`Source::Ptx`].
    pub fn ptx(self) -> Option<String> {
        match self {
            Self::HopperPrep => Some(qkv_rope_cuda_ptx::prep::ptx(Rows::Whole)),
            Self::HopperPrepAny => Some(qkv_rope_cuda_ptx::prep::ptx(Rows::Any)),
            Self::HopperProduct => Some(product::ptx()),
            Self::HopperFinish => Some(finish::ptx()),
            _ => None,
        }
    }

    /// The function in that module.
    pub fn function(self) -> &'static str {
        match self {
            Self::Prep { .. } => "prep",
            Self::PrepAny { .. } => "prep_any",
            Self::Settle { .. } => "settle",
            Self::Product(ProductTile { terms: Terms::One, .. }) => "product",
            Self::Product(ProductTile { terms: Terms::Two, .. }) => "product_split",
            Self::Finish { .. } => "finish",
            Self::HopperPrep => Rows::Whole.name(),
            Self::HopperPrepAny => Rows::Any.name(),
            Self::HopperProduct => product::NAME,
            Self::HopperFinish => finish::NAME,
        }
    }

    /// The symbol in the cubin.
    pub fn symbol(self) -> String {
        match self.source() {
            Source::Tiles => format!("{}_entry", self.function()),
            Source::Ptx => self.function().to_owned(),
        }
    }

    /// Compile-time constants, in the order of the function's parameters.
    pub fn constants(self) -> Vec<u32> {
        match self {
            Self::Prep { terms, access, half, shape } => vec![
                shape.tokens,
                shape.heads,
                half,
                CAST_COLS,
                WEIGHT_ROWS,
                terms.count(),
                access.elems(),
                access.bytes(),
                access.elems(),
                shape.unroll,
            ],
            Self::PrepAny { terms, pairing } => {
                // The distance between neighbouring pairs.
                let lane = match pairing {
                    Pairing::HalfSplit => 1,
                    Pairing::Interleaved => 2,
                };
                vec![PREP_ANY_TOKENS, PREP_ANY_PAIRS, CAST_COLS, WEIGHT_ROWS, terms.count(), lane]
            }
            Self::Settle { terms, access } => {
                vec![WEIGHT_ROWS, CAST_COLS, terms.count(), access.elems(), access.bytes()]
            }
            Self::Product(ProductTile { rows, cols, depth, .. }) => vec![rows, cols, depth],
            Self::Finish { slot, cols, access } => vec![FINISH_ROWS, cols, slot, access.elems(), access.bytes()],
            Self::HopperPrep | Self::HopperPrepAny | Self::HopperProduct | Self::HopperFinish => Vec::new(),
        }
    }

    /// Hints for the assembler.
    pub fn hints(self) -> Hints {
        match self {
            Self::Prep { shape, .. } => {
                Hints { warps: Some(shape.warps), cluster: None, occupancy: Some(shape.occupancy) }
            }
            Self::PrepAny { .. } => Hints { warps: Some(4), cluster: None, occupancy: Some(6) },
            Self::Settle { .. } => Hints { warps: Some(4), cluster: None, occupancy: Some(2) },
            Self::Product(ProductTile { cluster, warps, resident, .. }) => Hints {
                warps: Some(warps),
                cluster: (cluster > 1).then_some(cluster),
                occupancy: (resident > 1).then_some(resident),
            },
            Self::Finish { .. } => Hints { warps: Some(4), cluster: None, occupancy: Some(4) },
            Self::HopperPrep | Self::HopperPrepAny | Self::HopperProduct | Self::HopperFinish => {
                Hints { warps: None, cluster: None, occupancy: None }
            }
        }
    }

    /// Whether the row is compiled for `arch`. Large tiles need the shared memory of data-centre GPUs since Hopper.
    pub fn targets(self, arch: Arch) -> bool {
        let portable = self == PORTABLE_FAST || self == PORTABLE_SPLIT;
        if self.source() == Source::Ptx {
            return arch == Arch::Sm90;
        }
        // `fast` has kernels of its own on Hopper.
        let on_hopper = match self {
            Self::Prep { terms, .. } | Self::PrepAny { terms, .. } | Self::Settle { terms, .. } => terms == Terms::Two,
            Self::Product(tile) => tile.terms == Terms::Two,
            Self::Finish { cols, .. } => cols == 128,
            _ => true,
        };
        if arch == Arch::Sm90 && !on_hopper {
            return false;
        }
        match self {
            Self::Product(_) => portable != arch.has_large_tiles(),
            Self::Finish { slot, cols, .. } => slot <= 128 * cols || arch.has_large_tiles(),
            _ => true,
        }
    }

    /// Whether a stack frame in the cubin is an error. Frames hold spilled registers and cost up to a factor of ten: the
    /// rows that the benchmark suite takes on a measured architecture have none.
    pub fn must_not_spill(self, arch: Arch) -> bool {
        let suite = match self {
            Self::Prep { half, .. } => half == 64,
            Self::PrepAny { .. } => false,
            _ => true,
        };
        suite && arch == Arch::Sm90
    }
}

/// What the assembler is told beside the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hints {
    /// Warps per thread block.
    pub warps: Option<u32>,
    /// Thread blocks per cluster.
    pub cluster: Option<u32>,
    /// Thread blocks per multiprocessor to plan registers for.
    pub occupancy: Option<u32>,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = |access: Access| match access {
            Access::Wide => "wide",
            Access::Narrow => "narrow",
        };
        match *self {
            Self::Prep { terms, access: a, half, shape } => {
                let PrepShape { tokens, heads, unroll, warps, occupancy } = shape;
                write!(f, "prep{}-h{half}-{}-t{tokens}h{heads}u{unroll}w{warps}o{occupancy}", terms.count(), access(a))
            }
            Self::PrepAny { terms, pairing } => {
                let pairing = match pairing {
                    Pairing::HalfSplit => "half-split",
                    Pairing::Interleaved => "interleaved",
                };
                write!(f, "prep{}-any-{pairing}", terms.count())
            }
            Self::Settle { terms, access: a } => write!(f, "settle{}-{}", terms.count(), access(a)),
            Self::Product(ProductTile { rows, cols, depth, cluster, warps, resident, terms }) => {
                write!(f, "product{}-{rows}x{cols}x{depth}-c{cluster}w{warps}r{resident}", terms.count())
            }
            Self::Finish { slot, cols, access: a } => write!(f, "finish-{}x{cols}-{}", slot / cols, access(a)),
            Self::HopperPrep => f.write_str("hopper-prep"),
            Self::HopperPrepAny => f.write_str("hopper-prep-any"),
            Self::HopperProduct => f.write_str("hopper-product"),
            Self::HopperFinish => f.write_str("hopper-finish"),
        }
    }
}

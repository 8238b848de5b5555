//! Tiles and splits by size: what was measured, and the rule in between.

use qkv_rope_op::Problem;

use crate::facts::Facts;
use crate::kernel::{PrepShape, ProductTile, Terms};
use crate::schedule::{Cut, Direct, Split};

/// Terms that are summed before they are added to the f32 total in `split`: the tensor cores' own accumulation
/// truncates, and the bias grows with the length of the sum.
pub const PROMOTE_ELEMS: u32 = 512;

const fn tile(rows: u32, cols: u32, depth: u32, cluster: u32, warps: u32, terms: Terms) -> ProductTile {
    ProductTile { rows, cols, depth, cluster, warps, resident: 1, terms }
}

/// The cut for a problem.
pub fn choose(problem: &Problem, facts: &Facts, direct: Direct, terms: Terms) -> Cut {
    let _ = (problem, facts, direct);
    let tile = match terms {
        Terms::One => tile(128, 256, 64, 1, 8, terms),
        Terms::Two => tile(128, 128, 64, 1, 8, terms),
    };
    Cut { tile, hidden: Split::NONE, weight: Split::NONE }
}

/// How the gradients are divided among programs.
pub fn prep(problem: &Problem, terms: Terms) -> PrepShape {
    let _ = (problem, terms);
    PrepShape { tokens: 8, heads: 1, unroll: 4, warps: 4, occupancy: 4 }
}

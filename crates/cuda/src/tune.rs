//! Tiles and splits by size: what was measured, and the rule in between.

use qkv_rope_op::Problem;

use crate::facts::Facts;
use crate::kernel::{HOPPER_TILE, KERNELS, Kernel, PrepShape, ProductTile, Terms};
use crate::schedule::{self, Cut, Direct, Split};

/// Elements of the contraction that are summed before the sum is added to the f32 total in `split`. The tensor cores
/// truncate when they accumulate, so sums of one sign come out too small by an amount that grows with their length. On
/// an H200, 2026-12-01, at T = 8192, normwise on random data: 2.2e-7 with 128, 3.6e-7 with 256, 6.6e-7 with 512, 1.3e-6
/// with 1024, 4.9e-6 with 4096. On positive data 512 gave 2.7e-6, beyond the bound; 256 costs 12 % of the product.
pub const PROMOTE_ELEMS: u32 = 256;

/// As [`PROMOTE_ELEMS`], of `fast` on Hopper: on positive data sums come out too small by 1.9e-5 with 3072 and the bound
/// is 2e-5; 2048 takes 0.4 % longer at T = 8192, 1024 2.4 % (H200, 2026-12-01).
const HOPPER_PROMOTE_ELEMS: u32 = 3072;

/// Elements of the contraction that a tile sums before it adds to the total.
pub fn promote(tile: ProductTile) -> u32 {
    if tile == HOPPER_TILE { HOPPER_PROMOTE_ELEMS } else { PROMOTE_ELEMS }
}

/// Sums of `fast` are not promoted elsewhere: on positive data they come out too small by 1.9e-5 over 3072 elements, 5.2e-5 over
/// 8192 and 4.2e-4 over 65 536 (H200, 2026-12-01), which is beyond the bound. Longer ones than this are split.
const LONGEST_SUM: usize = 16_384;
/// Into parts of about this length.
const PART_OF_LONG_SUM: usize = 8_192;

/// Time of one element of the contraction in one tile, in picoseconds, fitted on an H200, 2026-12-01.
fn pace_ps(tile: ProductTile) -> u64 {
    if tile == HOPPER_TILE {
        return 7_300;
    }
    match (tile.terms, tile.rows, tile.cols) {
        (Terms::Two, ..) => 22_000,
        (Terms::One, 128, 128) => 7_400,
        (Terms::One, 256, 256) => 11_600,
        (Terms::One, ..) => 11_900,
    }
}

/// Launch of the finish kernel and its least run time, in picoseconds.
const FINISH_PS: u64 = 4_000_000;
/// Time for a byte of scratch memory, written once and read once.
const SCRATCH_PS_PER_BYTE: u64 = 1;

/// A product of more tiles than this per program is balanced well enough without splitting.
const ENOUGH_TILES: usize = 24;

/// The cut for `fast` on Hopper: the one of least modelled time.
///
/// It depends on sizes and requested outputs only: how tensors lie in memory must not change the bits of a result.
pub fn hopper(problem: &Problem, facts: &Facts) -> Cut {
    let direct = Direct { hidden: true, weights: true, flat_hidden: true };
    let none = Cut { tile: HOPPER_TILE, hidden: Split::NONE, weight: Split::NONE };
    let dims = problem.dims;
    let cols = dims.hidden().div_ceil(HOPPER_TILE.cols as usize);
    let pairs = |rows: usize| rows.div_ceil((HOPPER_TILE.rows * HOPPER_TILE.cluster) as usize) * cols;
    let (hidden, weight) = (pairs(dims.tokens()), pairs(dims.rows()));
    if hidden + weight > ENOUGH_TILES * programs(facts, HOPPER_TILE) as usize {
        return none;
    }
    // Two parts of dX are added where they belong and cost little; those of dW go through scratch memory.
    let halves = |tiles: usize| {
        let some =
            (1..=8).map(|eighths| u32::try_from(tiles * eighths / 8).unwrap_or(u32::MAX)).filter(|&tiles| tiles > 0);
        std::iter::once(Split::NONE).chain(some.map(|tiles| Split { tiles, parts: 2 })).collect::<Vec<_>>()
    };
    let mut best = (model_ps(problem, facts, direct, none), none);
    for hidden in halves(hidden) {
        for weight in halves(weight) {
            let cut = Cut { tile: HOPPER_TILE, hidden, weight };
            let time = model_ps(problem, facts, direct, cut);
            if time < best.0 {
                best = (time, cut);
            }
        }
    }
    best.1
}

/// The cut for a problem: the one of least modelled time among the tiles and splits that won some size when measured.
///
/// It depends on sizes and requested outputs only: how tensors lie in memory must not change the bits of a result.
pub fn choose(problem: &Problem, facts: &Facts, terms: Terms) -> Cut {
    let direct = Direct { hidden: true, weights: true, flat_hidden: true };
    let mut best: Option<(u64, Cut)> = None;
    for kernel in KERNELS.iter().filter(|kernel| kernel.targets(facts.arch)) {
        let Kernel::Product(tile) = *kernel else { continue };
        if tile.terms != terms {
            continue;
        }
        for cut in cuts(problem, facts, tile) {
            let time = model_ps(problem, facts, direct, cut);
            if best.is_none_or(|(least, _)| time < least) {
                best = Some((time, cut));
            }
        }
    }
    // Every architecture has a tile for either number of terms, which a test checks.
    best.map_or_else(|| fallback(terms), |(_, cut)| cut)
}

fn fallback(terms: Terms) -> Cut {
    let tile = ProductTile { rows: 128, cols: 128, depth: 32, cluster: 1, warps: 8, resident: 1, terms };
    Cut { tile, hidden: Split::NONE, weight: Split::NONE }
}

fn programs(facts: &Facts, tile: ProductTile) -> u32 {
    (facts.multiprocessors * tile.resident / tile.cluster).max(1)
}

fn cuts(problem: &Problem, facts: &Facts, tile: ProductTile) -> Vec<Cut> {
    let dims = problem.dims;
    let cols = dims.hidden().div_ceil(tile.cols as usize);
    let hidden = dims.tokens().div_ceil(tile.rows as usize) * cols;
    let weight = dims.rows().div_ceil(tile.rows as usize) * cols;
    let least = |sum: usize| match tile.terms {
        Terms::One if sum > LONGEST_SUM => {
            let parts = u32::try_from(sum.div_ceil(PART_OF_LONG_SUM)).unwrap_or(u32::MAX);
            Split { tiles: u32::MAX, parts }
        }
        _ => Split::NONE,
    };
    let none = Cut { tile, hidden: least(dims.rows()), weight: least(dims.tokens()) };
    if none.hidden != Split::NONE || none.weight != Split::NONE {
        return vec![none];
    }
    if hidden + weight > ENOUGH_TILES * programs(facts, tile) as usize {
        return vec![none];
    }
    let splits = |tiles: usize, shares: &[usize]| {
        let mut splits = vec![Split::NONE];
        for share in shares {
            for parts in [2, 4] {
                let tiles = u32::try_from(tiles / share).unwrap_or(u32::MAX);
                if tiles > 0 {
                    splits.push(Split { tiles, parts });
                }
            }
        }
        splits
    };
    let mut cuts = Vec::new();
    for hidden in splits(hidden, &[8, 4, 2, 1]) {
        for weight in splits(weight, &[12, 8, 4]) {
            cuts.push(Cut { tile, hidden, weight });
        }
    }
    cuts
}

fn model_ps(problem: &Problem, facts: &Facts, direct: Direct, cut: Cut) -> u64 {
    let schedule = schedule::build(problem, cut, direct, programs(facts, cut.tile), promote(cut.tile));
    let product = schedule.longest * pace_ps(cut.tile);
    let scratch = u64::from(schedule.slots) * u64::from(cut.tile.rows * cut.tile.cols) * 4;
    let finish = if schedule.slots > 0 { FINISH_PS + scratch * SCRATCH_PS_PER_BYTE } else { 0 };
    product + finish
}

/// How the gradients are divided among programs: the fastest shape without spills, by half of the head.
pub fn prep(problem: &Problem, terms: Terms) -> PrepShape {
    let half = (problem.dims.head_dim() / 2).next_power_of_two().max(32);
    let shape = |tokens, heads, unroll, occupancy| PrepShape { tokens, heads, unroll, warps: 4, occupancy };
    match (half, terms) {
        (64, Terms::One) => shape(8, 1, 4, 6),
        (64, Terms::Two) => shape(8, 1, 4, 4),
        (128, Terms::One) => shape(8, 1, 2, 4),
        _ => shape(8, 1, 2, 6),
    }
}

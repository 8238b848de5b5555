//! Which program computes which tile: the task tables of the product and finish kernels.
//!
//! dX has `ceil(T/rows)·ceil(E/cols)` tiles with sums over N, dW `ceil(N/rows)·ceil(E/cols)` with sums over T. They are
//! packed so that the longest program is short. The last tiles of either product may be split
//! along their sum: the parts go to scratch slots and the finish kernel adds them in order, so the result does not
//! depend on who computed what.

mod cutting;
mod packing;

use std::cmp::Reverse;

use qkv_rope_cuda_ptx::product::ADDS;
use qkv_rope_op::Problem;
use serde::Serialize;

use crate::kernel::{HOPPER_TILE, ProductTile};
use cutting::{Builder, Piece, Place};
use packing::Load;

/// Words of a product task.
pub const PRODUCT_WORDS: usize = 12;
/// Words of a finish task.
pub const FINISH_WORDS: usize = 10;
/// Words before the powers of two of the tokens: `[1]` that of W, `[2]` that of X.
pub const HEADER_WORDS: usize = 16;
/// The word that dW tiles take their power of two from.
const X_POWER_WORD: usize = 2;

/// The last `tiles` tiles of a product are summed in `parts` parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Split {
    /// Tiles that are split.
    pub tiles: u32,
    /// Parts of each.
    pub parts: u32,
}

impl Split {
    /// Nothing is split.
    pub const NONE: Self = Self { tiles: 0, parts: 1 };

    fn parts_of(self, index: usize, tiles: usize) -> usize {
        if index.saturating_add(self.tiles as usize) >= tiles { (self.parts as usize).max(1) } else { 1 }
    }
}

/// How the products are cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Cut {
    /// The tile.
    pub tile: ProductTile,
    /// Splitting of dX.
    pub hidden: Split,
    /// Splitting of dW.
    pub weight: Split,
}

/// Which outputs the product kernel can write itself; the others go through scratch slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Direct {
    /// grad_hidden.
    pub hidden: bool,
    /// The three weight gradients.
    pub weights: bool,
    /// grad_hidden has one stride over all tokens: rows of different batch entries may share a finish task.
    pub flat_hidden: bool,
}

/// Tables for one problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// Programs of the product kernel.
    pub programs: u32,
    /// Its table: the number of each program's tasks, padded to whole tasks, then room for [`Self::tasks_each`] tasks of
    /// each program; on Hopper, of each block of each program.
    #[serde(skip)]
    pub product: Vec<i32>,
    /// Where tasks start in the table, in tasks.
    pub first_task: usize,
    /// The most tasks of any program.
    pub tasks_each: usize,
    /// Tasks in it.
    pub product_tasks: u32,
    /// Table of the finish kernel.
    #[serde(skip)]
    pub finish: Vec<i32>,
    /// Tasks in it.
    pub finish_tasks: u32,
    /// Scratch slots of one tile each.
    pub slots: u32,
    /// Rows of dX from this token on must be zero when the product kernel begins: it adds to some of them.
    pub zero_from: usize,
    /// Modelled length of the product kernel, in elements of the contraction: the longest program's.
    pub longest: u64,
    /// The same if the work were spread evenly.
    pub mean: u64,
}

/// Cuts `problem` for `programs` programs. On Hopper sums are added to the total after at most `promote` elements.
pub fn build(problem: &Problem, cut: Cut, direct: Direct, programs: u32, promote: u32) -> Schedule {
    // A program has one piece at most that is added.
    let mut cut = cut;
    if cut.tile == HOPPER_TILE && cut.hidden.parts == 2 {
        cut.hidden.tiles = cut.hidden.tiles.min(programs / 2);
    }
    let mut builder = Builder {
        problem,
        cut,
        direct,
        pieces: Vec::new(),
        finish: Vec::new(),
        slots: 0,
        zero_from: problem.dims.tokens(),
        promote: (promote / cut.tile.depth) as usize,
    };
    builder.hidden_tiles();
    builder.weight_tiles();
    builder.assign(programs)
}

impl Builder<'_> {
    /// Gives each program its pieces, and writes the table.
    fn assign(mut self, programs: u32) -> Schedule {
        let programs = programs.min(u32::try_from(self.pieces.len()).unwrap_or(u32::MAX)).max(1);
        self.pieces.sort_by_key(|piece| Reverse(piece.cost));
        let loads: Vec<Load> = self.pieces.iter().map(Piece::load).collect();
        let total: u64 = loads.iter().map(|load| load.cost).sum();
        let lists = packing::spread(&loads, programs as usize);
        let longest = lists.iter().map(|list| list.iter().map(|&index| loads[index].cost).sum()).max().unwrap_or(0);
        let blocks = self.together();
        let first = (programs as usize * blocks).div_ceil(PRODUCT_WORDS);
        let each = lists.iter().map(Vec::len).max().unwrap_or(0);
        let mut product = vec![0; (first + programs as usize * blocks * each) * PRODUCT_WORDS];
        for (program, list) in lists.iter().enumerate() {
            for block in program * blocks..(program + 1) * blocks {
                product[block] = word(list.len());
                for (place, &index) in list.iter().enumerate() {
                    let at = (first + block * each + place) * PRODUCT_WORDS;
                    let task = self.task(&self.pieces[index], block % blocks);
                    product[at..at + PRODUCT_WORDS].copy_from_slice(&task);
                }
            }
        }
        Schedule {
            programs,
            first_task: first,
            tasks_each: each,
            product_tasks: u32::try_from(self.pieces.len()).unwrap_or(u32::MAX),
            finish_tasks: u32::try_from(self.finish.len() / FINISH_WORDS).unwrap_or(u32::MAX),
            slots: u32::try_from(self.slots).unwrap_or(u32::MAX),
            zero_from: self.zero_from,
            product,
            finish: self.finish,
            longest,
            mean: total / u64::from(programs),
        }
    }

    fn task(&self, piece: &Piece, block: usize) -> [i32; PRODUCT_WORDS] {
        let empty = 0..0;
        let (x, w) = if piece.hidden { (&piece.sum, &empty) } else { (&empty, &piece.sum) };
        // A piece may have a tile less than its program has blocks: the last one then computes the first tile for nobody.
        let tile = piece.tiles.get(block).unwrap_or(&piece.tiles[0]);
        let (power, mut last) =
            if piece.hidden { (HEADER_WORDS + tile.row_tile * self.rows(), 1) } else { (X_POWER_WORD, 0) };
        if self.cut.tile == HOPPER_TILE {
            last = chunk(piece.sum.len(), self.promote);
        }
        let (dest, row, left, col_tile) = match tile.place {
            Place::Output { dest, row, left } => (dest, row, left, piece.col_tile),
            Place::Added { dest, row, left } => (dest + ADDS as usize, row, left, piece.col_tile),
            Place::Slot { slot, left } => (4, slot * self.rows(), left, 0),
        };
        let left = if block < piece.tiles.len() { left } else { 0 };
        [tile.row_tile, piece.col_tile, x.start, x.end, w.start, w.end, dest, row, left, col_tile, power, last]
            .map(word)
    }
}

/// Steps of the chunks of a sum: of equal length, none longer than `most`.
fn chunk(steps: usize, most: usize) -> usize {
    steps.div_ceil(steps.div_ceil(most.max(1)).max(1))
}

/// Everything in a table was checked by the plan to fit 31 bits.
fn word(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

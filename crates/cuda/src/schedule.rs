//! Which program computes which tile: the task tables of the product and finish kernels.
//!
//! dX has `ceil(T/rows)·ceil(E/cols)` tiles with sums over N, dW `ceil(N/rows)·ceil(E/cols)` with sums over T. All of
//! them go to the programs longest first, each to the least loaded one. The last tiles of either product may be split
//! along their sum: the parts go to scratch slots and the finish kernel adds them in order, so the result does not
//! depend on who computed what.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use qkv_rope_op::{Dims, Problem, Requested, Tensor, Write};
use serde::Serialize;

use crate::kernel::{FINISH_ROWS, ProductTile};

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
    /// each program.
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
    /// Modelled length of the product kernel, in elements of the contraction: the longest program's.
    pub longest: u64,
    /// The same if the work were spread evenly.
    pub mean: u64,
}

/// One tile or part of one.
struct Piece {
    row_tile: usize,
    col_tile: usize,
    sum: Range<usize>,
    hidden: bool,
    place: Place,
    cost: u64,
}

#[derive(Clone, Copy)]
enum Place {
    Output { dest: usize, row: usize, left: usize },
    Slot(usize),
}

/// Rows of the stacked weights that belong to one of them.
struct Segment {
    tensor: Tensor,
    rows: Range<usize>,
}

fn segments(dims: Dims) -> [Segment; 3] {
    let (q, kv) = (dims.query_rows(), dims.kv_rows());
    [
        Segment { tensor: Tensor::GradQWeight, rows: 0..q },
        Segment { tensor: Tensor::GradKWeight, rows: q..q + kv },
        Segment { tensor: Tensor::GradVWeight, rows: q + kv..q + 2 * kv },
    ]
}

/// Elements of the contraction that storing a tile costs as much time as; measured on an H200 with 128x256 tiles.
const STORE_COST: u64 = 200;

struct Builder<'a> {
    problem: &'a Problem,
    cut: Cut,
    direct: Direct,
    pieces: Vec<Piece>,
    finish: Vec<i32>,
    slots: usize,
}

/// Cuts `problem` for `programs` programs.
pub fn build(problem: &Problem, cut: Cut, direct: Direct, programs: u32) -> Schedule {
    let mut builder = Builder { problem, cut, direct, pieces: Vec::new(), finish: Vec::new(), slots: 0 };
    builder.hidden_tiles();
    builder.weight_tiles();
    builder.assign(programs)
}

impl Builder<'_> {
    fn rows(&self) -> usize {
        self.cut.tile.rows as usize
    }

    fn cols(&self) -> usize {
        self.cut.tile.cols as usize
    }

    fn depth_tiles(&self, extent: usize) -> usize {
        extent.div_ceil(self.cut.tile.depth as usize)
    }

    fn hidden_tiles(&mut self) {
        let Some(write) = self.problem.outputs.grad_hidden else { return };
        let dims = self.problem.dims;
        let (row_tiles, col_tiles) = (dims.tokens().div_ceil(self.rows()), dims.hidden().div_ceil(self.cols()));
        let sum = self.depth_tiles(dims.rows());
        for index in 0..row_tiles * col_tiles {
            let (row_tile, col_tile) = (index / col_tiles, index % col_tiles);
            let parts = self.cut.hidden.parts_of(index, row_tiles * col_tiles);
            let row = row_tile * self.rows();
            if parts == 1 && self.direct.hidden {
                let place = Place::Output { dest: 0, row, left: dims.tokens() - row };
                self.push(row_tile, col_tile, 0..sum, true, place);
            } else {
                let slot = self.push_parts(row_tile, col_tile, sum, parts, true);
                let end = dims.tokens().min(row + self.rows());
                self.finish_hidden(slot, parts, row, end, col_tile, write);
            }
        }
    }

    fn weight_tiles(&mut self) {
        let dims = self.problem.dims;
        let (row_tiles, col_tiles) = (dims.rows().div_ceil(self.rows()), dims.hidden().div_ceil(self.cols()));
        let sum = self.depth_tiles(dims.tokens());
        let wanted: Vec<usize> =
            (0..row_tiles).filter(|&row_tile| !self.wanted_segments(row_tile).is_empty()).collect();
        let tiles = wanted.len() * col_tiles;
        for index in 0..tiles {
            let (row_tile, col_tile) = (wanted[index / col_tiles], index % col_tiles);
            let parts = self.cut.weight.parts_of(index, tiles);
            let inside = self.wanted_segments(row_tile);
            let row = row_tile * self.rows();
            match inside.as_slice() {
                [(dest, segment, _)] if parts == 1 && self.direct.weights && segment.start <= row => {
                    let place = Place::Output { dest: *dest, row: row - segment.start, left: segment.end - row };
                    self.push(row_tile, col_tile, 0..sum, false, place);
                }
                _ => {
                    let slot = self.push_parts(row_tile, col_tile, sum, parts, false);
                    for (dest, segment, write) in inside {
                        let rows = segment.start.max(row)..segment.end.min(row + self.rows());
                        self.finish_rows(
                            slot,
                            parts,
                            dest,
                            0,
                            rows.start - segment.start,
                            rows.len(),
                            rows.start - row,
                            col_tile,
                            write,
                        );
                    }
                }
            }
        }
    }

    /// The requested outputs that a row tile of dW touches: destination, rows of the stack, write mode.
    fn wanted_segments(&self, row_tile: usize) -> Vec<(usize, Range<usize>, Write)> {
        let outputs: Requested = self.problem.outputs;
        let row = row_tile * self.rows();
        let mut inside = Vec::new();
        for (index, segment) in segments(self.problem.dims).into_iter().enumerate() {
            let touched = segment.rows.start < row + self.rows() && row < segment.rows.end;
            if let (true, Some(write)) = (touched, outputs.get(segment.tensor)) {
                inside.push((index + 1, segment.rows, write));
            }
        }
        inside
    }

    fn push_parts(&mut self, row_tile: usize, col_tile: usize, sum: usize, parts: usize, hidden: bool) -> usize {
        let slot = self.slots;
        for part in 0..parts {
            let range = sum * part / parts..sum * (part + 1) / parts;
            self.push(row_tile, col_tile, range, hidden, Place::Slot(slot + part));
        }
        self.slots += parts;
        slot
    }

    fn push(&mut self, row_tile: usize, col_tile: usize, sum: Range<usize>, hidden: bool, place: Place) {
        let cost = (sum.len() as u64) * u64::from(self.cut.tile.depth) + STORE_COST;
        self.pieces.push(Piece { row_tile, col_tile, sum, hidden, place, cost });
    }

    fn finish_hidden(&mut self, slot: usize, parts: usize, row: usize, end: usize, col_tile: usize, write: Write) {
        let seq = if self.direct.flat_hidden { self.problem.dims.tokens() } else { self.problem.dims.seq() };
        let mut start = row;
        while start < end {
            let (batch, position) = (start / seq, start % seq);
            let rows = (end - start).min(seq - position);
            self.finish_rows(slot, parts, 0, batch, position, rows, start - row, col_tile, write);
            start += rows;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one argument for each word of the task")]
    fn finish_rows(
        &mut self,
        slot: usize,
        parts: usize,
        dest: usize,
        batch: usize,
        row: usize,
        rows: usize,
        slot_row: usize,
        col_tile: usize,
        write: Write,
    ) {
        let col = col_tile * self.cols();
        let cols = self.cols().min(self.problem.dims.hidden() - col);
        let step = FINISH_ROWS as usize;
        for done in (0..rows).step_by(step) {
            let task = [
                slot,
                parts,
                dest,
                batch,
                row + done,
                step.min(rows - done),
                slot_row + done,
                col,
                cols,
                usize::from(write == Write::Accumulate),
            ];
            self.finish.extend(task.map(word));
        }
    }

    /// Longest processing time first.
    fn assign(mut self, programs: u32) -> Schedule {
        let programs = programs.min(u32::try_from(self.pieces.len()).unwrap_or(u32::MAX)).max(1);
        self.pieces.sort_by_key(|piece| Reverse(piece.cost));
        let mut free: BinaryHeap<Reverse<(u64, u32)>> = (0..programs).map(|program| Reverse((0, program))).collect();
        let mut lists: Vec<Vec<usize>> = vec![Vec::new(); programs as usize];
        let mut total = 0;
        for (index, piece) in self.pieces.iter().enumerate() {
            total += piece.cost;
            if let Some(Reverse((load, program))) = free.pop() {
                lists[program as usize].push(index);
                free.push(Reverse((load + piece.cost, program)));
            }
        }
        let longest = free.iter().map(|Reverse((load, _))| *load).max().unwrap_or(0);
        let first = (programs as usize).div_ceil(PRODUCT_WORDS);
        let each = lists.iter().map(Vec::len).max().unwrap_or(0);
        let mut product = vec![0; (first + programs as usize * each) * PRODUCT_WORDS];
        for (program, list) in lists.iter().enumerate() {
            product[program] = word(list.len());
            for (place, &index) in list.iter().enumerate() {
                let at = (first + program * each + place) * PRODUCT_WORDS;
                product[at..at + PRODUCT_WORDS].copy_from_slice(&self.task(&self.pieces[index]));
            }
        }
        Schedule {
            programs,
            first_task: first,
            tasks_each: each,
            product_tasks: u32::try_from(self.pieces.len()).unwrap_or(u32::MAX),
            finish_tasks: u32::try_from(self.finish.len() / FINISH_WORDS).unwrap_or(u32::MAX),
            slots: u32::try_from(self.slots).unwrap_or(u32::MAX),
            product,
            finish: self.finish,
            longest,
            mean: total / u64::from(programs),
        }
    }

    fn task(&self, piece: &Piece) -> [i32; PRODUCT_WORDS] {
        let empty = 0..0;
        let (x, w) = if piece.hidden { (&piece.sum, &empty) } else { (&empty, &piece.sum) };
        let (power, stride) =
            if piece.hidden { (HEADER_WORDS + piece.row_tile * self.rows(), 1) } else { (X_POWER_WORD, 0) };
        let (dest, row, left, col_tile) = match piece.place {
            Place::Output { dest, row, left } => (dest, row, left, piece.col_tile),
            Place::Slot(slot) => (4, slot * self.rows(), self.rows(), 0),
        };
        [piece.row_tile, piece.col_tile, x.start, x.end, w.start, w.end, dest, row, left, col_tile, power, stride]
            .map(word)
    }
}

/// Everything in a table was checked by the plan to fit 31 bits.
fn word(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

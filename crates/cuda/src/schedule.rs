//! Which program computes which tile: the task tables of the product and finish kernels.
//!
//! dX has `ceil(T/rows)·ceil(E/cols)` tiles with sums over N, dW `ceil(N/rows)·ceil(E/cols)` with sums over T. They are
//! packed so that the longest program is short. The last tiles of either product may be split
//! along their sum: the parts go to scratch slots and the finish kernel adds them in order, so the result does not
//! depend on who computed what.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use qkv_rope_cuda_ptx::product::ADDS;
use qkv_rope_op::{Dims, Problem, Requested, Tensor, Write};
use serde::Serialize;

use crate::kernel::{FINISH_ROWS, HOPPER_TILE, ProductTile};

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

/// Tiles, or parts of tiles, that a program computes together: one, on Hopper two with the same columns and sum.
struct Piece {
    tiles: Vec<PlacedTile>,
    col_tile: usize,
    sum: Range<usize>,
    hidden: bool,
    cost: u64,
}

#[derive(Clone, Copy)]
struct PlacedTile {
    row_tile: usize,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Output {
        dest: usize,
        row: usize,
        left: usize,
    },
    /// An output that two parts are added to; a program adds its last piece only.
    Added {
        dest: usize,
        row: usize,
        left: usize,
    },
    /// A scratch slot, of which so many rows are of use.
    Slot {
        slot: usize,
        left: usize,
    },
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
/// The same on Hopper, where stores overlap the next tile's sums.
const HOPPER_STORE_COST: u64 = 32;

struct Builder<'a> {
    problem: &'a Problem,
    cut: Cut,
    direct: Direct,
    pieces: Vec<Piece>,
    finish: Vec<i32>,
    slots: usize,
    zero_from: usize,
    /// Steps after which a sum is added to the total, on Hopper.
    promote: usize,
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
    fn rows(&self) -> usize {
        self.cut.tile.rows as usize
    }

    fn cols(&self) -> usize {
        self.cut.tile.cols as usize
    }

    fn depth_tiles(&self, extent: usize) -> usize {
        extent.div_ceil(self.cut.tile.depth as usize)
    }

    /// Tiles of a piece.
    fn together(&self) -> usize {
        if self.cut.tile == HOPPER_TILE { HOPPER_TILE.cluster as usize } else { 1 }
    }

    fn store_cost(&self) -> u64 {
        if self.cut.tile == HOPPER_TILE { HOPPER_STORE_COST } else { STORE_COST }
    }

    fn hidden_tiles(&mut self) {
        let Some(write) = self.problem.outputs.grad_hidden else { return };
        let dims = self.problem.dims;
        let row_tiles: Vec<usize> = (0..dims.tokens().div_ceil(self.rows())).collect();
        let sum = self.depth_tiles(dims.rows());
        self.pieces_of(&row_tiles, self.cut.hidden, sum, true, |builder, row_tile, col_tile, parts| {
            let row = row_tile * builder.rows();
            let left = (dims.tokens() - row).min(builder.rows());
            let left_below = dims.tokens() - row;
            match parts {
                1 if builder.direct.hidden => return Place::Output { dest: 0, row, left: left_below },
                2 if builder.direct.hidden && builder.together() > 1 => {
                    builder.zero_from = builder.zero_from.min(row);
                    return Place::Added { dest: 0, row, left: left_below };
                }
                _ => {}
            }
            let slot = builder.take_slots(parts);
            builder.finish_hidden(slot, parts, row, row + left, col_tile, write);
            Place::Slot { slot, left }
        });
    }

    fn weight_tiles(&mut self) {
        let dims = self.problem.dims;
        let sum = self.depth_tiles(dims.tokens());
        let wanted: Vec<usize> = (0..dims.rows().div_ceil(self.rows()))
            .filter(|&row_tile| !self.wanted_segments(row_tile).is_empty())
            .collect();
        self.pieces_of(&wanted, self.cut.weight, sum, false, |builder, row_tile, col_tile, parts| {
            let inside = builder.wanted_segments(row_tile);
            let row = row_tile * builder.rows();
            match inside.as_slice() {
                [(dest, segment, _)] if parts == 1 && builder.direct.weights && segment.start <= row => {
                    return Place::Output { dest: *dest, row: row - segment.start, left: segment.end - row };
                }
                _ => {}
            }
            let slot = builder.take_slots(parts);
            for (dest, segment, write) in inside {
                let rows = segment.start.max(row)..segment.end.min(row + builder.rows());
                builder.finish_rows(
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
            Place::Slot { slot, left: (dims.rows() - row).min(builder.rows()) }
        });
    }

    /// Cuts the tiles of `row_tiles` and all columns into pieces; `place` says where a tile goes and how it is finished.
    fn pieces_of(
        &mut self,
        row_tiles: &[usize],
        split: Split,
        sum: usize,
        hidden: bool,
        place: impl Fn(&mut Self, usize, usize, usize) -> Place,
    ) {
        let col_tiles = self.problem.dims.hidden().div_ceil(self.cols());
        let groups: Vec<&[usize]> = row_tiles.chunks(self.together()).collect();
        let count = groups.len() * col_tiles;
        for index in 0..count {
            let (group, col_tile) = (groups[index / col_tiles], index % col_tiles);
            let parts = split.parts_of(index, count);
            let tiles: Vec<_> = group
                .iter()
                .map(|&row_tile| PlacedTile { row_tile, place: place(self, row_tile, col_tile, parts) })
                .collect();
            for part in 0..parts {
                let sum = sum * part / parts..sum * (part + 1) / parts;
                let cost = (sum.len() as u64) * u64::from(self.cut.tile.depth) + self.store_cost();
                let tiles = tiles.iter().map(|tile| tile.part(part)).collect();
                self.pieces.push(Piece { tiles, col_tile, sum, hidden, cost });
            }
        }
    }

    fn take_slots(&mut self, parts: usize) -> usize {
        let slot = self.slots;
        self.slots += parts;
        slot
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

    /// Gives each program its pieces, and writes the table.
    fn assign(mut self, programs: u32) -> Schedule {
        let programs = programs.min(u32::try_from(self.pieces.len()).unwrap_or(u32::MAX)).max(1);
        self.pieces.sort_by_key(|piece| Reverse(piece.cost));
        let loads: Vec<Load> = self.pieces.iter().map(Piece::load).collect();
        let total: u64 = loads.iter().map(|load| load.cost).sum();
        let lists = spread(&loads, programs as usize);
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

impl PlacedTile {
    fn part(&self, part: usize) -> Self {
        let place = match self.place {
            Place::Slot { slot, left } => Place::Slot { slot: slot + part, left },
            output @ (Place::Output { .. } | Place::Added { .. }) => output,
        };
        Self { place, ..*self }
    }
}

/// What packing needs to know of a piece.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Load {
    cost: u64,
    /// Comes last in its program, which has one such piece at most.
    last: bool,
}

impl Piece {
    fn load(&self) -> Load {
        let last = self.tiles.iter().any(|tile| matches!(tile.place, Place::Added { .. }));
        Load { cost: self.cost, last }
    }
}

/// Spreads pieces over programs so that the longest program is short; costs are in falling order. The better of two
/// rules: longest piece first to the least loaded program, and the least capacity for which first-fit packing succeeds,
/// which finds the even fillings that the first one misses.
fn spread(loads: &[Load], programs: usize) -> Vec<Vec<usize>> {
    let (longest, greedy) = longest_first(loads, programs);
    let total: u64 = loads.iter().map(|load| load.cost).sum();
    let (mut low, mut high) = (total.div_ceil(programs as u64), longest);
    let mut best = greedy;
    while low < high {
        let capacity = low + (high - low) / 2;
        match first_fit(loads, programs, capacity) {
            Some(packed) => {
                best = packed;
                high = capacity;
            }
            None => low = capacity + 1,
        }
    }
    side_by_side(loads, best)
}

/// Exchanges pieces of equal cost so that neighbours, which share operands, are computed at the same time by different
/// programs rather than one after the other by one.
fn side_by_side(loads: &[Load], mut lists: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let mut places: Vec<(Load, usize, usize)> = Vec::with_capacity(loads.len());
    for (program, list) in lists.iter_mut().enumerate() {
        list.sort_by_key(|&index| loads[index].last);
        places.extend(list.iter().enumerate().map(|(place, &index)| (loads[index], place, program)));
    }
    places.sort_unstable();
    let mut pieces: Vec<usize> = (0..loads.len()).collect();
    pieces.sort_by_key(|&index| loads[index]);
    for (index, (_, place, program)) in pieces.into_iter().zip(places) {
        lists[program][place] = index;
    }
    lists
}

fn longest_first(loads: &[Load], programs: usize) -> (u64, Vec<Vec<usize>>) {
    let mut lists = vec![Vec::new(); programs];
    // Pieces that must be last go to programs of their own first.
    let (last, others): (Vec<_>, Vec<_>) = (0..loads.len()).partition(|&index| loads[index].last);
    let mut free = BinaryHeap::new();
    for (program, list) in lists.iter_mut().enumerate() {
        let own = last.get(program).copied();
        list.extend(own);
        free.push(Reverse((own.map_or(0, |index| loads[index].cost), program)));
    }
    for index in others {
        if let Some(Reverse((load, program))) = free.pop() {
            lists[program].push(index);
            free.push(Reverse((load + loads[index].cost, program)));
        }
    }
    (free.iter().map(|Reverse((load, _))| *load).max().unwrap_or(0), lists)
}

/// Each piece to the first program that has room, if there is one for all.
fn first_fit(loads: &[Load], programs: usize, capacity: u64) -> Option<Vec<Vec<usize>>> {
    let mut filled = vec![Load { cost: 0, last: false }; programs];
    let mut lists = vec![Vec::new(); programs];
    for (index, load) in loads.iter().enumerate() {
        let fits = |filled: &Load| filled.cost + load.cost <= capacity && !(filled.last && load.last);
        let program = filled.iter().position(fits)?;
        filled[program].cost += load.cost;
        filled[program].last |= load.last;
        lists[program].push(index);
    }
    Some(lists)
}

/// Everything in a table was checked by the plan to fit 31 bits.
fn word(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

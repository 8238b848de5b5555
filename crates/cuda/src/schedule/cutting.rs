//! The tiles of both products, cut into pieces, and where each goes.

use std::ops::Range;

use qkv_rope_op::{Problem, Requested, Write};

use super::packing::Load;
use super::{Cut, Direct, Split, word};
use crate::kernel::{FINISH_ROWS, HOPPER_TILE};

/// Tiles, or parts of tiles, that a program computes together: one, on Hopper two with the same columns and sum.
pub(super) struct Piece {
    pub(super) tiles: Vec<PlacedTile>,
    pub(super) col_tile: usize,
    pub(super) sum: Range<usize>,
    pub(super) hidden: bool,
    pub(super) cost: u64,
}

#[derive(Clone, Copy)]
pub(super) struct PlacedTile {
    pub(super) row_tile: usize,
    pub(super) place: Place,
}

#[derive(Clone, Copy)]
pub(super) enum Place {
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

/// Elements of the contraction that storing a tile costs as much time as; measured on an H200 with 128x256 tiles.
const STORE_COST: u64 = 200;
/// The same on Hopper, where stores overlap the next tile's sums.
const HOPPER_STORE_COST: u64 = 32;

/// Cuts both products.
pub(super) struct Builder<'a> {
    pub(super) problem: &'a Problem,
    pub(super) cut: Cut,
    pub(super) direct: Direct,
    pub(super) pieces: Vec<Piece>,
    pub(super) finish: Vec<i32>,
    pub(super) slots: usize,
    pub(super) zero_from: usize,
    /// Steps after which a sum is added to the total, on Hopper.
    pub(super) promote: usize,
}

impl Builder<'_> {
    pub(super) fn rows(&self) -> usize {
        self.cut.tile.rows as usize
    }

    fn cols(&self) -> usize {
        self.cut.tile.cols as usize
    }

    fn depth_tiles(&self, extent: usize) -> usize {
        extent.div_ceil(self.cut.tile.depth as usize)
    }

    /// Tiles of a piece.
    pub(super) fn together(&self) -> usize {
        if self.cut.tile == HOPPER_TILE { HOPPER_TILE.cluster as usize } else { 1 }
    }

    fn store_cost(&self) -> u64 {
        if self.cut.tile == HOPPER_TILE { HOPPER_STORE_COST } else { STORE_COST }
    }

    pub(super) fn hidden_tiles(&mut self) {
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

    pub(super) fn weight_tiles(&mut self) {
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
        for (index, segment) in self.problem.dims.segments().into_iter().enumerate() {
            let rows = segment.rows(self.problem.dims);
            let touched = rows.start < row + self.rows() && row < rows.end;
            if let (true, Some(write)) = (touched, outputs.get(segment.weight_gradient)) {
                inside.push((index + 1, rows, write));
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

impl Piece {
    pub(super) fn load(&self) -> Load {
        let last = self.tiles.iter().any(|tile| matches!(tile.place, Place::Added { .. }));
        Load { cost: self.cost, last }
    }
}

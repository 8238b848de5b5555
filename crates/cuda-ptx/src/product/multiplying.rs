//! The second and third warpgroups: multiply.

use super::finished::Finished;
use super::*;

/// The second and third warpgroups.
pub(super) fn multiplying(asm: &mut Asm, block: &Block) {
    op!(asm, "setmaxnreg.inc.sync.aligned.u32 {MULTIPLYING_REGISTERS};");
    let warp = asm.bin("shr.u32", block.thread, 5);
    let group = asm.bin("shr.u32", warp, 2);
    op!(asm, "sub.u32 {group}, {group}, 1;");
    // The thread's first row and column in the tile, as the accumulators are laid out.
    let row = asm.bin("shl.b32", group, 6);
    let quarter = asm.bin("and.b32", warp, 3);
    op!(asm, "mad.lo.u32 {row}, {quarter}, 16, {row};");
    let eighth = asm.bin("shr.u32", block.lane, 2);
    op!(asm, "add.u32 {row}, {row}, {eighth};");
    let col = asm.bin("and.b32", block.lane, 3);
    op!(asm, "shl.b32 {col}, {col}, 1;");

    // Lanes 0 and 1 tell blocks 0 and 1 of the cluster that a stage is free.
    let signals = asm.test("lt.u32", block.lane, CLUSTER);
    let peer = asm.bin("min.u32", block.lane, CLUSTER - 1);
    let empty = asm.bin("add.u32", block.shared, EMPTY);
    let empty = hopper::map_to_rank(asm, empty, peer);
    let full = asm.bin("add.u32", block.shared, FULL);

    let a_place = asm.bits32();
    op!(asm, "mad.lo.u32 {a_place}, {group}, {}, {};", U_BOX_ROWS * ROW_BYTES, block.shared);
    let b_place = asm.bin("add.u32", block.shared, A_BYTES);
    let descriptor = |asm: &mut Asm, place: Reg, major: Major| {
        let (short, to) = (asm.bin("and.b32", place, 0x3ffff), asm.bits64());
        op!(asm, "shr.u32 {short}, {short}, 4;");
        op!(asm, "cvt.u64.u32 {to}, {short};");
        op!(asm, "or.b64 {to}, {to}, {};", major.descriptor(DEPTH));
        to
    };
    let a_rows = descriptor(asm, a_place, Major::K);
    let a_cols = descriptor(asm, a_place, Major::MN);
    let b = descriptor(asm, b_place, Major::MN);

    let finished = Finished::new(asm);
    let sums = asm.floats(SUMS);
    let ring = Ring::new(asm, 0);
    let task = asm.set(0);
    let (next_task, end) = (asm.label(), asm.label());
    let engine = Engine { ring, full, empty, signals, b, sums, finished };

    asm.place(next_task);
    let over = asm.test("ge.u32", task, block.task_count);
    op!(asm, "@{over} bra {end};");
    let address = block.task_address(asm, task);
    let words = task_words(asm, address, 0, 8);
    let [x0, x1, w0, w1, dest, dest_row] = [words[2], words[3], words[4], words[5], words[6], words[7]];
    let is_weight = asm.test("gt.s32", w1, w0);
    let x_steps = asm.bin("sub.s32", x1, x0);
    let steps = asm.bin("sub.s32", w1, w0);
    op!(asm, "max.s32 {steps}, {steps}, {x_steps};");
    let rest = task_words(asm, address, 8, 4);
    let [left, col_tile, power_word, chunk] = [rest[0], rest[1], rest[2], rest[3]];
    let powers = row_powers(asm, block, is_weight, row, left, power_word);
    engine.finished.set_pace(asm, steps);

    let first_chunk = asm.pred();
    op!(asm, "setp.eq.u32 {first_chunk}, 0, 0;");
    let (next_chunk, tile_done, some) = (asm.label(), asm.label(), asm.label());
    let any = asm.test("gt.s32", steps, 0);
    op!(asm, "@{any} bra {some};");
    engine.finished.store_rest(asm);
    for sum in &engine.finished.sums {
        op!(asm, "mov.f32 {sum}, 0f00000000;");
    }
    op!(asm, "bra {tile_done};");
    asm.place(some);
    asm.place(next_chunk);
    let count = asm.bin("min.s32", steps, chunk);
    op!(asm, "sub.s32 {steps}, {steps}, {count};");
    let (weights, multiplied) = (asm.label(), asm.label());
    op!(asm, "@{is_weight} bra {weights};");
    engine.run(asm, (a_rows, Major::K), count);
    op!(asm, "bra {multiplied};");
    asm.place(weights);
    engine.run(asm, (a_cols, Major::MN), count);
    asm.place(multiplied);
    engine.finished.store_rest(asm);
    engine.promote(asm, first_chunk);
    op!(asm, "setp.ne.u32 {first_chunk}, 0, 0;");
    let more = asm.test("gt.s32", steps, 0);
    op!(asm, "@{more} bra {next_chunk};");
    asm.place(tile_done);
    // Minus the powers of two that the tile's rows carry.
    let shared = asm.select(block.x_power, block.w_power, is_weight);
    for power in powers {
        op!(asm, "add.s32 {power}, {power}, {shared};");
        op!(asm, "neg.s32 {power}, {power};");
    }
    engine.finish_tile(asm, [row, col], powers, [dest, dest_row, left, col_tile]);
    op!(asm, "add.u32 {task}, {task}, 1;");
    op!(asm, "bra {next_task};");
    asm.place(end);
    engine.finished.store_last(asm, block, group, [row, col]);
}

/// Asks for the powers of two of the thread's two rows of U, which nothing waits for before the tile is finished.
fn row_powers(asm: &mut Asm, block: &Block, is_weight: Reg, row: Reg, left: Reg, power_word: Reg) -> [Reg; 2] {
    [0, 8].map(|below| {
        let row = asm.bin("add.u32", row, below);
        let last = asm.bin("sub.s32", left, 1);
        op!(asm, "min.s32 {row}, {row}, {last};");
        op!(asm, "max.s32 {row}, {row}, 0;");
        let word = asm.bin("add.u32", row, power_word);
        let at = asm.at(block.words, word, 4);
        let power = asm.set(0);
        op!(asm, "@!{is_weight} ld.global.u32 {power}, [{at}];");
        power
    })
}

/// What a multiplying thread works with.
struct Engine {
    ring: Ring,
    full: Reg,
    /// The first of the barriers that say a stage is free, in the block that this lane tells.
    empty: Reg,
    signals: Reg,
    b: Reg,
    sums: Vec<Reg>,
    finished: Finished,
}

impl Engine {
    /// `count` stages, summed from zero; waits for the end.
    fn run(&self, asm: &mut Asm, (a_base, a_major): (Reg, Major), count: Reg) {
        let add = asm.pred();
        op!(asm, "setp.ne.u32 {add}, 0, 0;");
        let before = asm.set(0);
        let (again, first) = (asm.label(), asm.label());
        asm.place(again);
        let full = self.ring.at(asm, self.full, 8, 0);
        hopper::wait_barrier(asm, full, self.ring.parity);
        let [mut a, mut b] = [a_base, self.b].map(|base| {
            let to = asm.bits64();
            op!(asm, "mad.wide.u32 {to}, {}, {}, {base};", self.ring.stage, STAGE_BYTES >> 4);
            to
        });
        hopper::begin_products(asm);
        for step in 0..DEPTH / STEP {
            hopper::multiply(asm, &self.sums, (a, a_major), (b, Major::MN), add);
            if step == 0 {
                op!(asm, "setp.eq.u32 {add}, 0, 0;");
            }
            if step + 1 < DEPTH / STEP {
                a = asm.bin64("add.u64", a, a_major.advance());
                b = asm.bin64("add.u64", b, Major::MN.advance());
            }
        }
        hopper::commit_products(asm);
        self.finished.store_some(asm);
        hopper::wait_products(asm, 1);
        let is_first = asm.test("eq.u32", before, 0);
        op!(asm, "@{is_first} bra {first};");
        hopper::arrive_remote(asm, self.signals, before);
        asm.place(first);
        op!(asm, "mad.lo.u32 {before}, {}, 8, {};", self.ring.stage, self.empty);
        self.ring.advance(asm);
        op!(asm, "sub.s32 {count}, {count}, 1;");
        let more = asm.test("gt.s32", count, 0);
        op!(asm, "@{more} bra {again};");
        hopper::wait_products(asm, 0);
        hopper::arrive_remote(asm, self.signals, before);
    }

    /// Moves the sums to the finished ones, or adds them.
    fn promote(&self, asm: &mut Asm, first_chunk: Reg) {
        let (add, done) = (asm.label(), asm.label());
        op!(asm, "@!{first_chunk} bra {add};");
        for (total, sum) in self.finished.sums.iter().zip(&self.sums) {
            op!(asm, "mov.f32 {total}, {sum};");
        }
        op!(asm, "bra {done};");
        asm.place(add);
        for (total, sum) in self.finished.sums.iter().zip(&self.sums) {
            op!(asm, "add.rn.f32 {total}, {total}, {sum};");
        }
        asm.place(done);
    }

    /// Notes where the finished tile goes.
    fn finish_tile(
        &self,
        asm: &mut Asm,
        [row, col]: [Reg; 2],
        powers: [Reg; 2],
        [dest, dest_row, left, col_tile]: [Reg; 4],
    ) {
        let finished = &self.finished;
        op!(asm, "setp.ge.u32 {}, {dest}, {ADDS};", finished.adds);
        let dest = asm.bin("and.b32", dest, ADDS - 1);
        let base = asm.address("to_scratch");
        let pitch = asm.set(COLS);
        let cols = asm.set(COLS);
        for (index, (to, stride)) in
            [("to_hidden", "hidden_row"), ("to_q", "dq_row"), ("to_k", "dk_row"), ("to_v", "dv_row")].iter().enumerate()
        {
            let this = asm.test("eq.u32", dest, index);
            let (address, row_stride, hidden) = (asm.address(to), asm.int(stride), asm.int("hidden"));
            op!(asm, "@{this} mov.b64 {base}, {address};");
            op!(asm, "@{this} mov.b32 {pitch}, {row_stride};");
            op!(asm, "@{this} mov.b32 {cols}, {hidden};");
        }
        let first_col = asm.bin("mul.lo.u32", col_tile, COLS);
        op!(asm, "add.u32 {first_col}, {first_col}, {col};");
        op!(asm, "sub.s32 {}, {cols}, {first_col};", finished.cols_left);
        op!(asm, "mov.b32 {}, {left};", finished.rows_left);
        op!(asm, "mov.b32 {}, {pitch};", finished.pitch);
        let to_row = asm.bin("add.u32", dest_row, row);
        for (index, (row_of, power)) in finished.rows.iter().zip(powers).enumerate() {
            let below = 8 * index;
            let this_row = asm.bin("add.u32", row, below);
            op!(asm, "setp.lt.s32 {}, {this_row}, {left};", row_of.exists);
            let (to_row, at, wide_col) = (asm.bin("add.u32", to_row, below), asm.bits64(), asm.bits64());
            op!(asm, "mul.wide.u32 {at}, {to_row}, {pitch};");
            op!(asm, "cvt.u64.u32 {wide_col}, {first_col};");
            op!(asm, "add.u64 {at}, {at}, {wide_col};");
            op!(asm, "shl.b64 {at}, {at}, 2;");
            op!(asm, "add.u64 {}, {base}, {at};", row_of.to);
            for (factor, made) in row_of.factors.iter().zip(two_factors(asm, power)) {
                op!(asm, "mov.f32 {factor}, {made};");
            }
        }
        op!(asm, "mov.b32 {}, 0;", finished.slice);
    }
}

//! What the product kernel could not store itself: sums of partial tiles, in order, and outputs that are accumulated
//! into or whose rows are not aligned.
//!
//! Task, 10 words: first scratch slot, slots, destination (0 dX, 1..=3 dWq, dWk, dWv), batch index, row in the batch
//! (or in the weight), rows, first row in the slot, first column in the destination, columns, accumulate. One block each.

use std::fmt::Display;

use crate::asm::{Asm, Entry, Param, Reg, op};
use crate::hopper;
use crate::product;

/// Threads of a block: one for each column of a tile.
pub const THREADS: u32 = product::COLS;
/// Words of a task.
pub const TASK_WORDS: u32 = 10;
/// The kernel's name.
pub const NAME: &str = "finish_sm90";

const SLOT_BYTES: u32 = 4 * product::ROWS * product::COLS;

const PARAMS: &[Param] = &[
    Param::Address("tasks"),
    Param::Address("scratch"),
    Param::Address("hidden"),
    Param::Address("q"),
    Param::Address("k"),
    Param::Address("v"),
    Param::Wide("hidden_batch"),
    Param::Int("hidden_row"),
    Param::Int("q_row"),
    Param::Int("k_row"),
    Param::Int("v_row"),
];

/// The kernel's PTX. Elements are taken one by one, next to each other in a warp: any alignment will do.
pub fn ptx() -> String {
    let mut asm = Asm::default();
    body(&mut asm);
    asm.finish(&Entry { name: NAME, params: PARAMS, threads: THREADS, registers: None, cluster: 1, shared: Some(16) })
}

/// Rows that are under way together.
const ROWS_UNDER_WAY: usize = 8;

fn body(asm: &mut Asm) {
    let column = asm.set("%tid.x");
    let index = asm.set("%ctaid.x");
    let table = asm.address("tasks");
    let task = asm.at(table, index, 4 * TASK_WORDS);
    let words: Vec<_> = (0..TASK_WORDS).map(|_| asm.bits32()).collect();
    for (word, two) in words.chunks_exact(2).enumerate() {
        op!(asm, "ld.global.nc.v2.u32 {{{}, {}}}, [{task}+{}];", two[0], two[1], 8 * word);
    }
    let [slot, slots, dest, batch, row, rows] = [words[0], words[1], words[2], words[3], words[4], words[5]];
    let [slot_row, first_column, columns, accumulate] = [words[6], words[7], words[8], words[9]];
    let base = asm.address("hidden");
    let pitch = asm.int("hidden_row");
    let (of_batch, wide_batch) = (asm.wide("hidden_batch"), asm.bits64());
    op!(asm, "cvt.u64.u32 {wide_batch}, {batch};");
    op!(asm, "mul.lo.u64 {of_batch}, {of_batch}, {wide_batch};");
    op!(asm, "shl.b64 {of_batch}, {of_batch}, 2;");
    op!(asm, "add.u64 {base}, {base}, {of_batch};");
    for (number, (to, stride)) in [("q", "q_row"), ("k", "k_row"), ("v", "v_row")].into_iter().enumerate() {
        let this = asm.test("eq.u32", dest, number + 1);
        let (to, stride) = (asm.address(to), asm.int(stride));
        op!(asm, "@{this} mov.b64 {base}, {to};");
        op!(asm, "@{this} mov.b32 {pitch}, {stride};");
    }
    let to = address(asm, base, row, pitch, first_column, column);
    let row_bytes = asm.bits64();
    op!(asm, "mul.wide.u32 {row_bytes}, {pitch}, 4;");

    let (scratch, from) = (asm.address("scratch"), asm.bits64());
    op!(asm, "mad.wide.u32 {from}, {slot}, {SLOT_BYTES}, {scratch};");
    let zero = asm.set(0);
    let from = address(asm, from, slot_row, product::COLS, zero, column);
    let exists = asm.test("lt.u32", column, columns);
    let accumulates = asm.test("ne.u32", accumulate, 0);
    hopper::wait_for_previous_kernel(asm);

    // Rows of one task are at most as many as are under way.
    let mut present = Vec::new();
    for index in 0..ROWS_UNDER_WAY {
        let inside = asm.pred();
        op!(asm, "setp.gt.and.u32 {inside}, {rows}, {index}, {exists};");
        present.push(inside);
    }
    // The bits must be those that the product kernel would have left: a tile of one part is stored as it is, parts are
    // added to zero, which loses the sign of zeros.
    let sums = asm.floats(ROWS_UNDER_WAY);
    load_rows(asm, from, &sums, &present);
    let in_parts = asm.test("gt.u32", slots, 1);
    for sum in &sums {
        op!(asm, "@{in_parts} add.rn.f32 {sum}, {sum}, 0f00000000;");
    }
    let (again, done) = (asm.label(), asm.label());
    let left = asm.bin("sub.u32", slots, 1);
    asm.place(again);
    let over = asm.test("eq.u32", left, 0);
    op!(asm, "@{over} bra {done};");
    op!(asm, "add.u64 {from}, {from}, {SLOT_BYTES};");
    let part = asm.floats(ROWS_UNDER_WAY);
    load_rows(asm, from, &part, &present);
    for (sum, part) in sums.iter().zip(&part) {
        op!(asm, "add.rn.f32 {sum}, {sum}, {part};");
    }
    op!(asm, "sub.u32 {left}, {left}, 1;");
    op!(asm, "bra {again};");
    asm.place(done);
    for (sum, &inside) in sums.iter().zip(&present) {
        let (adds, old) = (asm.pred(), asm.float());
        op!(asm, "and.pred {adds}, {inside}, {accumulates};");
        op!(asm, "mov.f32 {old}, 0f00000000;");
        op!(asm, "@{adds} ld.global.f32 {old}, [{to}];");
        op!(asm, "@{adds} add.rn.f32 {sum}, {old}, {sum};");
        op!(asm, "@{inside} st.global.f32 [{to}], {sum};");
        op!(asm, "add.u64 {to}, {to}, {row_bytes};");
    }
    op!(asm, "ret;");
}

fn load_rows(asm: &mut Asm, from: Reg, to: &[Reg], present: &[Reg]) {
    for (index, (to, inside)) in to.iter().zip(present).enumerate() {
        op!(asm, "mov.f32 {to}, 0f00000000;");
        op!(asm, "@{inside} ld.global.f32 {to}, [{from}+{}];", 4 * product::COLS as usize * index);
    }
}

/// `base[row * pitch + first + column]` of f32.
fn address(asm: &mut Asm, base: Reg, row: Reg, pitch: impl Display, first: Reg, column: Reg) -> Reg {
    let (at, sum, wide) = (asm.bits64(), asm.bin("add.u32", first, column), asm.bits64());
    op!(asm, "mul.wide.u32 {at}, {row}, {pitch};");
    op!(asm, "cvt.u64.u32 {wide}, {sum};");
    op!(asm, "add.u64 {at}, {at}, {wide};");
    op!(asm, "shl.b64 {at}, {at}, 2;");
    op!(asm, "add.u64 {at}, {at}, {base};");
    at
}

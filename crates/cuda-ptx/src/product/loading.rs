//! The first warpgroup: asks for tiles, or makes them.

use super::*;

/// The first warpgroup.
pub(super) fn loading_tiles(asm: &mut Asm, block: &Block) {
    op!(asm, "setmaxnreg.dec.sync.aligned.u32 {LOADING_REGISTERS};");
    let u_map = asm.map("u_map");
    let wx_map = asm.map("wx_map");
    let w_rows = asm.int("w_rows");
    let ring = Ring::new(asm, 1);
    let first_thread = asm.test("eq.u32", block.thread, 0);
    let both = asm.bits16();
    op!(asm, "mov.b16 {both}, {};", (1 << CLUSTER) - 1);
    let task = asm.set(0);
    let (next_task, end) = (asm.label(), asm.label());
    // Lanes that have nothing to do must leave: running beside the one that loads, they would hold it up.
    let (any_unusual, stays) = (asm.pred(), asm.pred());
    op!(asm, "or.pred {any_unusual}, {}, {};", block.x_unusual, block.w_unusual);
    op!(asm, "or.pred {stays}, {any_unusual}, {first_thread};");
    op!(asm, "@!{stays} bra {end};");
    asm.place(next_task);
    let over = asm.test("ge.u32", task, block.task_count);
    op!(asm, "@{over} bra {end};");
    let address = block.task_address(asm, task);
    let words = task_words(asm, address, 0, 8);
    let [row_tile, col_tile, x0, x1, w0, w1] = [words[0], words[1], words[2], words[3], words[4], words[5]];
    let row = asm.bin("shl.b32", row_tile, ROWS.ilog2());
    let is_weight = asm.test("gt.s32", w1, w0);
    let k = asm.select(w0, x0, is_weight);
    let k_end = asm.select(w1, x1, is_weight);
    op!(asm, "shl.b32 {k}, {k}, {};", DEPTH.ilog2());
    op!(asm, "shl.b32 {k_end}, {k_end}, {};", DEPTH.ilog2());
    let column = asm.bin("mul.lo.u32", col_tile, COLS);
    let zero = asm.set(0);
    let wx_first = asm.select(w_rows, zero, is_weight);

    let unusual = asm.pred();
    let (x_unusual, w_unusual) = (asm.pred(), asm.pred());
    op!(asm, "and.pred {x_unusual}, {is_weight}, {};", block.x_unusual);
    op!(asm, "not.pred {w_unusual}, {is_weight};");
    op!(asm, "and.pred {w_unusual}, {w_unusual}, {};", block.w_unusual);
    op!(asm, "or.pred {unusual}, {x_unusual}, {w_unusual};");

    let (next_step, step_done, mine) = (asm.label(), asm.label(), asm.label());
    let works = asm.pred();
    op!(asm, "or.pred {works}, {unusual}, {first_thread};");
    op!(asm, "@{works} bra {mine};");
    let steps = asm.bin("sub.u32", k_end, k);
    op!(asm, "shr.u32 {steps}, {steps}, {};", DEPTH.ilog2());
    ring.skip(asm, steps);
    op!(asm, "bra {step_done};");
    asm.place(mine);
    asm.place(next_step);
    let over = asm.test("ge.s32", k, k_end);
    op!(asm, "@{over} bra {step_done};");
    let full = ring.at(asm, block.shared, 8, FULL);
    let empty = ring.at(asm, block.shared, 8, EMPTY);
    let a = ring.at(asm, block.shared, STAGE_BYTES, 0);
    let b = asm.bin("add.u32", a, A_BYTES);
    let (usual, loaded) = (asm.label(), asm.label());
    op!(asm, "@!{unusual} bra {usual};");
    hopper::wait_barrier(asm, empty, ring.parity);
    slow::fill(asm, block, is_weight, b, k, column);
    op!(asm, "@!{first_thread} bra {loaded};");
    hopper::expect_bytes(asm, full, A_BYTES);
    load_left(asm, a, u_map, is_weight, row, k, full);
    op!(asm, "bra {loaded};");

    asm.place(usual);
    op!(asm, "@!{first_thread} bra {loaded};");
    hopper::wait_barrier(asm, empty, ring.parity);
    hopper::expect_bytes(asm, full, STAGE_BYTES);
    load_left(asm, a, u_map, is_weight, row, k, full);
    // This block's half of the right operand, for both.
    let half = asm.bin("mul.lo.u32", block.rank, WX_BOX_ROWS);
    let wx_row = asm.bin("add.u32", k, wx_first);
    op!(asm, "add.u32 {wx_row}, {wx_row}, {half};");
    op!(asm, "mad.lo.u32 {b}, {half}, {ROW_BYTES}, {b};");
    for chunk in 0..CHUNKS {
        let to = asm.bin("add.u32", b, chunk * CHUNK_BYTES);
        let wx_column = asm.bin("add.u32", column, chunk * BOX_COLS);
        hopper::load_box_for_all(asm, to, wx_map, [wx_column, wx_row], full, both);
    }
    asm.place(loaded);
    ring.advance(asm);
    op!(asm, "add.u32 {k}, {k}, {DEPTH};");
    op!(asm, "bra {next_step};");
    asm.place(step_done);
    // Nobody runs ahead of the thread that loads: a barrier's parity tells one phase from the next, not from the one after.
    op!(asm, "@{any_unusual} barrier.sync 1, {WARPGROUP};");
    op!(asm, "add.u32 {task}, {task}, 1;");
    op!(asm, "bra {next_task};");
    asm.place(end);
    op!(asm, "bar.warp.sync 0xffffffff;");
}

/// 128 rows of U for dX, or 128 columns for dW, in two boxes.
fn load_left(asm: &mut Asm, to: Reg, map: Reg, is_weight: Reg, row: Reg, k: Reg, barrier: Reg) {
    for half in 0..ROWS / U_BOX_ROWS {
        let to = asm.bin("add.u32", to, half * U_BOX_ROWS * ROW_BYTES);
        let row = asm.bin("add.u32", row, half * U_BOX_ROWS);
        let u_column = asm.select(row, k, is_weight);
        let u_row = asm.select(k, row, is_weight);
        hopper::load_box(asm, to, map, [u_column, u_row], barrier);
    }
}

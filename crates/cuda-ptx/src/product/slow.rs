//! The right operand's tile made from f32, at powers of two that `prep` did not foresee.

use super::*;

/// Fills the tile at `b` from rows `k..` of W, or of X where `is_weight`; all threads of the first warpgroup do.
pub(super) fn fill(asm: &mut Asm, block: &Block, is_weight: Reg, b: Reg, k: Reg, column: Reg) {
    let hidden = asm.int("hidden");
    let index = asm.set(block.thread);
    let next = asm.label();
    asm.place(next);
    let row = asm.bin("div.u32", index, COLS);
    let col = asm.bits32();
    op!(asm, "mul.lo.u32 {col}, {row}, {COLS};");
    op!(asm, "sub.u32 {col}, {index}, {col};");
    let from_row = asm.bin("add.u32", k, row);
    let from_col = asm.bin("add.u32", column, col);
    let value = asm.float();
    op!(asm, "mov.f32 {value}, 0f00000000;");
    let outside = asm.test("ge.u32", from_col, hidden);
    let (from_x, scaled) = (asm.label(), asm.label());
    op!(asm, "@{outside} bra {scaled};");
    op!(asm, "@{is_weight} bra {from_x};");
    weight(asm, block, from_row, from_col, value, scaled);
    op!(asm, "bra {scaled};");
    asm.place(from_x);
    token(asm, block, from_row, from_col, value, scaled);
    asm.place(scaled);
    let half = asm.bits16();
    op!(asm, "cvt.rn.f16.f32 {half}, {value};");
    // Chunk, row, and the 16 bytes within it that the swizzle says.
    let chunk = asm.bin("shr.u32", col, BOX_COLS.ilog2());
    let inner = asm.bin("and.b32", col, BOX_COLS - 1);
    let piece = asm.bin("shr.u32", inner, 3);
    let turn = asm.bin("and.b32", row, 7);
    op!(asm, "xor.b32 {piece}, {piece}, {turn};");
    let offset = asm.bin("and.b32", inner, 7);
    op!(asm, "shl.b32 {offset}, {offset}, 1;");
    op!(asm, "mad.lo.u32 {offset}, {piece}, 16, {offset};");
    op!(asm, "mad.lo.u32 {offset}, {row}, {ROW_BYTES}, {offset};");
    op!(asm, "mad.lo.u32 {offset}, {chunk}, {CHUNK_BYTES}, {offset};");
    op!(asm, "add.u32 {offset}, {offset}, {b};");
    op!(asm, "st.shared.b16 [{offset}], {half};");
    op!(asm, "add.u32 {index}, {index}, {WARPGROUP};");
    let more = asm.test("lt.u32", index, DEPTH * COLS);
    op!(asm, "@{more} bra {next};");
    op!(asm, "fence.proxy.async.shared::cta;");
    op!(asm, "barrier.sync 1, {WARPGROUP};");
}

fn scale(asm: &mut Asm, value: Reg, power: Reg) {
    for factor in two_factors(asm, power) {
        op!(asm, "mul.rn.f32 {value}, {value}, {factor};");
    }
}

fn element(asm: &mut Asm, base: Reg, row: Reg, pitch: Reg, col: Reg, value: Reg) {
    let at = asm.bits64();
    op!(asm, "mul.wide.u32 {at}, {row}, {pitch};");
    let wide_col = asm.bits64();
    op!(asm, "cvt.u64.u32 {wide_col}, {col};");
    op!(asm, "add.u64 {at}, {at}, {wide_col};");
    op!(asm, "shl.b64 {at}, {at}, 2;");
    op!(asm, "add.u64 {at}, {at}, {base};");
    op!(asm, "ld.global.f32 {value}, [{at}];");
}

fn weight(asm: &mut Asm, block: &Block, row: Reg, col: Reg, value: Reg, done: Label) {
    let (q_rows, kv_rows) = (asm.int("q_rows"), asm.int("kv_rows"));
    let k_end = asm.bin("add.u32", q_rows, kv_rows);
    let v_end = asm.bin("add.u32", k_end, kv_rows);
    let outside = asm.test("ge.u32", row, v_end);
    op!(asm, "@{outside} bra {done};");
    let base = asm.address("wq");
    let pitch = asm.int("wq_row");
    let local = asm.set(row);
    for (first, from, stride) in [(q_rows, "wk", "wk_row"), (k_end, "wv", "wv_row")] {
        let beyond = asm.test("ge.u32", row, first);
        let (other, other_pitch) = (asm.address(from), asm.int(stride));
        op!(asm, "@{beyond} mov.b64 {base}, {other};");
        op!(asm, "@{beyond} mov.b32 {pitch}, {other_pitch};");
        op!(asm, "@{beyond} sub.u32 {local}, {row}, {first};");
    }
    element(asm, base, local, pitch, col, value);
    scale(asm, value, block.w_power);
}

fn token(asm: &mut Asm, block: &Block, row: Reg, col: Reg, value: Reg, done: Label) {
    let (tokens, seq) = (asm.int("tokens"), asm.int("seq"));
    let outside = asm.test("ge.u32", row, tokens);
    op!(asm, "@{outside} bra {done};");
    let batch = asm.bin("div.u32", row, seq);
    let local = asm.bits32();
    op!(asm, "mul.lo.u32 {local}, {batch}, {seq};");
    op!(asm, "sub.u32 {local}, {row}, {local};");
    let (base, stride) = (asm.address("x"), asm.wide("x_batch"));
    let wide_batch = asm.bits64();
    op!(asm, "cvt.u64.u32 {wide_batch}, {batch};");
    op!(asm, "mul.lo.u64 {wide_batch}, {wide_batch}, {stride};");
    op!(asm, "shl.b64 {wide_batch}, {wide_batch}, 2;");
    op!(asm, "add.u64 {base}, {base}, {wide_batch};");
    let pitch = asm.int("x_row");
    element(asm, base, local, pitch, col, value);
    let word = asm.bin("add.u32", row, TOKENS);
    let at = asm.at(block.words, word, 4);
    let power = asm.bits32();
    op!(asm, "ld.global.u32 {power}, [{at}];");
    op!(asm, "sub.s32 {power}, {}, {power};", block.x_power);
    scale(asm, value, power);
}

//! A block of weights.

use super::*;

/// Eight rows of the stacked weights, zeros past the last.
pub(super) fn weight_rows(asm: &mut Asm, block: &Block) {
    let vector = block.rows.vector();
    let (head_dim, q_heads, kv_heads) = (asm.int("head_dim"), asm.int("q_heads"), asm.int("kv_heads"));
    let q_rows = asm.bin("mul.lo.u32", q_heads, head_dim);
    let kv_rows = asm.bin("mul.lo.u32", kv_heads, head_dim);
    let v_first = asm.bin("add.u32", q_rows, kv_rows);
    let rows = asm.bin("add.u32", v_first, kv_rows);
    let (w_rows, hidden, pitch, base) = (asm.int("w_rows"), asm.int("hidden"), asm.int("wx_pitch"), asm.address("wx"));
    let units = asm.bin("div.u32", hidden, vector);
    let first = asm.bin("sub.u32", block.index, block.token_blocks);
    op!(asm, "mul.lo.u32 {first}, {first}, {WEIGHT_ROWS};");
    let end = asm.bin("add.u32", first, WEIGHT_ROWS);
    op!(asm, "min.u32 {end}, {end}, {w_rows};");
    let count = asm.bin("sub.u32", end, first);
    op!(asm, "mul.lo.u32 {count}, {count}, {units};");

    let load_round = |asm: &mut Asm, unit: Reg| {
        let mut loaded = Vec::new();
        let mut at = asm.set(unit);
        for _ in 0..W_UNDER_WAY {
            let inside = asm.test("lt.u32", at, count);
            let [row, column] = divide(asm, at, units);
            op!(asm, "add.u32 {row}, {row}, {first};");
            let exists = asm.pred();
            op!(asm, "setp.lt.and.u32 {exists}, {row}, {rows}, {inside};");
            let (from, from_pitch, local) = (asm.address("wq"), asm.int("wq_row"), asm.set(row));
            for (beyond, other, stride) in [(q_rows, "wk", "wk_row"), (v_first, "wv", "wv_row")] {
                let is_beyond = asm.test("ge.u32", row, beyond);
                let (other, stride) = (asm.address(other), asm.int(stride));
                op!(asm, "@{is_beyond} mov.b64 {from}, {other};");
                op!(asm, "@{is_beyond} mov.b32 {from_pitch}, {stride};");
                op!(asm, "@{is_beyond} sub.u32 {local}, {row}, {beyond};");
            }
            let source = asm.bits64();
            op!(asm, "mul.wide.u32 {source}, {local}, {from_pitch};");
            op!(asm, "mad.wide.u32 {source}, {column}, {vector}, {source};");
            op!(asm, "shl.b64 {source}, {source}, 2;");
            op!(asm, "add.u64 {source}, {source}, {from};");
            let to = asm.bits64();
            op!(asm, "mul.wide.u32 {to}, {row}, {pitch};");
            op!(asm, "mad.wide.u32 {to}, {column}, {vector}, {to};");
            op!(asm, "shl.b64 {to}, {to}, 1;");
            op!(asm, "add.u64 {to}, {to}, {base};");
            loaded.push((load(asm, source, Reads::Once, vector, exists), to, inside));
            at = asm.bin("add.u32", at, block.workers);
        }
        loaded
    };
    let store_round = |asm: &mut Asm, loaded: &[(Vec<Reg>, Reg, Reg)], factors: [Reg; 2], top: Reg| {
        for (values, to, inside) in loaded {
            add_largest(asm, top, values);
            store_rounded(asm, *to, 0, values, factors, *inside);
        }
    };

    let loaded = load_round(asm, block.thread);
    op!(asm, "bar.sync 0;");
    let power = block.word(asm, USUAL_W);
    let factors = two_factors(asm, power);
    let top = asm.set(0);
    store_round(asm, &loaded, factors, top);
    let unit = asm.bits32();
    op!(asm, "mad.lo.u32 {unit}, {}, {W_UNDER_WAY}, {};", block.workers, block.thread);
    let (again, done) = (asm.label(), asm.label());
    asm.place(again);
    let over = asm.test("ge.u32", unit, count);
    op!(asm, "@{over} bra {done};");
    let loaded = load_round(asm, unit);
    store_round(asm, &loaded, factors, top);
    op!(asm, "mad.lo.u32 {unit}, {}, {W_UNDER_WAY}, {unit};", block.workers);
    op!(asm, "bra {again};");
    asm.place(done);
    let exponent = exponent_or_none(asm, top);
    block.count(asm, exponent);
}

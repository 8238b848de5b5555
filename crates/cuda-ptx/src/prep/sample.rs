//! The sample that the usual powers of two come from.

use super::*;

impl Block {
    /// A warp looks at four elements of each of eight tokens and of eight rows of each weight, evenly spread, and leaves
    /// the usual powers in shared memory.
    pub(super) fn sample(&self, asm: &mut Asm) {
        let lane = asm.bin("and.b32", self.thread, 31);
        let eighth = asm.bin("shr.u32", lane, 2);
        let element = asm.bin("and.b32", lane, 3);
        let tokens = asm.int("tokens");
        let (want_x, want_w) = (asm.int("want_x"), asm.int("want_w"));
        let seq = asm.int("seq");
        let token = spread(asm, eighth, tokens);
        let [batch, position] = divide(asm, token, seq);
        let some = asm.test("gt.u32", tokens, 0);
        let (head_dim, hidden) = (asm.int("head_dim"), asm.int("hidden"));
        let x_some = asm.pred();
        op!(asm, "setp.ne.and.u32 {x_some}, {want_x}, 0, {some};");
        let w_some = asm.test("ne.u32", want_w, 0);
        let (heads, kv_heads) = (asm.int("q_heads"), asm.int("kv_heads"));
        let mut tops = Vec::new();
        let mut values = Vec::new();
        let gradients = [
            ("grad_q", "q_batch", "q_seq", heads),
            ("grad_k", "k_batch", "k_seq", kv_heads),
            ("grad_v", "v_batch", "v_seq", kv_heads),
        ];
        for (base, of_batch, of_row, heads) in gradients {
            let some = also(asm, some, heads);
            let row = token_row(asm, base, of_batch, of_row, batch, position);
            values.push(sampled(asm, row, element, head_dim, some));
        }
        tops.push(std::mem::take(&mut values));
        let row = token_row(asm, "x", "x_batch", "x_seq", batch, position);
        values.push(sampled(asm, row, element, hidden, x_some));
        tops.push(std::mem::take(&mut values));
        for (base, of_row, heads) in [("wq", "wq_row", heads), ("wk", "wk_row", kv_heads), ("wv", "wv_row", kv_heads)] {
            let rows = asm.bin("mul.lo.u32", heads, head_dim);
            let index = spread(asm, eighth, rows);
            let w_some = also(asm, w_some, rows);
            let (base, pitch, at) = (asm.address(base), asm.int(of_row), asm.bits64());
            op!(asm, "mul.wide.u32 {at}, {index}, {pitch};");
            op!(asm, "shl.b64 {at}, {at}, 2;");
            op!(asm, "add.u64 {at}, {at}, {base};");
            values.push(sampled(asm, at, element, hidden, w_some));
        }
        tops.push(values);
        let exponents: Vec<_> = tops
            .iter()
            .map(|values| {
                let top = largest(asm, values);
                op!(asm, "redux.sync.max.u32 {top}, {top}, 0xffffffff;");
                let exponent = exponent(asm, top);
                // Nothing but zeros: as if it were ones.
                let none = asm.test("eq.u32", top, 0);
                asm.select(0, exponent, none)
            })
            .collect();
        let usual = |asm: &mut Asm, target: i32, exponent: Reg| {
            let power = asm.bits32();
            op!(asm, "sub.s32 {power}, {target}, {exponent};");
            power
        };
        let u = usual(asm, U_TARGET, exponents[0]);
        let x = usual(asm, X_TARGET, exponents[1]);
        op!(asm, "add.s32 {x}, {x}, {u};");
        let w = usual(asm, W_TARGET, exponents[2]);
        let first = asm.test("eq.u32", lane, 0);
        for (place, power) in [(USUAL_U, u), (USUAL_X, x), (USUAL_W, w)] {
            op!(asm, "@{first} st.shared.b32 [{}+{place}], {power};", self.shared);
        }
        let tells = asm.pred();
        op!(asm, "setp.eq.and.u32 {tells}, {}, 0, {first};", self.index);
        op!(asm, "@{tells} st.global.b32 [{}+{}], {w};", self.words, 4 * W_POWER);
        op!(asm, "@{tells} st.global.b32 [{}+{}], {x};", self.words, 4 * X_POWER);
    }
}

/// `eighth * count / 8`.
fn spread(asm: &mut Asm, eighth: Reg, count: Reg) -> Reg {
    let (wide, to) = (asm.bits64(), asm.bits32());
    op!(asm, "mul.wide.u32 {wide}, {eighth}, {count};");
    op!(asm, "shr.u64 {wide}, {wide}, 3;");
    op!(asm, "cvt.u32.u64 {to}, {wide};");
    to
}

/// Whether `when` and there are any.
fn also(asm: &mut Asm, when: Reg, count: Reg) -> Reg {
    let both = asm.pred();
    op!(asm, "setp.ne.and.u32 {both}, {count}, 0, {when};");
    both
}

/// An element of a row of `count`, zero past its end.
fn sampled(asm: &mut Asm, row: Reg, element: Reg, count: Reg, when: Reg) -> Reg {
    let (inside, value) = (asm.pred(), asm.float());
    op!(asm, "setp.lt.and.u32 {inside}, {element}, {count}, {when};");
    let at = asm.at(row, element, 4);
    op!(asm, "mov.f32 {value}, 0f00000000;");
    op!(asm, "@{inside} ld.global.nc.f32 {value}, [{at}];");
    value
}

/// The bits of the largest finite magnitude, which order as the magnitudes do.
fn largest(asm: &mut Asm, values: &[Reg]) -> Reg {
    let top = asm.set(0);
    add_largest(asm, top, values);
    top
}

//! A block of tokens.

use super::*;

/// A block of tokens: who does what.
pub(super) struct Token {
    /// The thread's place among those of its token.
    pub(super) unit: Reg,
    pub(super) per_token: Reg,
    pub(super) slot: Reg,
    pub(super) index: Reg,
    pub(super) batch: Reg,
    pub(super) position: Reg,
    pub(super) active: Reg,
    /// Address of the token's row of U.
    pub(super) u: Reg,
}

impl Token {
    pub(super) fn of(asm: &mut Asm, block: &Block) -> Self {
        let per_token = asm.int("threads_per_token");
        let per_block = asm.int("tokens_per_block");
        let (tokens, seq) = (asm.int("tokens"), asm.int("seq"));
        let [slot, unit] = divide(asm, block.thread, per_token);
        // The first tokens last: the product kernel begins with them and finds them in the second-level cache.
        let from_end = asm.bin("sub.u32", block.token_blocks, 1);
        op!(asm, "sub.u32 {from_end}, {from_end}, {};", block.index);
        let index = asm.bits32();
        op!(asm, "mad.lo.u32 {index}, {from_end}, {per_block}, {slot};");
        let (in_block, active) = (asm.test("lt.u32", slot, per_block), asm.pred());
        op!(asm, "setp.lt.and.u32 {active}, {index}, {tokens}, {in_block};");
        let safe = asm.set(0);
        op!(asm, "@{active} mov.b32 {safe}, {index};");
        let [batch, position] = divide(asm, safe, seq);
        let (base, pitch, u) = (asm.address("u"), asm.int("u_pitch"), asm.bits64());
        op!(asm, "mul.wide.u32 {u}, {safe}, {pitch};");
        op!(asm, "shl.b64 {u}, {u}, 1;");
        op!(asm, "add.u64 {u}, {u}, {base};");
        Self { unit, per_token, slot, index: safe, batch, position, active, u }
    }

    /// The row of X.
    pub(super) fn cast(&self, asm: &mut Asm, vector: u32) -> Cast {
        let from = token_row(asm, "x", "x_batch", "x_seq", self.batch, self.position);
        let (hidden, w_rows, pitch, base) =
            (asm.int("hidden"), asm.int("w_rows"), asm.int("wx_pitch"), asm.address("wx"));
        let row = asm.bin("add.u32", self.index, w_rows);
        let to = asm.bits64();
        op!(asm, "mul.wide.u32 {to}, {row}, {pitch};");
        op!(asm, "shl.b64 {to}, {to}, 1;");
        op!(asm, "add.u64 {to}, {to}, {base};");
        let units = asm.bin("div.u32", hidden, vector);
        let want = asm.int("want_x");
        let when = asm.pred();
        op!(asm, "setp.ne.and.u32 {when}, {want}, 0, {};", self.active);
        Cast { from, to, first: self.unit, step: self.per_token, units, when, vector }
    }

    /// Joins the magnitudes of the token's threads; all threads of the block meet.
    pub(super) fn join(&self, asm: &mut Asm, block: &Block, top: Reg) -> Reg {
        let at = asm.bits32();
        op!(asm, "mad.lo.u32 {at}, {}, 4, {};", self.slot, block.shared);
        op!(asm, "red.shared.max.u32 [{at}+{ROW_TOPS}], {top};");
        op!(asm, "bar.sync 0;");
        let joined = asm.bits32();
        op!(asm, "ld.shared.b32 {joined}, [{at}+{ROW_TOPS}];");
        joined
    }

    /// The power of two for a row of U whose largest magnitude has these bits, told to the product kernel.
    pub(super) fn power(&self, asm: &mut Asm, block: &Block, top: Reg) -> Reg {
        let usual = block.word(asm, USUAL_U);
        let exponent = exponent_or_none(asm, top);
        let power = fitting_power(asm, exponent, usual);
        let tells = asm.pred();
        op!(asm, "setp.eq.and.u32 {tells}, {}, 0, {};", self.unit, self.active);
        let word = asm.bin("add.u32", self.index, TOKENS);
        let at = asm.at(block.words, word, 4);
        op!(asm, "@{tells} st.global.b32 [{at}], {power};");
        power
    }

    /// Zeroes the token's row of dX where the product kernel will add to it.
    pub(super) fn zero_hidden(&self, asm: &mut Asm, vector: u32) {
        let (zero_from, hidden, pitch) = (asm.int("zero_from"), asm.int("hidden"), asm.int("hidden_row"));
        let done = asm.label();
        let zeroed = asm.pred();
        op!(asm, "setp.ge.and.u32 {zeroed}, {}, {zero_from}, {};", self.index, self.active);
        op!(asm, "@!{zeroed} bra {done};");
        let (row, base) = (asm.bits64(), asm.address("to_hidden"));
        op!(asm, "mul.wide.u32 {row}, {}, {pitch};", self.index);
        op!(asm, "shl.b64 {row}, {row}, 2;");
        op!(asm, "add.u64 {row}, {row}, {base};");
        let (units, unit) = (asm.bin("div.u32", hidden, vector), asm.set(self.unit));
        let again = asm.label();
        asm.place(again);
        let over = asm.test("ge.u32", unit, units);
        op!(asm, "@{over} bra {done};");
        let at = asm.at(row, unit, 4 * vector);
        if vector == 4 {
            let zero = asm.set(0);
            op!(asm, "st.global.v4.b32 [{at}], {{{zero}, {zero}, {zero}, {zero}}};");
        } else {
            op!(asm, "st.global.b32 [{at}], 0;");
        }
        op!(asm, "add.u32 {unit}, {unit}, {};", self.per_token);
        op!(asm, "bra {again};");
        asm.place(done);
    }

    /// Rounds the row of X at the power that goes with the token's, and counts what it found.
    pub(super) fn finish_x(
        &self,
        asm: &mut Asm,
        block: &Block,
        cast: &Cast,
        loaded: &[(Vec<Reg>, Reg, Reg)],
        power: Reg,
    ) {
        let x_power = block.word(asm, USUAL_X);
        let own = asm.bin("sub.s32", x_power, power);
        let factors = two_factors(asm, own);
        let top = cast.finish(asm, loaded, factors);
        let exponent = exponent_or_none(asm, top);
        let relative = asm.bin("sub.s32", exponent, power);
        let none = asm.test("eq.u32", top, 0);
        let counted = asm.select(NONE, relative, none);
        op!(asm, "redux.sync.max.s32 {counted}, {counted}, 0xffffffff;");
        block.count(asm, counted);
    }
}

/// Chooses among the gradients by head: the address of `[batch, head, position, 0]`, and whether it is rotated.
pub(super) fn head_row(asm: &mut Asm, token: &Token, head: Reg) -> (Reg, Reg) {
    let (q_heads, kv_heads) = (asm.int("q_heads"), asm.int("kv_heads"));
    let v_first = asm.bin("add.u32", q_heads, kv_heads);
    let rotated = asm.test("lt.u32", head, v_first);
    let base = asm.address("grad_q");
    let (of_batch, of_head, of_row) = (asm.wide("q_batch"), asm.int("q_head"), asm.int("q_seq"));
    let local = asm.set(head);
    let others = [(q_heads, "grad_k", "k_batch", "k_head", "k_seq"), (v_first, "grad_v", "v_batch", "v_head", "v_seq")];
    for (first, from, batch, head_stride, row) in others {
        let beyond = asm.test("ge.u32", head, first);
        let (from, batch, head_stride, row) = (asm.address(from), asm.wide(batch), asm.int(head_stride), asm.int(row));
        op!(asm, "@{beyond} mov.b64 {base}, {from};");
        op!(asm, "@{beyond} mov.b64 {of_batch}, {batch};");
        op!(asm, "@{beyond} mov.b32 {of_head}, {head_stride};");
        op!(asm, "@{beyond} mov.b32 {of_row}, {row};");
        op!(asm, "@{beyond} sub.u32 {local}, {head}, {first};");
    }
    let (at, wide) = (asm.bits64(), asm.bits64());
    op!(asm, "mul.wide.u32 {at}, {local}, {of_head};");
    op!(asm, "mad.wide.u32 {at}, {}, {of_row}, {at};", token.position);
    op!(asm, "cvt.u64.u32 {wide}, {};", token.batch);
    op!(asm, "mad.lo.u64 {at}, {wide}, {of_batch}, {at};");
    op!(asm, "shl.b64 {at}, {at}, 2;");
    op!(asm, "add.u64 {at}, {at}, {base};");
    (at, rotated)
}

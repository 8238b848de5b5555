//! A token pair by pair, twice: once for its largest magnitude, once to round.

use super::*;

pub(super) fn tokens(asm: &mut Asm, block: &Block) {
    let token = Token::of(asm, block);
    op!(asm, "bar.sync 0;");
    let top = asm.set(0);
    let nothing = asm.label();
    each_pair(asm, &token, nothing, |asm, _, pair| add_largest(asm, top, &pair));
    let top = token.join(asm, block, top);
    let power = token.power(asm, block, top);
    let factors = two_factors(asm, power);
    let nothing = asm.label();
    each_pair(asm, &token, nothing, |asm, places, pair| {
        for (place, value) in places.into_iter().zip(pair) {
            let at = asm.bits64();
            op!(asm, "mad.wide.u32 {at}, {place}, 2, {};", token.u);
            store_rounded(asm, at, 0, &[value], factors, token.active);
        }
    });
    let cast = token.cast(asm, block.rows.vector());
    let x = cast.load(asm, cast.first);
    token.finish_x(asm, block, &cast, &x, power);
    token.zero_hidden(asm, block.rows.vector());
}

/// Calls `then` with the columns of U and the values of each of the thread's pairs.
fn each_pair(asm: &mut Asm, token: &Token, done: Label, then: impl FnOnce(&mut Asm, [Reg; 2], [Reg; 2])) {
    let (head_dim, q_heads, kv_heads) = (asm.int("head_dim"), asm.int("q_heads"), asm.int("kv_heads"));
    let (rotary, interleaved) = (asm.int("rotary_dim"), asm.int("interleaved"));
    let pairs = asm.bin("shr.u32", head_dim, 1);
    let turned_pairs = asm.bin("shr.u32", rotary, 1);
    let heads = asm.bits32();
    op!(asm, "mad.lo.u32 {heads}, {kv_heads}, 2, {q_heads};");
    let units = asm.bin("mul.lo.u32", heads, pairs);
    let unit = asm.set(token.unit);
    op!(asm, "@!{} mov.b32 {units}, 0;", token.active);
    let is_interleaved = asm.test("ne.u32", interleaved, 0);
    let again = asm.label();
    asm.place(again);
    let over = asm.test("ge.u32", unit, units);
    op!(asm, "@{over} bra {done};");
    let [head, pair] = divide(asm, unit, pairs);
    let (row, mut rotated) = head_row(asm, token, head);
    // Elements of the pair: (i, i + R/2) half-split; (2i, 2i+1) interleaved and in the part that is not rotated.
    let turned = asm.test("lt.u32", pair, turned_pairs);
    let both = asm.pred();
    op!(asm, "and.pred {both}, {rotated}, {turned};");
    rotated = both;
    let next_to = asm.pred();
    op!(asm, "not.pred {next_to}, {turned};");
    op!(asm, "or.pred {next_to}, {next_to}, {is_interleaved};");
    let twice = asm.bin("shl.b32", pair, 1);
    let after = asm.bin("add.u32", twice, 1);
    let across = asm.bin("add.u32", pair, turned_pairs);
    let elements = [asm.select(twice, pair, next_to), asm.select(after, across, next_to)];
    let values = elements.map(|element| {
        let at = asm.at(row, element, 4);
        load(asm, at, Reads::Often, 1, token.active)[0]
    });
    let table = |asm: &mut Asm, base: &str, of_batch: &str, of_row: &str| {
        let row = token_row(asm, base, of_batch, of_row, token.batch, token.position);
        elements.map(|element| {
            let at = asm.at(row, element, 4);
            load(asm, at, Reads::Often, 1, rotated)[0]
        })
    };
    let cos = table(asm, "cos", "cos_batch", "cos_seq");
    let sin = table(asm, "sin", "sin_batch", "sin_seq");
    unrotate(asm, values, cos, sin, rotated);
    let columns = elements.map(|element| {
        let column = asm.bits32();
        op!(asm, "mad.lo.u32 {column}, {head}, {head_dim}, {element};");
        column
    });
    then(asm, columns, values);
    op!(asm, "add.u32 {unit}, {unit}, {};", token.per_token);
    op!(asm, "bra {again};");
    asm.place(done);
}

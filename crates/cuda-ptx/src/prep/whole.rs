//! A token in registers.

use super::*;

pub(super) fn tokens(asm: &mut Asm, block: &Block) {
    let token = Token::of(asm, block);
    let (head_dim, q_heads, kv_heads) = (asm.int("head_dim"), asm.int("q_heads"), asm.int("kv_heads"));
    let half = asm.bin("shr.u32", head_dim, 1);
    let quads = asm.bin("shr.u32", half, 2);
    let [group, quad] = divide(asm, token.unit, quads);
    let groups = asm.bin("div.u32", token.per_token, quads);
    let heads = asm.bits32();
    op!(asm, "mad.lo.u32 {heads}, {kv_heads}, 2, {q_heads};");
    let second_half = asm.bits64();
    op!(asm, "mul.wide.u32 {second_half}, {half}, 4;");

    let mut units = Vec::new();
    for index in 0..HEADS {
        let head = asm.bits32();
        op!(asm, "mad.lo.u32 {head}, {groups}, {index}, {group};");
        let exists = asm.pred();
        op!(asm, "setp.lt.and.u32 {exists}, {head}, {heads}, {};", token.active);
        let (row, rotated) = head_row(asm, &token, head);
        let at = asm.at(row, quad, 16);
        let other = asm.bin64("add.u64", at, second_half);
        let pair = [load(asm, at, Reads::Once, 4, exists), load(asm, other, Reads::Once, 4, exists)];
        units.push((pair, head, exists, rotated));
    }
    let table = |asm: &mut Asm, base: &str, of_batch: &str, of_row: &str| {
        let row = token_row(asm, base, of_batch, of_row, token.batch, token.position);
        let at = asm.at(row, quad, 16);
        let other = asm.bin64("add.u64", at, second_half);
        [load(asm, at, Reads::Often, 4, token.active), load(asm, other, Reads::Often, 4, token.active)]
    };
    let cos = table(asm, "cos", "cos_batch", "cos_seq");
    let sin = table(asm, "sin", "sin_batch", "sin_seq");
    let cast = token.cast(asm, block.rows.vector());
    let x = cast.load(asm, cast.first);
    op!(asm, "bar.sync 0;");

    let top = asm.set(0);
    for ([first, second], _, _, rotated) in &units {
        for i in 0..4 {
            let (cos, sin) = ([cos[0][i], cos[1][i]], [sin[0][i], sin[1][i]]);
            unrotate(asm, [first[i], second[i]], cos, sin, *rotated);
        }
        add_largest(asm, top, first);
        add_largest(asm, top, second);
    }
    let top = token.join(asm, block, top);
    let power = token.power(asm, block, top);
    let factors = two_factors(asm, power);
    for ([first, second], head, exists, _) in &units {
        let column = asm.bin("mul.lo.u32", *head, head_dim);
        op!(asm, "mad.lo.u32 {column}, {quad}, 4, {column};");
        let at = asm.bits64();
        op!(asm, "mad.wide.u32 {at}, {column}, 2, {};", token.u);
        store_rounded(asm, at, 0, first, factors, *exists);
        let other = asm.bits64();
        op!(asm, "mad.wide.u32 {other}, {half}, 2, {at};");
        store_rounded(asm, other, 0, second, factors, *exists);
    }
    token.finish_x(asm, block, &cast, &x, power);
    token.zero_hidden(asm, block.rows.vector());
}

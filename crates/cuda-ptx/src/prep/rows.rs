//! Parts that all blocks share: addresses, loads, rounding.

use super::*;

/// Quotient and remainder.
pub(super) fn divide(asm: &mut Asm, value: Reg, by: Reg) -> [Reg; 2] {
    let quotient = asm.bin("div.u32", value, by);
    let rest = asm.bin("mul.lo.u32", quotient, by);
    let rest = asm.bin("sub.u32", value, rest);
    [quotient, rest]
}

/// Address of `base[batch, .., position, 0]`, in the first head where there are heads.
pub(super) fn token_row(asm: &mut Asm, base: &str, of_batch: &str, of_row: &str, batch: Reg, position: Reg) -> Reg {
    let (base, of_batch, of_row) = (asm.address(base), asm.wide(of_batch), asm.int(of_row));
    let (at, wide) = (asm.bits64(), asm.bits64());
    op!(asm, "mul.wide.u32 {at}, {position}, {of_row};");
    op!(asm, "cvt.u64.u32 {wide}, {batch};");
    op!(asm, "mad.lo.u64 {at}, {wide}, {of_batch}, {at};");
    op!(asm, "shl.b64 {at}, {at}, 2;");
    op!(asm, "add.u64 {at}, {at}, {base};");
    at
}

pub(super) fn add_largest(asm: &mut Asm, top: Reg, values: &[Reg]) {
    for value in values {
        let bits = asm.bits32();
        op!(asm, "mov.b32 {bits}, {value};");
        op!(asm, "and.b32 {bits}, {bits}, 0x7fffffff;");
        let finite = asm.test("lt.u32", bits, 0x7f80_0000_u32);
        op!(asm, "@{finite} max.u32 {top}, {top}, {bits};");
    }
}

/// floor(log2(x)) of the bits of a positive normal f32.
pub(super) fn exponent(asm: &mut Asm, bits: Reg) -> Reg {
    let to = asm.bin("shr.u32", bits, 23);
    op!(asm, "sub.s32 {to}, {to}, 127;");
    to
}

/// The exponent of a magnitude's bits, [`NONE`] of zero.
pub(super) fn exponent_or_none(asm: &mut Asm, bits: Reg) -> Reg {
    let exponent = exponent(asm, bits);
    let none = asm.test("eq.u32", bits, 0);
    asm.select(NONE, exponent, none)
}

/// Scaled and rounded to nearest: two fp16 in 32 bits.
pub(super) fn round_pair(asm: &mut Asm, [low, high]: [Reg; 2], factors: [Reg; 2]) -> Reg {
    let scaled = [low, high].map(|value| {
        let once = asm.binf("mul.rn.f32", value, factors[0]);
        asm.binf("mul.rn.f32", once, factors[1])
    });
    let to = asm.bits32();
    op!(asm, "cvt.rn.f16x2.f32 {to}, {}, {};", scaled[1], scaled[0]);
    to
}

/// Stores scaled and rounded elements at an address of fp16.
pub(super) fn store_rounded(asm: &mut Asm, at: Reg, offset: u32, values: &[Reg], factors: [Reg; 2], when: Reg) {
    match *values {
        [a, b, c, d] => {
            let (low, high) = (round_pair(asm, [a, b], factors), round_pair(asm, [c, d], factors));
            op!(asm, "@{when} st.global.v2.b32 [{at}+{offset}], {{{low}, {high}}};");
        }
        _ => {
            for (index, &value) in values.iter().enumerate() {
                let once = asm.binf("mul.rn.f32", value, factors[0]);
                let twice = asm.binf("mul.rn.f32", once, factors[1]);
                let half = asm.bits16();
                op!(asm, "cvt.rn.f16.f32 {half}, {twice};");
                op!(asm, "@{when} st.global.b16 [{at}+{}], {half};", offset + 2 * index as u32);
            }
        }
    }
}

/// How often an input is read.
#[derive(Clone, Copy)]
pub(super) enum Reads {
    /// Once: it must not drive from the second-level cache what the product kernel will read.
    Once,
    Often,
}

/// `count` elements from an address on, zero where `when` is false.
pub(super) fn load(asm: &mut Asm, at: Reg, reads: Reads, count: u32, when: Reg) -> Vec<Reg> {
    let to = asm.floats(count as usize);
    for value in &to {
        op!(asm, "mov.f32 {value}, 0f00000000;");
    }
    let kind = match reads {
        Reads::Once => "cs.nc",
        Reads::Often => "nc",
    };
    match *to {
        [a, b, c, d] => op!(asm, "@{when} ld.global.{kind}.v4.f32 {{{a}, {b}, {c}, {d}}}, [{at}];"),
        [a] => op!(asm, "@{when} ld.global.{kind}.f32 {a}, [{at}];"),
        _ => {}
    }
    to
}

/// Turns a pair back: `(a c0 + b s1, b c1 - a s0)`, where it was turned.
pub(super) fn unrotate(asm: &mut Asm, [a, b]: [Reg; 2], cos: [Reg; 2], sin: [Reg; 2], rotated: Reg) {
    let first = asm.binf("mul.rn.f32", a, cos[0]);
    op!(asm, "fma.rn.f32 {first}, {b}, {}, {first};", sin[1]);
    let (second, minus) = (asm.binf("mul.rn.f32", b, cos[1]), asm.float());
    op!(asm, "neg.f32 {minus}, {a};");
    op!(asm, "fma.rn.f32 {second}, {minus}, {}, {second};", sin[0]);
    op!(asm, "@{rotated} mov.f32 {a}, {first};");
    op!(asm, "@{rotated} mov.f32 {b}, {second};");
}

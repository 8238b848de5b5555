//! Powers of two, and where the kernels leave them for each other.
//!
//! Words of 32 bits in the workspace: `[W_POWER]` and `[X_POWER]` the powers of two that `prep` gave to W and, less that of
//! the token, to X; from `[TOKENS]` that of each token's row of U. What `prep`'s blocks found follows: for each block of
//! tokens the largest exponent of X less the token's power, for each block of weights the largest exponent.

use crate::asm::{Asm, Reg, op};

/// Word of W's power.
pub const W_POWER: u32 = 1;
/// Word of X's power.
pub const X_POWER: u32 = 2;
/// First word of the tokens' powers.
pub const TOKENS: u32 = 16;

/// Stands for the exponent of zero.
pub(crate) const NONE: i32 = -1000;
/// Largest exponent after scaling: 2^15 and above could overflow fp16.
pub(crate) const HIGHEST: i32 = 14;
/// Smallest exponent of a row's or tensor's largest element: 12 binades above fp16's subnormals.
pub(crate) const LOWEST: i32 = -2;
/// Where the largest exponent is put when the usual power does not fit.
pub(crate) const FITTED: i32 = 13;

/// 2^e as an f32, for e in -126..=127.
pub(crate) fn power_of_two(asm: &mut Asm, e: Reg) -> Reg {
    let (bits, to) = (asm.bin("add.s32", e, 127), asm.float());
    op!(asm, "shl.b32 {bits}, {bits}, 23;");
    op!(asm, "mov.b32 {to}, {bits};");
    to
}

/// 2^e as two factors, since an f32 holds less than the sum of two scales may be. Beyond ±252 nothing is left of an f32.
pub(crate) fn two_factors(asm: &mut Asm, e: Reg) -> [Reg; 2] {
    let e = asm.bin("max.s32", e, -252);
    let e = asm.bin("min.s32", e, 252);
    let half = asm.bin("shr.s32", e, 1);
    let rest = asm.bin("sub.s32", e, half);
    [power_of_two(asm, half), power_of_two(asm, rest)]
}

/// `usual` where a largest exponent of `top` fits it, else the power that puts `top` at [`FITTED`].
pub(crate) fn fitting_power(asm: &mut Asm, top: Reg, usual: Reg) -> Reg {
    let fitted = asm.bits32();
    op!(asm, "sub.s32 {fitted}, {FITTED}, {top};");
    let scaled = asm.bin("add.s32", top, usual);
    let (low, high, none) =
        (asm.test("lt.s32", scaled, LOWEST), asm.test("gt.s32", scaled, HIGHEST), asm.test("le.s32", top, NONE));
    let outside = asm.pred();
    op!(asm, "or.pred {outside}, {low}, {high};");
    let power = asm.select(fitted, usual, outside);
    asm.select(usual, power, none)
}

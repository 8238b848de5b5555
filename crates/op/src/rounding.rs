//! What `fast` and `split` do to operands before they are multiplied, in software.
//!
//! A backend computes U in f32 and then multiplies operands of 11 significant bits: an fp16 significand under a power of
//! two that keeps the range of f32. Here the powers of two are free, so only the rounding is left: this is the least
//! error that a backend of that precision can have.

use crate::error::Error;
use crate::problem::{Inputs, Precision, Problem};
use crate::reference::{Gradients, Reference};

/// Bits of an f64 significand (52 stored) past the 11 (10 stored) that an operand keeps.
const DROPPED_BITS: u32 = 42;

/// `value` to 11 significant bits, ties to even. NaN and infinities are kept. f64, because the largest f32 round up to
/// 2^128.
pub fn round11(value: f32) -> f64 {
    if !value.is_finite() {
        return f64::from(value);
    }
    let bits = f64::from(value).to_bits();
    let half = (1 << (DROPPED_BITS - 1)) - 1;
    let odd = (bits >> DROPPED_BITS) & 1;
    f64::from_bits((bits + half + odd) >> DROPPED_BITS << DROPPED_BITS)
}

/// Two terms of 11 significant bits whose sum is within 2^-22 of `value`. The second is zero for NaN and infinities, so
/// that their sum stays what it is.
pub fn split11(value: f32) -> (f64, f64) {
    let high = round11(value);
    if !value.is_finite() {
        return (high, 0.0);
    }
    // Exact: both are multiples of the last place of `value`, and the difference has at most 13 bits.
    let rest = f64::from(value) - high;
    (high, round11(rest as f32))
}

/// The operands that a precision multiplies: `left_high · right_both + left_low · right_high` is the product. In `split`
/// that is the three products high·high + high·low + low·high.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Operand {
    pub(crate) high: f64,
    pub(crate) low: f64,
}

impl Operand {
    pub(crate) fn of(precision: Precision, value: f32) -> Self {
        let (high, low) = match precision {
            Precision::Ieee => (f64::from(value), 0.0),
            Precision::Fast => (round11(value), 0.0),
            Precision::Split => split11(value),
        };
        Self { high, low }
    }
}

/// All requested outputs from operands rounded as `problem.precision` says, U rounded to f32 first, sums in f64.
///
/// # Errors
/// What [`Problem::validate_inputs`] finds.
pub fn backward(problem: &Problem, inputs: &Inputs<'_>) -> Result<Gradients, Error> {
    let reference = Reference::new(problem, inputs)?;
    Ok(Gradients::by_rows(
        problem,
        |tokens| reference.rounded_grad_hidden(tokens),
        |rows| reference.rounded_grad_weight(rows),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_go_to_even_and_specials_stay() {
        assert_eq!(round11(1.0 + 1.0 / 2048.0), 1.0);
        assert_eq!(round11(1.0 + 3.0 / 2048.0), 1.0 + 2.0 / 1024.0);
        assert_eq!(round11(-(1.0 + 1.0 / 2048.0 + 1e-6)), -(1.0 + 1.0 / 1024.0));
        assert_eq!(round11(f32::MAX), 2f64.powi(128));
        assert_eq!(round11(f32::from_bits(1)), 2f64.powi(-149));
        assert_eq!(split11(f32::NEG_INFINITY), (f64::NEG_INFINITY, 0.0));
        assert!(split11(f32::NAN).0.is_nan());
    }

    proptest! {
        #[test]
        fn one_term_is_within_half_a_unit(bits: u32) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let error = (round11(value) - f64::from(value)).abs();
            prop_assert!(error <= f64::from(value).abs() * 2f64.powi(-11));
            prop_assert_eq!(round11(value).to_bits().trailing_zeros().min(42), 42);
        }

        #[test]
        fn two_terms_keep_22_bits(bits: u32) {
            let value = f32::from_bits(bits);
            prop_assume!(value.is_finite());
            let (high, low) = split11(value);
            prop_assert!((high + low - f64::from(value)).abs() <= f64::from(value).abs() * 2f64.powi(-22));
        }
    }
}

//! How far a result may be from the reference, per precision.

use qkv_rope_op::Precision;
use serde::{Deserialize, Serialize};

/// The bounds that a result is held to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Largest `‖out − ref‖₂ / ‖ref‖₂`, from the contract; see [`super::Agreement::conditioned`].
    pub normwise: f64,
    /// Largest `|out − ref| / (|U|·|W|)` of any element. `fast`: two operands rounded to 11 bits are off by at most
    /// 2·2^-11 = 9.8e-4 of each product, and the sum adds little. `ieee`, `split`: five times what a sum of 8192 terms of
    /// one sign is off by, far below a single wrong element (about 1/√N of its magnitude, 2e-2).
    pub componentwise: f64,
    /// Largest bias of a large tensor; see [`Bounds::bias_with_chance`]. Rounded operands give less than 1e-5, truncated
    /// ones 6e-4, one truncated operand of the two 3e-4.
    pub bias: f64,
    /// Largest ratio of elements outside `1.9e-3·rms(ref) + 1e-5·|ref|`.
    pub unmatched: f64,
}

impl Bounds {
    /// Of the root mean square, in the allowance of a matched element.
    pub const MATCH_RMS: f64 = 1.9e-3;
    /// Of the element itself, in the allowance of a matched element.
    pub const MATCH_RELATIVE: f64 = 1e-5;

    /// The bounds of `precision`.
    pub fn of(precision: Precision) -> Self {
        let (componentwise, bias) = match precision {
            Precision::Ieee | Precision::Split => (1e-5, 1e-5),
            Precision::Fast => (1.2e-3, 1e-4),
        };
        Self { normwise: precision.normwise_bound(), componentwise, bias, unmatched: 0.01 }
    }

    /// Largest bias where chance alone gives some: twice that of a large tensor at 1024 elements, no bound at all for a
    /// handful.
    pub fn bias_with_chance(&self, chance: f64) -> f64 {
        self.bias * (1.0 + 32.0 * chance)
    }
}

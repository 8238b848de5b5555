//! Why a result is wrong.

use qkv_rope_op::Tensor;
use serde::{Deserialize, Serialize};

use super::agreement::{Agreement, Place};
use super::bounds::Bounds;

/// One reason to reject a result. The text names the tensor, what was found and what is allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum Failure {
    /// The call returned an error.
    #[error("the call failed: {message}")]
    Call { message: String },
    /// An input has other contents after the call.
    #[error("{tensor}: was changed by the call")]
    InputChanged { tensor: Tensor },
    /// Memory around an output has other contents after the call.
    #[error("{tensor}: memory outside the tensor was written")]
    WrittenOutside { tensor: Tensor },
    /// Non-finite values are not where the reference has them. An element that was never written shows here, because
    /// outputs start as NaN.
    #[error("{tensor}: {count} elements are finite, NaN or infinite where the reference is not, the first at {first}")]
    Misplaced { tensor: Tensor, count: u64, first: Place },
    /// Nothing but zeros.
    #[error("{tensor}: all zeros, the reference is not")]
    AllZero { tensor: Tensor },
    /// The tensor as a whole is too far off.
    #[error("{tensor}: normwise error {found:.2e}, allowed {allowed:.1e}")]
    Normwise { tensor: Tensor, found: f64, allowed: f64 },
    /// One element is too far off.
    #[error("{tensor}: componentwise error {found:.2e} at {place}, allowed {allowed:.1e}")]
    Componentwise { tensor: Tensor, found: f64, allowed: f64, place: Place },
    /// Errors have a preferred sign: operands or sums are truncated instead of rounded.
    #[error("{tensor}: mean signed error {found:.2e}, allowed ±{allowed:.1e}: truncation instead of rounding?")]
    Bias { tensor: Tensor, found: f64, allowed: f64 },
    /// Too many elements are outside the elementwise allowance.
    #[error("{tensor}: {found:.4} of the elements within 1.9e-3·rms + 1e-5·|ref|, needed {needed}")]
    Unmatched { tensor: Tensor, found: f64, needed: f64 },
    /// Inputs whose sums are exact, but other bits.
    #[error("{tensor}: {count} elements differ from the exact sum, the first at {first}")]
    Inexact { tensor: Tensor, count: u64, first: Place },
    /// A second run gave other bits.
    #[error("{tensor}: a second run on the same inputs differs in {count} elements, the first at {first}")]
    Nondeterministic { tensor: Tensor, count: u64, first: Place },
}

impl Agreement {
    /// What of this agreement is outside `bounds`; with `exact`, also any bit that differs. Every comparison is written
    /// so that NaN fails.
    pub fn failures(&self, bounds: &Bounds, exact: bool) -> Vec<Failure> {
        let tensor = self.tensor;
        let mut failures = Vec::new();
        if let Some(first) = self.first_misplaced {
            failures.push(Failure::Misplaced { tensor, count: self.misplaced, first });
        }
        if self.all_zero {
            failures.push(Failure::AllZero { tensor });
        }
        if let (true, Some(first)) = (exact, self.first_inexact) {
            failures.push(Failure::Inexact { tensor, count: self.inexact, first });
        }
        let within = |found: f64, allowed: f64| found <= allowed;
        if !within(self.conditioned, bounds.normwise) {
            failures.push(Failure::Normwise { tensor, found: self.conditioned, allowed: bounds.normwise });
        }
        if let (false, Some(place)) = (within(self.componentwise, bounds.componentwise), self.worst) {
            let (found, allowed) = (self.componentwise, bounds.componentwise);
            failures.push(Failure::Componentwise { tensor, found, allowed, place });
        }
        let allowed = bounds.bias_with_chance(self.bias_chance);
        if !within(self.bias.abs(), allowed) {
            failures.push(Failure::Bias { tensor, found: self.bias, allowed });
        }
        let needed = 1.0 - bounds.unmatched;
        if !within(needed, self.matched) {
            failures.push(Failure::Unmatched { tensor, found: self.matched, needed });
        }
        failures
    }

    /// How much of the normwise bound is left: 1 when exact, 0 at the bound, negative past it.
    pub fn headroom(&self, bounds: &Bounds) -> f64 {
        1.0 - self.conditioned / bounds.normwise
    }
}

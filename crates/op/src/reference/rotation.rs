//! The rotation of one head, backwards for gradients and forwards for the adjoint identity.

use crate::problem::Pairing;

/// The two products whose sum is one element of U.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    own: f64,
    other: f64,
}

impl Terms {
    /// The element of U.
    pub(super) fn value(self) -> f64 {
        self.own + self.other
    }

    /// What rounding errors of the element are relative to, also where the two products cancel.
    pub(super) fn magnitude(self) -> f64 {
        self.own.abs() + self.other.abs()
    }
}

/// Element `element` of a head of U, from the head's gradient and its token's tables (R elements each; empty for value
/// heads, which are not rotated):
///
/// - first of a pair: `u[i] = g[i]*c[i] + g[j]*s[j]`
/// - second of a pair: `u[j] = g[j]*c[j] - g[i]*s[i]`
/// - at or past R: `u[k] = g[k]`
pub(super) fn unrotated(pairing: Pairing, gradient: &[f32], cos: &[f32], sin: &[f32], element: usize) -> Terms {
    let own = f64::from(gradient[element]);
    if element >= cos.len() {
        return Terms { own, other: 0.0 };
    }
    let partner = pairing.partner(element, cos.len());
    let share = f64::from(gradient[partner.index]) * f64::from(sin[partner.index]);
    Terms { own: own * f64::from(cos[element]), other: if partner.is_second { share } else { -share } }
}

/// The forward rotation of a head: `y = c*x + s*P(x)`. Written without [`Pairing::partner`], so that a mistake there
/// breaks the adjoint identity.
pub(super) fn rotate(pairing: Pairing, head: &mut [f64], cos: &[f32], sin: &[f32]) {
    let half = cos.len() / 2;
    for pair in 0..half {
        let (first, second) = match pairing {
            Pairing::HalfSplit => (pair, pair + half),
            Pairing::Interleaved => (2 * pair, 2 * pair + 1),
        };
        let (x, y) = (head[first], head[second]);
        head[first] = f64::from(cos[first]) * x - f64::from(sin[first]) * y;
        head[second] = f64::from(cos[second]) * y + f64::from(sin[second]) * x;
    }
}

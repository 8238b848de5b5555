//! What kind of numbers the inputs are.

use serde::{Deserialize, Serialize};

use super::stream::{normal, unit};
use crate::error::Tensor;

/// A distribution of all nine inputs. Each exists to find one class of mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Recipe {
    /// Gradients and hidden states ~ N(0, 1), weights ~ N(0, 1)/√E, cos and sin of independent N(0, 1) draws clamped
    /// to ±π: no rotation identity holds.
    #[default]
    Benchmark,
    /// Gradients ±1 or ±2, tables 0, ±1/2 or ±1, weights and hidden states ±1/2 or ±1: every sum is exact in f32 in any
    /// order while T and N are at most 2^20, so results are compared bit for bit.
    Exact,
    /// Gradients ~ 2^100·N(0, 1), weights and hidden states ~ 2^17·N(0, 1): overflows fp16 at once, f32 not before
    /// sums of some 100 000 terms.
    Huge,
    /// Gradients ~ 2^-100·N(0, 1), weights and hidden states ~ 2^-27·N(0, 1): single products are subnormal in f32,
    /// their sums mostly not.
    Tiny,
    /// As `benchmark`, with each token's gradients times a power of two between 2^-17 and 2^17 (10 decades): one scale
    /// per tensor is not enough.
    Spread,
    /// All inputs and all of U positive, so nothing cancels: a biased rounding adds up instead of averaging out.
    Positive,
    /// As `benchmark`, with a NaN or an infinity planted at a few seeded places.
    NonFinite,
}

/// A name that is no recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found recipe {found:?}, expected one of {}", Recipe::ALL.map(Recipe::name).join(", "))]
pub struct UnknownRecipe {
    /// What was given.
    pub found: String,
}

impl Recipe {
    /// Every recipe.
    pub const ALL: [Self; 7] =
        [Self::Benchmark, Self::Exact, Self::Huge, Self::Tiny, Self::Spread, Self::Positive, Self::NonFinite];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Benchmark => "benchmark",
            Self::Exact => "exact",
            Self::Huge => "huge",
            Self::Tiny => "tiny",
            Self::Spread => "spread",
            Self::Positive => "positive",
            Self::NonFinite => "non-finite",
        }
    }

    /// One line for a list of choices.
    pub fn about(self) -> &'static str {
        match self {
            Self::Benchmark => "normal numbers, cos and sin of independent angles",
            Self::Exact => "small powers of two whose sums are exact in f32",
            Self::Huge => "magnitudes near 1e30 and 1e5",
            Self::Tiny => "magnitudes near 1e-30 and 1e-8, single products subnormal",
            Self::Spread => "token magnitudes over 10 decades",
            Self::Positive => "nothing cancels, so a biased rounding shows",
            Self::NonFinite => "benchmark numbers with a few NaN and infinities planted",
        }
    }

    /// The value that `word` stands for, before token scales and planted values.
    pub(super) fn value(self, tensor: Tensor, hidden: usize) -> impl Fn(u32) -> f32 + Sync {
        let kind = Kind::of(tensor);
        let weight_scale = 1.0 / (hidden.max(1) as f64).sqrt();
        move |word| match self {
            Self::Benchmark | Self::Spread | Self::NonFinite => benchmark(kind, weight_scale, word),
            Self::Exact => exact(kind, word),
            Self::Huge => scaled(kind, word, 2f64.powi(100), 2f64.powi(17)),
            Self::Tiny => scaled(kind, word, 2f64.powi(-100), 2f64.powi(-27)),
            Self::Positive => positive(kind, weight_scale, word),
        }
    }
}

impl std::fmt::Display for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Recipe {
    type Err = UnknownRecipe;

    fn from_str(name: &str) -> Result<Self, UnknownRecipe> {
        let found = Self::ALL.into_iter().find(|recipe| recipe.name() == name);
        found.ok_or_else(|| UnknownRecipe { found: name.to_owned() })
    }
}

/// The role of an input in the distribution.
#[derive(Clone, Copy)]
enum Kind {
    Gradient,
    Hidden,
    Weight,
    Cos,
    Sin,
}

impl Kind {
    fn of(tensor: Tensor) -> Self {
        match tensor {
            Tensor::GradQuery | Tensor::GradKey | Tensor::GradValue => Self::Gradient,
            Tensor::QWeight | Tensor::KWeight | Tensor::VWeight => Self::Weight,
            Tensor::Cos => Self::Cos,
            Tensor::Sin => Self::Sin,
            _ => Self::Hidden,
        }
    }
}

fn benchmark(kind: Kind, weight_scale: f64, word: u32) -> f32 {
    let value = match kind {
        Kind::Gradient | Kind::Hidden => normal(word),
        Kind::Weight => normal(word) * weight_scale,
        Kind::Cos => libm::cos(angle(word)),
        Kind::Sin => libm::sin(angle(word)),
    };
    value as f32
}

fn angle(word: u32) -> f64 {
    normal(word).clamp(-std::f64::consts::PI, std::f64::consts::PI)
}

fn exact(kind: Kind, word: u32) -> f32 {
    let sign = if word & 1 == 0 { 1.0 } else { -1.0 };
    let choice = (word >> 1) % 3;
    let magnitude = match kind {
        Kind::Gradient => [1.0, 2.0, 1.0][choice as usize],
        Kind::Hidden | Kind::Weight => [0.5, 1.0, 0.5][choice as usize],
        Kind::Cos | Kind::Sin => [0.0, 0.5, 1.0][choice as usize],
    };
    sign * magnitude
}

fn scaled(kind: Kind, word: u32, gradient: f64, factor: f64) -> f32 {
    match kind {
        Kind::Gradient => (normal(word) * gradient) as f32,
        Kind::Hidden | Kind::Weight => (normal(word) * factor) as f32,
        Kind::Cos | Kind::Sin => benchmark(kind, 1.0, word),
    }
}

/// Tables and gradients are bounded so that the smallest U is 1·0.75 - 2·0.25 = 0.25.
fn positive(kind: Kind, weight_scale: f64, word: u32) -> f32 {
    let value = match kind {
        Kind::Gradient => 1.0 + unit(word),
        Kind::Hidden => normal(word).abs(),
        Kind::Weight => normal(word).abs() * weight_scale,
        Kind::Cos => 0.75 + 0.25 * unit(word),
        Kind::Sin => 0.25 * unit(word),
    };
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_through_text_and_serde() {
        for recipe in Recipe::ALL {
            assert_eq!(recipe.name().parse(), Ok(recipe));
            assert_eq!(serde_json::to_value(recipe).unwrap(), recipe.name());
        }
        let error = "Huge".parse::<Recipe>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "found recipe \"Huge\", expected one of benchmark, exact, huge, tiny, spread, positive, non-finite"
        );
    }
}

//! Two implementations beside each other: samples as data, and what may be concluded from them.

use qkv_rope_op::Problem;
use serde::{Deserialize, Serialize};

use crate::statistics::{Interval, Pair, geometric_mean_of_ratios, ratio_of_medians};

/// Names this layout; a reader refuses others.
pub const SCHEMA: &str = "kernelproof.comparison/1";

/// One case: times of A, of B, and of A once more, in turns on the same inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    /// The suite's name of the case, or its sizes.
    pub name: String,
    /// Sizes, pairing, precision.
    pub problem: Problem,
    /// Samples of A in integer nanoseconds.
    pub first_ns: Vec<u64>,
    /// Samples of B; index i of all three belongs to the same inputs.
    pub second_ns: Vec<u64>,
    /// Samples of A's second instance.
    pub again_ns: Vec<u64>,
}

/// What may be said of two implementations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// A takes less time: the whole interval of time(B) / time(A) is above 1 by more than the noise.
    FirstIsFaster,
    /// B takes less time.
    SecondIsFaster,
    /// The interval reaches 1, or comes nearer to it than the noise.
    NoDifference,
}

/// The conclusion from all cases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Conclusion {
    /// Geometric mean over cases of time(B) / time(A).
    pub ratio: Interval,
    /// The same of A against itself.
    pub noise: Interval,
    /// What follows.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Compared {
    fn ratio_pair(&self) -> Pair<'_> {
        Pair { numerator: &self.second_ns, denominator: &self.first_ns }
    }

    fn noise_pair(&self) -> Pair<'_> {
        Pair { numerator: &self.again_ns, denominator: &self.first_ns }
    }

    /// time(B) / time(A) with its interval.
    pub fn ratio(&self) -> Option<Interval> {
        ratio_of_medians(self.ratio_pair())
    }

    /// A against itself.
    pub fn noise(&self) -> Option<Interval> {
        ratio_of_medians(self.noise_pair())
    }

    /// What may be said of this case alone.
    pub fn verdict(&self) -> Option<Verdict> {
        Some(Verdict::of(self.ratio()?, self.noise()?))
    }
}

impl Verdict {
    /// From the interval of time(B) / time(A) and that of A against itself: the farthest that noise reached from 1 is the
    /// floor that a difference must exceed.
    pub fn of(ratio: Interval, noise: Interval) -> Self {
        let floor = floor(noise);
        if ratio.low > 1.0 + floor {
            Self::FirstIsFaster
        } else if ratio.high < 1.0 - floor {
            Self::SecondIsFaster
        } else {
            Self::NoDifference
        }
    }
}

/// The farthest that an interval of A against itself is from 1.
pub fn floor(noise: Interval) -> f64 {
    (noise.high - 1.0).abs().max((noise.low - 1.0).abs())
}

/// What may be concluded from all cases together; `None` when a case has no samples.
pub fn conclude(cases: &[Compared]) -> Option<Conclusion> {
    let ratios: Vec<Pair<'_>> = cases.iter().map(Compared::ratio_pair).collect();
    let noises: Vec<Pair<'_>> = cases.iter().map(Compared::noise_pair).collect();
    let (ratio, noise) = (geometric_mean_of_ratios(&ratios)?, geometric_mean_of_ratios(&noises)?);
    Some(Conclusion { ratio, noise, verdict: Verdict::of(ratio, noise) })
}

#[cfg(test)]
mod tests {
    use qkv_rope_op::SUITE;

    use super::*;

    /// Times that waver by 1 % around `second` % of A's.
    fn compared(second: u64) -> Compared {
        let waver =
            |scale: u64, step: u64| (0..50).map(|round| scale * (995 + round * step % 11)).collect::<Vec<u64>>();
        let (first_ns, second_ns, again_ns) = (waver(100, 3), waver(second, 7), waver(100, 5));
        let problem = Problem::new(SUITE[0].dims());
        Compared { name: SUITE[0].name(), problem, first_ns, second_ns, again_ns }
    }

    #[test]
    fn a_difference_counts_when_it_exceeds_the_noise() {
        assert_eq!(compared(120).verdict(), Some(Verdict::FirstIsFaster));
        assert_eq!(compared(80).verdict(), Some(Verdict::SecondIsFaster));
        assert_eq!(compared(100).verdict(), Some(Verdict::NoDifference));
        let conclusion = conclude(&[compared(120), compared(120)]).expect("there are samples");
        assert_eq!(conclusion.verdict, Verdict::FirstIsFaster);
        assert!((conclusion.ratio.estimate - 1.2).abs() < 0.01);
    }

    #[test]
    fn a_difference_within_the_noise_is_none() {
        let interval = |low, high| Interval { estimate: (low + high) / 2.0, low, high };
        assert_eq!(Verdict::of(interval(1.01, 1.02), interval(0.98, 1.0)), Verdict::NoDifference);
        assert_eq!(Verdict::of(interval(1.03, 1.04), interval(0.98, 1.0)), Verdict::FirstIsFaster);
        assert_eq!(conclude(&[]), None);
    }
}

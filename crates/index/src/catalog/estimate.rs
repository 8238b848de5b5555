//! Intervals in closed form, so that ten thousand runs can be ranked when they are read.
//!
//! The interval of a median is that of order statistics: distribution-free. Means of logarithms and ratios of independent
//! quantities combine the distances to each end separately, as squares (Zou and Donner, Statistics in Medicine 27, 2008, "MOVER").
//! `kernelproof replay` and `compare` use the bootstrap; a test holds both together.

use super::run::{Estimate, SampleFacts};

/// 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.96;

impl SampleFacts {
    /// The summary of samples in nanoseconds; `None` without any.
    pub fn of(samples_ns: &[u64]) -> Option<Self> {
        let quartiles = kernelproof_eval::statistics::Quartiles::of(samples_ns)?;
        let mut sorted = samples_ns.to_vec();
        sorted.sort_unstable();
        let count = sorted.len();
        // Ranks 18 and 33 of 50, as the binomial distribution says; the ends of all samples below 6.
        let rank = ((count as f64 + 1.0) / 2.0 - NORMAL / 2.0 * (count as f64).sqrt()).floor().max(1.0) as usize;
        Some(Self {
            count: count as u64,
            min_ns: *sorted.first()?,
            lower_ns: quartiles.lower,
            median_ns: Estimate {
                estimate: quartiles.median,
                low: *sorted.get(rank - 1)? as f64,
                high: *sorted.get(count - rank)? as f64,
            },
            upper_ns: quartiles.upper,
            max_ns: *sorted.last()?,
        })
    }
}

impl Estimate {
    /// A quantity known exactly.
    pub fn exact(value: f64) -> Self {
        Self { estimate: value, low: value, high: value }
    }

    /// This over `other`, both independent. `None` unless all ends are positive.
    pub fn over(self, other: Self) -> Option<Self> {
        let (up, down) = (self.logarithm()?, other.logarithm()?);
        let estimate = up.estimate - down.estimate;
        let low = up.below.hypot(down.above);
        let high = up.above.hypot(down.below);
        Some(Self { estimate: estimate.exp(), low: (estimate - low).exp(), high: (estimate + high).exp() })
    }

    /// The geometric mean of independent quantities. `None` without any, and unless all ends are positive.
    pub fn geometric_mean(values: impl IntoIterator<Item = Self>) -> Option<Self> {
        let (mut count, mut sum, mut below, mut above) = (0.0, 0.0, 0.0, 0.0);
        for value in values {
            let logarithm = value.logarithm()?;
            count += 1.0;
            sum += logarithm.estimate;
            below += logarithm.below * logarithm.below;
            above += logarithm.above * logarithm.above;
        }
        if count == 0.0 {
            return None;
        }
        let (estimate, below, above): (f64, f64, f64) =
            (sum / count, f64::sqrt(below) / count, f64::sqrt(above) / count);
        Some(Self { estimate: estimate.exp(), low: (estimate - below).exp(), high: (estimate + above).exp() })
    }

    /// Whether this ratio is apart from 1 by more than `share`.
    pub fn differs_by(self, share: f64) -> bool {
        self.high < 1.0 / (1.0 + share) || self.low > 1.0 + share
    }

    fn logarithm(self) -> Option<Logarithm> {
        let Self { estimate, low, high } = self;
        let usable = low > 0.0 && estimate >= low && high >= estimate && high.is_finite();
        let estimate = estimate.ln();
        usable.then(|| Logarithm { estimate, below: estimate - low.ln(), above: high.ln() - estimate })
    }
}

/// A logarithm and how far its ends are below and above.
struct Logarithm {
    estimate: f64,
    below: f64,
    above: f64,
}

#[cfg(test)]
mod tests {
    use kernelproof_eval::statistics::{Pair, geometric_mean_of_separate_ratios};
    use rand_like::Draws;

    use super::*;

    /// A generator of its own: this crate depends on none.
    mod rand_like {
        pub(super) struct Draws(pub(super) u64);

        impl Draws {
            /// Numbers from `from` up to `from + width` (xorshift).
            pub(super) fn next(&mut self, from: u64, width: u64) -> u64 {
                self.0 ^= self.0 << 13;
                self.0 ^= self.0 >> 7;
                self.0 ^= self.0 << 17;
                from + self.0 % width
            }
        }
    }

    #[test]
    fn the_ends_of_a_median_are_order_statistics() {
        let samples: Vec<u64> = (1..=50).collect();
        let facts = SampleFacts::of(&samples).expect("there are samples");
        assert_eq!(facts.median_ns, Estimate { estimate: 25.5, low: 18.0, high: 33.0 });
        assert_eq!((facts.min_ns, facts.max_ns, facts.count), (1, 50, 50));
        let few = SampleFacts::of(&[3, 1, 2]).expect("there are samples");
        assert_eq!(few.median_ns, Estimate { estimate: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(SampleFacts::of(&[]), None);
    }

    #[test]
    fn a_time_of_nothing_has_no_ratio() {
        let zero = SampleFacts::of(&[0; 50]).expect("there are samples").median_ns;
        assert_eq!(Estimate::exact(1.0).over(zero), None);
        assert_eq!(zero.over(Estimate::exact(1.0)), None);
        assert_eq!(Estimate::geometric_mean([Estimate::exact(1.0), zero]), None);
        assert_eq!(Estimate::geometric_mean([]), None);
        assert_eq!(Estimate::exact(f64::NAN).over(Estimate::exact(1.0)), None);
    }

    #[test]
    fn closed_form_and_bootstrap_agree() {
        let mut draws = Draws(88_172_645_463_325_252);
        for _ in 0..4 {
            let mut samples = |scale: u64| (0..50).map(|_| draws.next(scale * 1000, scale * 100)).collect::<Vec<u64>>();
            let cases: Vec<(Vec<u64>, Vec<u64>)> =
                (1..=16).map(|scale| (samples(3 * scale), samples(2 * scale))).collect();
            let pairs: Vec<Pair<'_>> =
                cases.iter().map(|(one, other)| Pair { numerator: one, denominator: other }).collect();
            let bootstrap = geometric_mean_of_separate_ratios(&pairs).expect("all have times");
            let ratio = |(one, other): &(Vec<u64>, Vec<u64>)| {
                SampleFacts::of(one)?.median_ns.over(SampleFacts::of(other)?.median_ns)
            };
            let ours = Estimate::geometric_mean(cases.iter().filter_map(ratio)).expect("all have times");
            assert!((ours.estimate / bootstrap.estimate - 1.0).abs() < 1e-9);
            let width = (ours.high - ours.low) / (bootstrap.high - bootstrap.low);
            assert!((0.7..1.5).contains(&width), "{ours:?} and {bootstrap:?}");
        }
    }
}

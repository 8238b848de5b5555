//! Statistics of samples, computed when they are read and never stored.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

/// Resamples behind an interval; its ends move by about 1 % of its width beyond this.
const RESAMPLES: usize = 2000;

/// Rounds that are drawn together. Neighbouring rounds share the state of the machine, and contestants of a duel rotate
/// their order with period 3, so rounds are not independent: twice that period keeps both.
const BLOCK_ROUNDS: usize = 6;

/// Fewer rounds than this have too few blocks to draw from, and are drawn one by one.
const BLOCKS_FROM: usize = 5 * BLOCK_ROUNDS;

/// The same samples give the same interval on every machine.
const SEED: u64 = 200;

/// Probability that a 95 % interval leaves out on each side.
const TAIL: f64 = 0.025;

/// Median and quartiles of samples, in their unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quartiles {
    /// A quarter of the samples is not above it.
    pub lower: f64,
    /// Half of the samples is not above it.
    pub median: f64,
    /// Three quarters of the samples are not above it.
    pub upper: f64,
}

impl Quartiles {
    /// Quartiles with linear interpolation between neighbours (type 7 of Hyndman and Fan, the default of R and NumPy).
    /// `None` without samples.
    pub fn of(samples: &[u64]) -> Option<Self> {
        let mut sorted: Vec<f64> = samples.iter().map(|&sample| sample as f64).collect();
        sorted.sort_by(f64::total_cmp);
        Some(Self { lower: quantile(&sorted, 0.25)?, median: quantile(&sorted, 0.5)?, upper: quantile(&sorted, 0.75)? })
    }
}

/// The middle of the samples; the mean of the two middle ones when their number is even. `None` without samples.
pub fn median(samples: &[u64]) -> Option<f64> {
    Quartiles::of(samples).map(|quartiles| quartiles.median)
}

/// The geometric mean. `None` without values or when one is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|&value| value.is_nan() || value <= 0.0) {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// An estimate with its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The statistic of the samples themselves.
    pub estimate: f64,
    /// 2.5 % of the resamples are below it.
    pub low: f64,
    /// 2.5 % of the resamples are above it.
    pub high: f64,
}

/// Samples of two contestants that were timed in turns; index i of both belongs to one round.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// Samples above the fraction bar.
    pub numerator: &'a [u64],
    /// Samples below the fraction bar.
    pub denominator: &'a [u64],
}

impl Pair<'_> {
    /// Rounds that both have.
    fn rounds(&self) -> usize {
        self.numerator.len().min(self.denominator.len())
    }

    fn ratio(&self) -> Option<f64> {
        let rounds = self.rounds();
        let ratio = median(&self.numerator[..rounds])? / median(&self.denominator[..rounds])?;
        ratio.is_finite().then_some(ratio)
    }

    /// The ratio of medians over blocks of rounds drawn with replacement, the last round followed by the first; both
    /// contestants of a round are drawn together, so that what slowed both cancels.
    fn resampled(&self, rng: &mut impl Rng) -> Option<f64> {
        let rounds = self.rounds();
        let block = if rounds < BLOCKS_FROM { 1 } else { BLOCK_ROUNDS };
        let blocks = (0..rounds.div_ceil(block)).flat_map(|_| {
            let first = rng.random_range(0..rounds);
            (first..first + block).map(move |round| round % rounds)
        });
        let drawn: Vec<usize> = blocks.take(rounds).collect();
        let middle = |samples: &[u64]| {
            let mut values: Vec<u64> = drawn.iter().map(|&round| samples[round]).collect();
            middle_of(&mut values)
        };
        Some(middle(self.numerator)? / middle(self.denominator)?)
    }

    fn separate_ratio(&self) -> Option<f64> {
        let ratio = median(self.numerator)? / median(self.denominator)?;
        ratio.is_finite().then_some(ratio)
    }

    /// The ratio of medians of samples drawn with replacement, each side for itself.
    fn resampled_apart(&self, rng: &mut impl Rng) -> Option<f64> {
        let mut middle = |samples: &[u64]| {
            let mut values: Vec<u64> =
                (0..samples.len()).map(|_| samples[rng.random_range(0..samples.len())]).collect();
            middle_of(&mut values)
        };
        Some(middle(self.numerator)? / middle(self.denominator)?)
    }
}

/// median(numerator) / median(denominator) with an interval of that ratio. `None` when a side has no samples or the
/// denominator's median is 0.
pub fn ratio_of_medians(pair: Pair<'_>) -> Option<Interval> {
    geometric_mean_of_ratios(&[pair])
}

/// The median over rounds of the ratio inside a round, so that what changes from round to round for both cancels.
/// `None` when a side has no samples.
pub fn median_of_ratios(pair: Pair<'_>) -> Option<f64> {
    let rounds = pair.numerator.iter().zip(pair.denominator);
    let mut ratios: Vec<f64> = rounds.map(|(&numerator, &denominator)| numerator as f64 / denominator as f64).collect();
    ratios.sort_by(f64::total_cmp);
    quantile(&ratios, 0.5)
}

/// The geometric mean over cases of the ratio of medians, with its interval; cases are resampled independently.
/// `None` when any case has no ratio.
pub fn geometric_mean_of_ratios(cases: &[Pair<'_>]) -> Option<Interval> {
    bootstrap(cases, Pair::ratio, Pair::resampled)
}

/// As [`geometric_mean_of_ratios`] where the two sides were timed in runs of their own: their samples are resampled
/// apart, and may differ in number.
pub fn geometric_mean_of_separate_ratios(cases: &[Pair<'_>]) -> Option<Interval> {
    bootstrap(cases, Pair::separate_ratio, Pair::resampled_apart)
}

fn bootstrap<'a>(
    cases: &[Pair<'a>],
    ratio: impl Fn(&Pair<'a>) -> Option<f64>,
    resample: impl Fn(&Pair<'a>, &mut ChaCha8Rng) -> Option<f64>,
) -> Option<Interval> {
    let ratios: Vec<f64> = cases.iter().map(ratio).collect::<Option<_>>()?;
    let estimate = geometric_mean(&ratios)?;
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut resampled = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let ratios: Vec<f64> = cases.iter().map(|pair| resample(pair, &mut rng)).collect::<Option<_>>()?;
        resampled.push(geometric_mean(&ratios)?);
    }
    resampled.sort_by(f64::total_cmp);
    Some(Interval { estimate, low: quantile(&resampled, TAIL)?, high: quantile(&resampled, 1.0 - TAIL)? })
}

/// As [`median`], in linear time; reorders `values`.
fn middle_of(values: &mut [u64]) -> Option<f64> {
    let half = values.len() / 2;
    if values.is_empty() {
        return None;
    }
    let even = values.len().is_multiple_of(2);
    let (below, &mut middle, _) = values.select_nth_unstable(half);
    match below.iter().max() {
        Some(&left) if even => Some((left as f64 + middle as f64) / 2.0),
        _ => Some(middle as f64),
    }
}

fn quantile(sorted: &[f64], probability: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = probability * last as f64;
    let below = position.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_drift_that_both_share_cancels_inside_rounds() {
        let pair = Pair { numerator: &[10, 20, 40], denominator: &[5, 10, 20] };
        assert_eq!(median_of_ratios(pair), Some(2.0));
        assert_eq!(median_of_ratios(Pair { numerator: &[1], denominator: &[] }), None);
    }

    #[test]
    fn quartiles_are_those_of_numpy() {
        let quartiles = Quartiles::of(&[7, 15, 36, 39, 40, 41]).expect("there are samples");
        assert_eq!(quartiles, Quartiles { lower: 20.25, median: 37.5, upper: 39.75 });
        assert_eq!(Quartiles::of(&[]), None);
        assert_eq!(median(&[3]), Some(3.0));
    }

    #[test]
    fn geometric_means_refuse_what_has_none() {
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[1.0, f64::NAN]), None);
        let mean = geometric_mean(&[2.0, 8.0]).expect("both are positive");
        assert!((mean - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_constant_ratio_has_an_interval_of_no_width() {
        let denominator = [100, 110, 120, 5000];
        let numerator = denominator.map(|time| 2 * time);
        let interval = ratio_of_medians(Pair { numerator: &numerator, denominator: &denominator }).expect("a ratio");
        for value in [interval.estimate, interval.low, interval.high] {
            assert!((value - 2.0).abs() < 1e-12, "{interval:?}");
        }
    }

    #[test]
    fn separate_runs_need_not_have_the_same_number_of_samples() {
        let pair = Pair { numerator: &[20, 22, 21, 19, 20], denominator: &[10, 10, 11] };
        let interval = geometric_mean_of_separate_ratios(&[pair]).expect("a ratio");
        assert!((interval.estimate - 2.0).abs() < 1e-12, "{interval:?}");
        assert!(interval.low < 2.0 && interval.high > 2.0 && interval.high < 2.3, "{interval:?}");
        assert_eq!(geometric_mean_of_separate_ratios(&[Pair { numerator: &[], ..pair }]), None);
    }

    #[test]
    fn no_ratio_without_samples_or_with_a_zero_time() {
        let pair = |numerator, denominator| ratio_of_medians(Pair { numerator, denominator });
        assert_eq!(pair(&[], &[1]), None);
        assert_eq!(pair(&[1], &[]), None);
        assert_eq!(pair(&[1], &[0]), None);
        assert_eq!(geometric_mean_of_ratios(&[]), None);
    }

    #[test]
    fn the_interval_covers_the_true_ratio_about_as_often_as_it_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut covered = 0;
        for _ in 0..100 {
            let mut draw = |scale: u64| -> Vec<u64> { (0..40).map(|_| scale * rng.random_range(900..1100)).collect() };
            let (numerator, denominator) = (draw(3), draw(2));
            let interval =
                ratio_of_medians(Pair { numerator: &numerator, denominator: &denominator }).expect("a ratio");
            covered += u32::from(interval.low <= 1.5 && 1.5 <= interval.high);
        }
        assert!((88..=100).contains(&covered), "covered {covered} of 100");
    }

    #[test]
    fn rounds_that_depend_on_their_neighbours_do_not_make_intervals_too_narrow() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut covered = 0;
        for _ in 0..100 {
            // Each side drifts by itself, for some rounds in the same direction.
            let mut drift = || {
                let mut level = 0_i64;
                let step = |_| {
                    level = level * 7 / 10 + rng.random_range(-40..=40);
                    u64::try_from(1000 + level).expect("the level stays within 134")
                };
                (0..50).map(step).collect::<Vec<u64>>()
            };
            let (numerator, denominator) = (drift(), drift());
            let interval =
                ratio_of_medians(Pair { numerator: &numerator, denominator: &denominator }).expect("a ratio");
            covered += u32::from(interval.low <= 1.0 && 1.0 <= interval.high);
        }
        assert!(covered >= 85, "covered {covered} of 100");
    }

    proptest! {
        #[test]
        fn both_medians_agree(mut values in prop::collection::vec(0_u64..1 << 50, 1..60)) {
            prop_assert_eq!(median(&values), middle_of(&mut values));
        }

        #[test]
        fn the_interval_holds_the_estimate_between_extremes(
            rounds in prop::collection::vec((1_u64..1 << 40, 1_u64..1 << 40), 1..30),
        ) {
            let (numerator, denominator): (Vec<u64>, Vec<u64>) = rounds.into_iter().unzip();
            let pair = Pair { numerator: &numerator, denominator: &denominator };
            let first = ratio_of_medians(pair).expect("a ratio");
            prop_assert!(first.low <= first.high);
            prop_assert_eq!(first, ratio_of_medians(pair).expect("a ratio"));
        }
    }
}

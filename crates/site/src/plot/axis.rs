//! Axes: where a value lies, and which values are written beside it.

/// A linear or logarithmic axis between two values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Axis {
    /// Values from `low` to `high` lie from `from` to `to`.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, from, to, logarithmic: false }
    }

    /// The same with equal distances for equal ratios; both ends must be positive.
    pub(super) fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low * 2.0 };
        Self { low: low.ln(), high: high.ln(), from, to, logarithmic: true }
    }

    /// Where `value` lies; values beyond an end lie on it.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// About `count` round values between the ends: 1, 2 or 5 times a power of ten apart, or powers themselves on a
    /// logarithmic axis that is long enough.
    pub(super) fn ticks(&self, count: usize) -> Vec<f64> {
        if self.logarithmic { self.ticks_logarithmic(count) } else { steps(self.low, self.high, count) }
    }

    fn ticks_logarithmic(&self, count: usize) -> Vec<f64> {
        let (low, high) = (self.low.exp(), self.high.exp());
        if high / low < 8.0 {
            return steps(low, high, count);
        }
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(low.log10().floor());
        while power <= high {
            let digits: &[f64] = if high / low > 1e4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            ticks.extend(digits.iter().map(|digit| digit * power).filter(|tick| *tick >= low && *tick <= high));
            power *= 10.0;
        }
        ticks
    }
}

fn steps(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0);
    let step = factor * power;
    let first = (low / step).ceil();
    let last = (high / step).floor();
    let ticks = (0..=((last - first).max(0.0) as usize)).map(|index| (first + index as f64) * step);
    ticks.take_while(|tick| *tick <= high * (1.0 + 1e-12) || *tick <= high + step * 1e-9).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(Axis::linear(0.0, 10.0, 0.0, 1.0).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Axis::linear(-3.0, 3.0, 0.0, 1.0).ticks(3), [-2.0, 0.0, 2.0]);
        assert_eq!(Axis::logarithmic(1.0, 100.0, 0.0, 1.0).ticks(5), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let narrow = Axis::logarithmic(0.9, 2.6, 0.0, 1.0).ticks(4);
        assert_eq!(narrow, [1.0, 1.5, 2.0, 2.5]);
    }

    #[test]
    fn equal_ends_and_values_beyond_them_are_no_trouble() {
        let axis = Axis::linear(5.0, 5.0, 0.0, 100.0);
        assert!((axis.at(5.0) - 0.0).abs() < 1e-9 && (axis.at(99.0) - 100.0).abs() < 1e-9);
        let axis = Axis::logarithmic(1.0, 100.0, 0.0, 100.0);
        assert!((axis.at(10.0) - 50.0).abs() < 1e-9 && axis.at(0.0).abs() < 1e-9);
    }
}

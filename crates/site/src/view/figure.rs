//! Quantities with intervals.

use kernelproof_index::catalog::Estimate;
use serde::Serialize;
use utoipa::ToSchema;

use crate::display::{self, Shown};

/// A quantity with its 95 % interval, in the unit that the field's name ends with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, ToSchema)]
pub struct Interval {
    /// The statistic of the samples.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl From<Estimate> for Interval {
    fn from(estimate: Estimate) -> Self {
        let Estimate { estimate, low, high } = estimate;
        Self { estimate, low, high }
    }
}

impl Interval {
    fn half_width(&self) -> Option<f64> {
        Some((self.high - self.low) / 2.0).filter(|half| *half > 0.0)
    }

    /// As a time, its unit in ns.
    pub fn time(&self) -> Shown {
        display::time(self.estimate, self.half_width())
    }

    /// The interval of a time, for those who point at it.
    pub fn times(&self) -> String {
        let (unit, scale) = display::time_unit(self.estimate);
        let finer = self.half_width().map(|half| half / scale / 10.0);
        let end = |ns: f64| display::digits(ns / scale, finer);
        format!("95 % interval {} to {} {unit}", end(self.low), end(self.high))
    }

    /// As a ratio.
    pub fn ratio(&self) -> Shown {
        display::ratio(self.estimate, self.half_width())
    }

    /// The interval of a ratio.
    pub fn ratios(&self) -> String {
        let finer = self.half_width().map(|half| half / 10.0);
        let end = |value: f64| display::digits(value, finer);
        format!("95 % interval {} to {}", end(self.low), end(self.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_have_a_digit_more_than_the_middle() {
        let interval = Interval { estimate: 98_457_829.6, low: 97_900_000.0, high: 99_300_000.0 };
        assert_eq!(interval.time().digits, "98.5");
        assert_eq!(interval.times(), "95 % interval 97.90 to 99.30 ms");
        let exact = Interval { estimate: 1.0, low: 1.0, high: 1.0 };
        assert_eq!(exact.ratio().digits, "1.00");
    }
}

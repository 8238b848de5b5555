//! How stored values are shown. Each is stored in one unit; here it gets the unit and the digits that a reader needs.

use std::fmt;

/// Between a number and its unit, so that they stay on one line.
const SPACE: char = '\u{202f}';

/// Digits that are shown of a value without an interval.
const DIGITS_WITHOUT_INTERVAL: i32 = 3;

/// A number with its unit, as people read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The digits.
    pub digits: String,
    /// The unit; empty for plain numbers.
    pub unit: &'static str,
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            "" => f.write_str(&self.digits),
            unit => write!(f, "{}{SPACE}{unit}", self.digits),
        }
    }
}

/// A time in ns, in the unit that leaves one to three digits before the point. With half the width of an interval, the
/// last digit shown is the first one that the interval leaves uncertain.
pub fn time(ns: f64, half_width_ns: Option<f64>) -> Shown {
    let (unit, scale) = time_unit(ns);
    Shown { digits: digits(ns / scale, half_width_ns.map(|half| half / scale)), unit }
}

/// The unit that a time is shown in, and how many ns it has.
pub fn time_unit(ns: f64) -> (&'static str, f64) {
    match ns.abs() {
        ns if ns < 1e3 => ("ns", 1.0),
        ns if ns < 1e6 => ("µs", 1e3),
        ns if ns < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

/// A plain number; the digits follow the interval.
pub fn digits(value: f64, half_width: Option<f64>) -> String {
    let uncertain = half_width.filter(|half| *half > 0.0 && half.is_finite());
    let places = match uncertain {
        Some(half) => -(half.log10().floor() as i32),
        None if value == 0.0 => 0,
        None => DIGITS_WITHOUT_INTERVAL - 1 - value.abs().log10().floor() as i32,
    };
    let text = format!("{value:.*}", usize::try_from(places.clamp(0, 9)).unwrap_or(0));
    grouped(&text)
}

/// A ratio of times, such as 1.043.
pub fn ratio(value: f64, half_width: Option<f64>) -> Shown {
    let half_width = half_width.filter(|half| *half > 0.0).unwrap_or(0.01);
    Shown { digits: digits(value, Some(half_width.max(0.000_5))), unit: "×" }
}

/// A share of 1 in per cent.
pub fn percent(share: f64) -> Shown {
    Shown { digits: format!("{:.1}", share * 100.0), unit: "%" }
}

/// Bytes, in powers of 1024.
pub fn bytes(count: f64) -> Shown {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count;
    let mut index = 0;
    while value >= 1024.0 && index + 1 < units.len() {
        value /= 1024.0;
        index += 1;
    }
    let digits = if index == 0 || value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    Shown { digits, unit: units[index] }
}

/// Operations per ns, which is GFLOP/s.
pub fn gflops(per_ns: f64) -> Shown {
    match per_ns >= 10_000.0 {
        true => Shown { digits: digits(per_ns / 1e3, None), unit: "TFLOP/s" },
        false => Shown { digits: digits(per_ns, None), unit: "GFLOP/s" },
    }
}

/// A number of operations.
pub fn flops(count: f64) -> Shown {
    let (unit, scale) = match count {
        count if count < 1e6 => ("FLOP", 1.0),
        count if count < 1e9 => ("MFLOP", 1e6),
        count if count < 1e12 => ("GFLOP", 1e9),
        _ => ("TFLOP", 1e12),
    };
    Shown { digits: digits(count / scale, None), unit }
}

/// An error, such as 5.1e-7.
pub fn error(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { format!("{value:.1e}") }
}

/// A whole number with groups of three digits, as in 10 000.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

/// The day of an RFC 3339 time; what is shorter stays as it is.
pub fn day(time: &str) -> &str {
    match time.get(..10) {
        Some(day) if time.as_bytes().get(10) == Some(&b'T') => day,
        _ => time,
    }
}

/// Day and minute of an RFC 3339 time.
pub fn minute(time: &str) -> String {
    match (time.get(..10), time.get(11..16)) {
        (Some(day), Some(minute)) if time.as_bytes().get(10) == Some(&b'T') => format!("{day} {minute} UTC"),
        _ => time.to_owned(),
    }
}

/// `text` with spaces between groups of three digits before the point; short numbers stay whole.
fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut shown = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if whole.len() > 4 && index > 0 && left.is_multiple_of(3) {
            shown.push(SPACE);
        }
        shown.push(digit);
    }
    if let Some(fraction) = fraction {
        shown.push('.');
        shown.push_str(fraction);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_of_a_time_follow_its_interval() {
        let shown = |ns, half| time(ns, half).to_string().replace(SPACE, " ");
        assert_eq!(shown(98_457_829.6, Some(900_000.0)), "98.5 ms");
        assert_eq!(shown(98_457_829.6, Some(20_000.0)), "98.46 ms");
        assert_eq!(shown(98_457_829.6, Some(3_000_000.0)), "98 ms");
        assert_eq!(shown(98_457_829.6, None), "98.5 ms");
        assert_eq!(shown(81_900.0, None), "81.9 µs");
        assert_eq!(shown(0.0, None), "0 ns");
        assert_eq!(shown(2.5e9, Some(0.0)), "2.50 s");
        assert_eq!(shown(999.0, Some(f64::NAN)), "999 ns");
    }

    #[test]
    fn other_quantities_have_their_own_rules() {
        let plain = |shown: Shown| shown.to_string().replace(SPACE, " ");
        assert_eq!(plain(ratio(1.0432, Some(0.02))), "1.04 ×");
        assert_eq!(plain(ratio(2.5, None)), "2.50 ×");
        assert_eq!(plain(percent(0.8349)), "83.5 %");
        assert_eq!(plain(bytes(33_554_432.0)), "32.0 MiB");
        assert_eq!(plain(bytes(25_276_059_648.0)), "23.5 GiB");
        assert_eq!(plain(gflops(505.63)), "506 GFLOP/s");
        assert_eq!(plain(gflops(494_000.0)), "494 TFLOP/s");
        assert_eq!(plain(flops(154.6e9)), "155 GFLOP");
        assert_eq!(error(5.1234e-7), "5.1e-7");
        assert_eq!(count(10_000).replace(SPACE, " "), "10 000");
        assert_eq!(count(8192), "8192");
        assert_eq!(digits(-1.26, Some(0.1)), "−1.3");
    }

    #[test]
    fn times_of_day_are_cut_only_where_they_are_ones() {
        assert_eq!(day("2026-12-01T11:41:00.327Z"), "2026-12-01");
        assert_eq!(day("August 2026"), "August 2026");
        assert_eq!(minute("2026-12-01T11:41:00.327Z"), "2026-12-01 11:41 UTC");
        assert_eq!(minute("2026-07-10"), "2026-07-10");
    }
}

//! Ratios of times with their intervals, case by case, around 1.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas};
use crate::display;

/// The ratio of one case.
#[derive(Clone, Copy, Debug)]
pub struct RatioRow<'a> {
    /// The case's name.
    pub name: &'a str,
    /// Ratio, and the ends of its 95 % interval; `None` where there is none.
    pub ratio: Option<[f64; 3]>,
    /// Whether it sums up the others.
    pub total: bool,
}

/// A plot of ratios.
#[derive(Clone, Copy, Debug)]
pub struct Ratios<'a> {
    /// Unique on the page.
    pub id: &'a str,
    /// What is above the fraction bar and what below.
    pub title: &'a str,
    /// Its rows.
    pub rows: &'a [RatioRow<'a>],
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 92.0;
const ROW_HEIGHT: f64 = 22.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 30.0;

impl Ratios<'_> {
    /// The picture.
    pub fn svg(&self) -> String {
        let height = TOP + ROW_HEIGHT * self.rows.len() as f64 + BOTTOM;
        let description = "One row per case: the dot is the ratio of the medians, the line its 95 % interval. Right of 1 \
                           the first takes longer.";
        let mut canvas = Canvas::new(self.id, WIDTH, height, self.title, description);
        let ends = || self.rows.iter().filter_map(|row| row.ratio);
        let low = ends().map(|[_, low, _]| low).fold(1.0, f64::min) / 1.05;
        let high = ends().map(|[_, _, high]| high).fold(1.0, f64::max) * 1.05;
        let axis = Axis::logarithmic(low.max(1e-6), high.min(1e6), LEFT, WIDTH - RIGHT);
        let bottom = height - BOTTOM;
        for tick in axis.ticks(6) {
            let class = if (tick - 1.0).abs() < 1e-9 { "axis" } else { "grid" };
            canvas.line(class, (axis.at(tick), TOP), (axis.at(tick), bottom));
            canvas.text(
                "tick",
                (axis.at(tick), bottom + 18.0),
                Anchor::Middle,
                format!("{tick:.3}").trim_end_matches('0').trim_end_matches('.'),
            );
        }
        for (index, row) in self.rows.iter().enumerate() {
            let middle = TOP + ROW_HEIGHT * (index as f64 + 0.5);
            canvas.text(if row.total { "total" } else { "name" }, (LEFT - 10.0, middle + 4.0), Anchor::End, row.name);
            let Some([ratio, low, high]) = row.ratio else { continue };
            canvas.line("interval", (axis.at(low), middle), (axis.at(high), middle));
            canvas.marker(if row.total { "holder" } else { "point" }, (axis.at(ratio), middle), 3.5, row.name);
            let label = display::ratio(ratio, Some((high - low) / 2.0)).to_string();
            canvas.text("value", (WIDTH - RIGHT + 10.0, middle + 4.0), Anchor::Start, &label);
        }
        canvas.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_a_ratio_keeps_its_row() {
        let rows = [
            RatioRow { name: "s128b2", ratio: Some([2.5, 2.4, 2.6]), total: false },
            RatioRow { name: "s128b16", ratio: None, total: false },
        ];
        let svg = Ratios { id: "r", title: "A / B", rows: &rows }.svg();
        assert!(
            svg.contains("s128b16") && svg.contains("2.5\u{202f}×") && svg.matches("interval").count() >= 1,
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 1);
    }
}

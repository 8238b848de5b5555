//! All samples of a run: a row per case, each call by how far it is from the case's median.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas};

/// The samples of one case.
#[derive(Clone, Copy, Debug)]
pub struct SampleRow<'a> {
    /// The case's name.
    pub name: &'a str,
    /// What stands at the end of the row, such as its median.
    pub label: &'a str,
    /// Samples in ns, in the order of the calls.
    pub samples_ns: &'a [u64],
    /// Lower quartile, median and upper quartile in ns; `None` without samples.
    pub quartiles_ns: Option<[f64; 3]>,
}

/// A plot of all samples of a run.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    /// Its rows.
    pub rows: &'a [SampleRow<'a>],
}

const WIDTH: f64 = 860.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 92.0;
const ROW_HEIGHT: f64 = 24.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 30.0;

/// More dots than this in a row cover each other; then every n-th call is drawn, and the outermost always.
const MOST_DOTS: usize = 400;

/// Narrowest and widest deviation that the axis shows on either side.
const LIMITS: (f64, f64) = (0.02, 0.5);

impl Samples<'_> {
    /// The picture.
    pub fn svg(&self) -> String {
        let height = TOP + ROW_HEIGHT * self.rows.len() as f64 + BOTTOM;
        let description = "One row per case, one dot per timed call: left of the middle it was faster than the case's \
                           median, right of it slower. Inside a row, calls run from top to bottom. The band spans the \
                           middle half of the calls.";
        let mut canvas = Canvas::new("samples", WIDTH, height, "All timed calls of the run", description);
        let axis = self.axis();
        let bottom = height - BOTTOM;
        let ticks = axis.ticks(8);
        // Two ticks that differ must not read the same.
        let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(1.0, f64::min);
        let places = usize::from(step < 0.0099);
        for tick in ticks {
            let tick = if tick.abs() < step / 2.0 { 0.0 } else { tick };
            canvas.line(if tick == 0.0 { "axis" } else { "grid" }, (axis.at(tick), TOP), (axis.at(tick), bottom));
            let label = if tick == 0.0 { "median".to_owned() } else { format!("{:+.places$} %", tick * 100.0) };
            let label = label.replace('-', "−");
            canvas.text("tick", (axis.at(tick), bottom + 18.0), Anchor::Middle, &label);
        }
        canvas.text("tick", (WIDTH - RIGHT + 10.0, TOP - 10.0), Anchor::Start, "median");
        for (index, row) in self.rows.iter().enumerate() {
            row.draw(&mut canvas, &axis, TOP + ROW_HEIGHT * index as f64);
        }
        canvas.finish()
    }

    /// As wide as 99 % of the calls need.
    fn axis(&self) -> Axis {
        let mut deviations: Vec<f64> = self.rows.iter().flat_map(SampleRow::deviations).collect();
        deviations.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = (share * deviations.len().saturating_sub(1) as f64) as usize;
            deviations.get(index).copied().unwrap_or(0.0)
        };
        let low = (-at(0.005) * 1.1).clamp(LIMITS.0, LIMITS.1);
        let high = (at(0.99) * 1.1).clamp(LIMITS.0, LIMITS.1);
        Axis::linear(-low, high, LEFT, WIDTH - RIGHT)
    }
}

impl SampleRow<'_> {
    /// How far each call is from the median, as a share of it.
    fn deviations(&self) -> impl Iterator<Item = f64> {
        let median = self.quartiles_ns.map_or(0.0, |[_, median, _]| median);
        self.samples_ns.iter().filter(move |_| median > 0.0).map(move |&sample| sample as f64 / median - 1.0)
    }

    fn draw(&self, canvas: &mut Canvas, axis: &Axis, top: f64) {
        let middle = top + ROW_HEIGHT / 2.0;
        canvas.text("name", (LEFT - 10.0, middle + 4.0), Anchor::End, self.name);
        canvas.text("value", (WIDTH - RIGHT + 10.0, middle + 4.0), Anchor::Start, self.label);
        let Some([lower, median, upper]) = self.quartiles_ns.filter(|quartiles| quartiles[1] > 0.0) else { return };
        let (left, right) = (axis.at(lower / median - 1.0), axis.at(upper / median - 1.0));
        canvas.rect("band", (left, top + 3.0), right - left, ROW_HEIGHT - 6.0);
        let count = self.samples_ns.len();
        let stride = count.div_ceil(MOST_DOTS).max(1);
        let dots = self.deviations().enumerate().filter(|(index, _)| index % stride == 0);
        let y = |index: usize| top + 5.0 + (ROW_HEIGHT - 10.0) * index as f64 / count.saturating_sub(1).max(1) as f64;
        canvas.dots("call", dots.map(|(index, deviation)| (axis.at(deviation), y(index))));
        let outermost = [f64::min, f64::max].map(|pick| self.deviations().reduce(pick).unwrap_or(0.0));
        if stride > 1 {
            canvas.dots("call", outermost.into_iter().map(|deviation| (axis.at(deviation), middle)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_a_dot_until_there_are_too_many() {
        let plot = |samples_ns: &[u64]| {
            let quartiles_ns = Some([90.0, 100.0, 110.0]);
            Samples { rows: &[SampleRow { name: "s128b2", label: "100 ns", samples_ns, quartiles_ns }] }.svg()
        };
        assert_eq!(plot(&[100; 50]).matches("h0").count(), 50);
        let many: Vec<u64> = (0..1_000_000).map(|index| 90 + index % 20).collect();
        let svg = plot(&many);
        assert!(svg.matches("h0").count() <= MOST_DOTS + 2 && svg.len() < 20_000, "{}", svg.len());
    }

    #[test]
    fn a_case_without_samples_or_with_times_of_zero_has_an_empty_row() {
        for (samples_ns, quartiles_ns) in [(&[][..], None), (&[0, 0][..], Some([0.0; 3]))] {
            let row = SampleRow { name: "<s>", label: "failed", samples_ns, quartiles_ns };
            let svg = Samples { rows: &[row] }.svg();
            assert!(svg.contains("&lt;s&gt;") && svg.contains("failed") && !svg.contains("NaN"), "{svg}");
        }
    }
}

//! A roofline: what a device can do at most for each ratio of arithmetic to bytes, and what runs reached.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas};
use crate::display;

/// A limit that has a slope where bandwidth sets it and is flat where arithmetic does.
#[derive(Clone, Debug)]
pub struct Roof {
    /// Which mode, and whether measured or from a datasheet.
    pub name: String,
    /// Most operations per ns.
    pub flops_per_ns: f64,
    /// Most bytes per ns.
    pub bytes_per_ns: f64,
    /// Whether a datasheet says so and no loop has reached it.
    pub datasheet: bool,
}

/// One case of one run.
#[derive(Clone, Debug)]
pub struct RooflinePoint {
    /// What is shown when it is pointed at.
    pub name: String,
    /// Operations per byte at least moved.
    pub flops_per_byte: f64,
    /// Operations per ns.
    pub flops_per_ns: f64,
    /// Which run it is of: 0, 1, ...; sets the colour.
    pub series: usize,
}

/// A roofline plot.
#[derive(Clone, Copy, Debug)]
pub struct Roofline<'a> {
    /// What the picture is called.
    pub title: &'a str,
    /// The limits.
    pub roofs: &'a [Roof],
    /// What was reached.
    pub points: &'a [RooflinePoint],
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 88.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 46.0;

/// Colours of series that the style sheet knows.
const SERIES: usize = 6;

impl Roofline<'_> {
    /// The picture; `None` without a limit.
    pub fn svg(&self) -> Option<String> {
        let highest = self.roofs.iter().map(|roof| roof.flops_per_ns).fold(0.0, f64::max);
        let ridges = || self.roofs.iter().map(|roof| roof.flops_per_ns / roof.bytes_per_ns);
        if self.roofs.is_empty() || !highest.is_finite() || highest <= 0.0 || ridges().any(|ridge| !ridge.is_finite()) {
            return None;
        }
        let intensities = || self.points.iter().map(|point| point.flops_per_byte).chain(ridges());
        let left = intensities().fold(f64::INFINITY, f64::min) / 4.0;
        let right = intensities().fold(0.0, f64::max) * 3.0;
        let lowest = self.points.iter().map(|point| point.flops_per_ns).fold(highest / 20.0, f64::min) / 1.5;
        let x = Axis::logarithmic(left, right, LEFT, WIDTH - RIGHT);
        let y = Axis::logarithmic(lowest, highest * 1.6, HEIGHT - BOTTOM, TOP);
        let description = "To the right a case computes more per byte it must move; higher is faster. Lines are limits: \
                           sloping where memory sets them, flat where arithmetic does. Both axes are logarithmic.";
        let mut canvas = Canvas::new("roofline", WIDTH, HEIGHT, self.title, description);
        self.draw_axes(&mut canvas, &x, &y);
        for roof in self.roofs {
            let ridge = roof.flops_per_ns / roof.bytes_per_ns;
            let class = if roof.datasheet { "roof datasheet" } else { "roof" };
            let limit = |at: f64| (at * roof.bytes_per_ns).min(roof.flops_per_ns);
            let start = left.max(lowest / roof.bytes_per_ns);
            let corner = (x.at(ridge), y.at(roof.flops_per_ns));
            let line = [(x.at(start), y.at(limit(start))), corner, (WIDTH - RIGHT, y.at(roof.flops_per_ns))];
            canvas.polyline(class, &line);
            let label = format!("{} {}", roof.name, display::gflops(roof.flops_per_ns));
            canvas.text("label", (WIDTH - RIGHT, corner.1 - 6.0), Anchor::End, &label);
        }
        for point in self.points {
            let class = format!("series-{}", point.series % SERIES);
            let at = (x.at(point.flops_per_byte), y.at(point.flops_per_ns));
            let title = format!("{}: {}", point.name, display::gflops(point.flops_per_ns));
            canvas.marker(&class, at, 3.5, &title);
        }
        Some(canvas.finish())
    }

    fn draw_axes(&self, canvas: &mut Canvas, x: &Axis, y: &Axis) {
        for tick in y.ticks(4) {
            canvas.line("grid", (LEFT, y.at(tick)), (WIDTH - RIGHT, y.at(tick)));
            canvas.text("tick", (LEFT - 8.0, y.at(tick) + 4.0), Anchor::End, &display::gflops(tick).to_string());
        }
        for tick in x.ticks(6) {
            canvas.line("grid", (x.at(tick), TOP), (x.at(tick), HEIGHT - BOTTOM));
            let label = display::digits(tick, None);
            let label = if label.contains('.') { label.trim_end_matches('0').trim_end_matches('.') } else { &label };
            canvas.text("tick", (x.at(tick), HEIGHT - BOTTOM + 18.0), Anchor::Middle, label);
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        canvas.text("tick", (middle, HEIGHT - 8.0), Anchor::Middle, "FLOP per byte that must be moved");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_points_are_drawn_and_no_limit_is_no_picture() {
        let roofs = [Roof { name: "f32".to_owned(), flops_per_ns: 575.0, bytes_per_ns: 20.0, datasheet: false }];
        let point = RooflinePoint { name: "s128b2".to_owned(), flops_per_byte: 90.0, flops_per_ns: 433.9, series: 7 };
        let svg = Roofline { title: "Roofline", roofs: &roofs, points: &[point] }.svg().expect("there is a limit");
        assert!(svg.contains("class=\"series-1\"") && svg.contains("class=\"roof\"") && !svg.contains("NaN"), "{svg}");
        assert!(Roofline { title: "Roofline", roofs: &[], points: &[] }.svg().is_none());
        let broken = [Roof { bytes_per_ns: 0.0, ..roofs[0].clone() }];
        assert!(Roofline { title: "Roofline", roofs: &broken, points: &[] }.svg().is_none());
    }
}

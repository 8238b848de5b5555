//! The record over time: a step line down, and every eligible run as a dot.

use super::axis::Axis;
use super::canvas::{Anchor, Canvas};
use crate::display;

/// One eligible run.
#[derive(Clone, Debug)]
pub struct HistoryPoint<'a> {
    /// Seconds since 1970 in UTC.
    pub at_s: f64,
    /// Its figure in ns.
    pub value_ns: f64,
    /// Who ran.
    pub name: &'a str,
    /// Whether it was a record when it was observed.
    pub record: bool,
}

/// A plot of one cohort's history.
#[derive(Clone, Debug)]
pub struct History<'a> {
    /// Unique on the page.
    pub id: &'a str,
    /// What the picture is called.
    pub title: &'a str,
    /// Oldest first.
    pub points: &'a [HistoryPoint<'a>],
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 32.0;
const DAY_S: f64 = 86_400.0;

/// A letter is about this wide; labels that would overlap are left out.
const LETTER_WIDTH: f64 = 6.4;

impl History<'_> {
    /// The picture; `None` without a point.
    pub fn svg(&self) -> Option<String> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let values = || self.points.iter().map(|point| point.value_ns);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        if low.partial_cmp(&0.0) != Some(std::cmp::Ordering::Greater) {
            return None;
        }
        let margin_s = ((last.at_s - first.at_s) * 0.03).max(DAY_S / 2.0);
        let time = Axis::linear(first.at_s - margin_s, last.at_s + margin_s, LEFT, WIDTH - RIGHT);
        let value = Axis::logarithmic(low / 1.15, high * 1.15, HEIGHT - BOTTOM, TOP);
        let description = "Time runs to the right, a lower point is faster; both the height and its labels are \
                           logarithmic. The line is the record, dots are runs that may hold it.";
        let mut canvas = Canvas::new(self.id, WIDTH, HEIGHT, self.title, description);
        let (unit, scale) = display::time_unit(low);
        for tick in value.ticks(4) {
            canvas.line("grid", (LEFT, value.at(tick)), (WIDTH - RIGHT, value.at(tick)));
            let label = format!("{} {unit}", display::digits(tick / scale, None).trim_end_matches(".00"));
            canvas.text("tick", (LEFT - 8.0, value.at(tick) + 4.0), Anchor::End, &label);
        }
        for (at_s, label) in days(first.at_s - margin_s, last.at_s + margin_s) {
            canvas.line("grid", (time.at(at_s), HEIGHT - BOTTOM), (time.at(at_s), HEIGHT - BOTTOM + 5.0));
            canvas.text("tick", (time.at(at_s), HEIGHT - BOTTOM + 20.0), Anchor::Middle, &label);
        }
        self.draw(&mut canvas, &time, &value);
        Some(canvas.finish())
    }

    fn draw(&self, canvas: &mut Canvas, time: &Axis, value: &Axis) {
        let place = |point: &HistoryPoint<'_>| (time.at(point.at_s), value.at(point.value_ns));
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for point in self.points.iter().filter(|point| point.record) {
            let (x, y) = place(point);
            steps.extend(steps.last().map(|(_, before)| (x, *before)));
            steps.push((x, y));
        }
        steps.extend(steps.last().map(|(_, y)| (WIDTH - RIGHT, *y)));
        canvas.polyline("record", &steps);
        let others = self.points.iter().filter(|point| !point.record);
        canvas.dots("run", others.map(place));
        let mut free_from = 0.0;
        for point in self.points.iter().filter(|point| point.record) {
            let (x, y) = place(point);
            let shown = display::time(point.value_ns, None).to_string();
            canvas.marker("holder", (x, y), 4.0, &format!("{}: {shown}", point.name));
            let label: String = format!("{shown} {}", point.name).chars().take(40).collect();
            let width = label.chars().count() as f64 * LETTER_WIDTH;
            let left = (x + 8.0).min(WIDTH - RIGHT - width);
            if left >= free_from {
                canvas.text("label", (left, y - 8.0), Anchor::Start, &label);
                free_from = left + width + 12.0;
            }
        }
    }
}

/// Up to about eight days from `from_s` to `to_s`, with their dates.
fn days(from_s: f64, to_s: f64) -> Vec<(f64, String)> {
    let (first, last) = ((from_s / DAY_S).ceil() as i64, (to_s / DAY_S).floor() as i64);
    let stride = ((last - first) / 7 + 1).max(1);
    let days = (0..).map(|index| first + index * stride).take_while(|day| *day <= last);
    days.map(|day| (day as f64 * DAY_S, date(day))).collect()
}

/// The date of a number of days since 1970-01-01.
fn date(days: i64) -> String {
    let epoch = jiff::civil::Date::constant(1970, 1, 1);
    let span = jiff::Span::new().try_days(days);
    span.and_then(|span| epoch.checked_add(span)).map_or_else(|_| String::new(), |date| date.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_s: f64, value_ns: f64, record: bool) -> HistoryPoint<'static> {
        HistoryPoint { at_s, value_ns, name: "A & B", record }
    }

    #[test]
    fn records_make_steps_and_the_others_dots() {
        let points = [point(0.0, 200.0, true), point(DAY_S, 220.0, false), point(9.0 * DAY_S, 100.0, true)];
        let svg = History { id: "h", title: "History", points: &points }.svg().expect("there are points");
        assert_eq!((svg.matches("class=\"holder\"").count(), svg.matches("h0").count()), (2, 1));
        assert!(svg.contains("A &amp; B: 200") && svg.contains("1970-01-0") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn nothing_or_a_time_of_zero_is_no_picture_and_one_point_is_one() {
        let svg = |points: &[HistoryPoint<'_>]| History { id: "h", title: "History", points }.svg();
        assert!(svg(&[]).is_none() && svg(&[point(0.0, 0.0, true)]).is_none());
        assert!(svg(&[point(1.0e9, 5.0, true)]).is_some_and(|svg| svg.contains("2001-09-0")));
    }
}

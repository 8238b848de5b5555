//! A record as a picture: achieved GFLOP/s per case, a bar per contestant, and the FMA peak above them.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::record::BenchRecord;
use super::summary;

/// Size in pixels: a README column is about 900 wide.
const SIZE: (u32, u32) = (960, 420);

/// Okabe and Ito's palette: told apart by colour-blind readers and in print.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
];

/// Height of title and legend.
const HEAD_HEIGHT: i32 = 60;

/// About the width of a letter of the legend; the SVG backend cannot measure text.
const LETTER_WIDTH: i32 = 7;

/// Names beyond this are sizes spelled out, too wide to be written below bars.
const LONGEST_NAME: usize = 9;

/// Share of a case's width that its bars take.
const GROUP_WIDTH: f64 = 0.8;

/// The record as an SVG document.
///
/// # Errors
/// When the record has no case with samples.
pub(crate) fn svg(record: &BenchRecord) -> anyhow::Result<String> {
    let top = tops(record).max_by(f64::total_cmp);
    let Some(top) = top else { anyhow::bail!("there is nothing to plot: no case has samples") };
    let mut document = String::new();
    {
        let root = SVGBackend::with_string(&mut document, SIZE).into_drawing_area();
        draw(&root, record, top * 1.06).map_err(|error| anyhow::anyhow!("the plot cannot be drawn: {error}"))?;
    }
    Ok(document)
}

fn tops(record: &BenchRecord) -> impl Iterator<Item = f64> {
    record.cases.iter().flat_map(|case| {
        let bars = case.contestants.iter().filter_map(|contestant| summary::gflops(case, contestant));
        let peaks = case.contestants.iter().filter_map(|contestant| case.peak_gflops(contestant));
        bars.chain(peaks)
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(root: &Area<'_>, record: &BenchRecord, top: f64) -> Drawn {
    root.fill(&WHITE)?;
    let (head, body) = root.split_vertically(HEAD_HEIGHT);
    draw_head(&head, record)?;
    let cases = record.cases.len() as f64;
    let mut chart = ChartBuilder::on(&body)
        .margin_left(6)
        .margin_right(12)
        .x_label_area_size(38)
        .y_label_area_size(58)
        .build_cartesian_2d(-0.5..cases - 0.5, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(0)
        .y_label_formatter(&|gflops| format!("{gflops:.0}"))
        .y_label_style(("sans-serif", 13))
        .y_desc("GFLOP/s")
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    draw_bars(&mut chart, record)?;
    draw_peaks(&mut chart, record)?;
    draw_names(&body, &chart, record)?;
    root.present()?;
    Ok(())
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// The title, and below it the legend in one row.
fn draw_head(area: &Area<'_>, record: &BenchRecord) -> Drawn {
    let font = ("sans-serif", 13).into_font();
    let title = format!("Backward pass of QKV + rotary embedding, f32, {}", record.machine.cpu);
    area.draw(&Text::new(title, (58, 8), ("sans-serif", 17).into_font()))?;
    let contestants = record.cases.first().map_or(&[][..], |case| &case.contestants);
    let mut x = 58;
    for (index, contestant) in contestants.iter().enumerate() {
        let label = contestant.label();
        area.draw(&Rectangle::new([(x, 36), (x + 12, 48)], colour(index).filled()))?;
        area.draw(&Text::new(label.clone(), (x + 17, 36), font.clone()))?;
        x += 17 + LETTER_WIDTH * i32::try_from(label.chars().count())? + 18;
    }
    area.draw(&PathElement::new([(x, 42), (x + 16, 42)], BLACK.stroke_width(2)))?;
    area.draw(&Text::new("FMA peak in the same rounds", (x + 21, 36), font))?;
    Ok(())
}

fn draw_bars(chart: &mut Chart<'_, '_>, record: &BenchRecord) -> Drawn {
    let count = record.cases.iter().map(|case| case.contestants.len()).max().unwrap_or(0);
    let width = GROUP_WIDTH / count.max(1) as f64;
    for index in 0..count {
        let bars = record.cases.iter().enumerate().filter_map(|(place, case)| {
            let height = summary::gflops(case, case.contestants.get(index)?)?;
            let left = place as f64 - GROUP_WIDTH / 2.0 + width * index as f64;
            Some(Rectangle::new([(left, 0.0), (left + width * 0.92, height)], colour(index).filled()))
        });
        chart.draw_series(bars)?;
    }
    Ok(())
}

/// A line over each case at the peak of its first contestant's threads.
fn draw_peaks(chart: &mut Chart<'_, '_>, record: &BenchRecord) -> Drawn {
    let lines = record.cases.iter().enumerate().filter_map(|(place, case)| {
        let peak = case.peak_gflops(case.contestants.first()?)?;
        let place = place as f64;
        Some(PathElement::new([(place - 0.5, peak), (place + 0.5, peak)], BLACK.stroke_width(2)))
    });
    chart.draw_series(lines)?;
    Ok(())
}

/// The name and the tokens of each case below its bars.
fn draw_names(area: &Area<'_>, chart: &Chart<'_, '_>, record: &BenchRecord) -> Drawn {
    let centred = |size: u32| TextStyle::from(("sans-serif", size).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
    let (_, top) = area.get_base_pixel();
    for (place, case) in record.cases.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(place as f64, 0.0));
        let y = y - top;
        if case.name.len() <= LONGEST_NAME {
            area.draw(&Text::new(case.name.clone(), (x, y + 6), centred(13)))?;
        }
        let tokens = format!("T={}", case.problem.dims.tokens());
        area.draw(&Text::new(tokens, (x, y + 21), centred(11)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_without_samples_is_no_picture() {
        let record = BenchRecord::example();
        assert!(svg(&record).expect("it has samples").contains("s128b2"));
        assert!(svg(&BenchRecord { cases: Vec::new(), ..record }).is_err());
    }
}

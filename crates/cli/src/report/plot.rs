//! A record as a picture: achieved GFLOP/s per case, a bar per contestant, and the FMA peak above them.

use plotters::coord::Shift;
use plotters::prelude::*;

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
        draw(&root, record, top * 1.16).map_err(|error| anyhow::anyhow!("the plot cannot be drawn: {error}"))?;
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

fn draw(root: &Area<'_>, record: &BenchRecord, top: f64) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let names: Vec<&str> = record.cases.iter().map(|case| case.name.as_str()).collect();
    let caption = format!("QKV + RoPE backward, f32, {}", record.machine.cpu);
    let mut chart = ChartBuilder::on(root)
        .caption(caption, ("sans-serif", 17))
        .margin(8)
        .x_label_area_size(62)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.5..names.len() as f64 - 0.5, 0.0..top)?;
    let label = |x: &f64| {
        let index = x.round();
        let is_case = (x - index).abs() < 1e-6 && index >= 0.0;
        if is_case { names.get(index as usize).map_or_else(String::new, |name| (*name).to_owned()) } else { String::new() }
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(names.len().max(2) * 2)
        .x_label_formatter(&label)
        .x_label_style(("sans-serif", 13).into_font().transform(FontTransform::Rotate90))
        .y_label_style(("sans-serif", 13))
        .y_desc("GFLOP/s")
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    draw_bars(&mut chart, record)?;
    draw_peaks(&mut chart, record)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .label_font(("sans-serif", 13))
        .draw()?;
    root.present()?;
    Ok(())
}

type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>>;

fn draw_bars(chart: &mut Chart<'_, '_>, record: &BenchRecord) -> Result<(), Box<dyn std::error::Error>> {
    let count = record.cases.iter().map(|case| case.contestants.len()).max().unwrap_or(0);
    let width = GROUP_WIDTH / count.max(1) as f64;
    for index in 0..count {
        let colour = COLOURS[index % COLOURS.len()];
        let label = record.cases.iter().find_map(|case| Some(case.contestants.get(index)?.label()));
        let bars = record.cases.iter().enumerate().filter_map(|(place, case)| {
            let height = summary::gflops(case, case.contestants.get(index)?)?;
            let left = place as f64 - GROUP_WIDTH / 2.0 + width * index as f64;
            Some(Rectangle::new([(left, 0.0), (left + width * 0.92, height)], colour.filled()))
        });
        chart
            .draw_series(bars)?
            .label(label.unwrap_or_default())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
    }
    Ok(())
}

/// A short line above each case at the peak of its first contestant's threads.
fn draw_peaks(chart: &mut Chart<'_, '_>, record: &BenchRecord) -> Result<(), Box<dyn std::error::Error>> {
    let style = BLACK.stroke_width(2);
    let lines = record.cases.iter().enumerate().filter_map(|(place, case)| {
        let peak = case.peak_gflops(case.contestants.first()?)?;
        let place = place as f64;
        Some(PathElement::new([(place - 0.5, peak), (place + 0.5, peak)], style))
    });
    chart
        .draw_series(lines)?
        .label("FMA peak, measured in the same rounds")
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], style));
    Ok(())
}

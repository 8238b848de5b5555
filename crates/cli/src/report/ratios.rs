//! A comparison as a picture: time(B) / time(A) per case with its interval, over the band that A's noise fills.

use kernelproof_eval::comparison::Compared;
use kernelproof_eval::statistics::Interval;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size in pixels: a README column is about 900 wide.
const SIZE: (u32, u32) = (960, 380);

const POINT: RGBColor = RGBColor(0, 114, 178);
const NOISE: RGBColor = RGBColor(200, 200, 200);

/// The cases as an SVG document.
///
/// # Errors
/// When there is no case with samples.
pub(crate) fn svg(title: &str, cases: &[Compared]) -> anyhow::Result<String> {
    let mut document = String::new();
    {
        let root = SVGBackend::with_string(&mut document, SIZE).into_drawing_area();
        draw(&root, title, cases).map_err(|error| anyhow::anyhow!("the plot cannot be drawn: {error}"))?;
    }
    Ok(document)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw(root: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, title: &str, cases: &[Compared]) -> Drawn {
    let rows: Vec<_> = cases.iter().filter_map(|case| Some((case, case.ratio()?, case.noise()?))).collect();
    let ends = rows.iter().flat_map(|(_, ratio, noise)| [ratio.low, ratio.high, noise.low, noise.high, 1.0]);
    let (low, high) = ends.fold((f64::INFINITY, 0.0_f64), |(low, high), end| (low.min(end), high.max(end)));
    if rows.is_empty() {
        return Err("no case has samples".into());
    }
    let margin = 0.06 * (high - low).max(0.02);
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(58)
        .build_cartesian_2d(-0.5..rows.len() as f64 - 0.5, low - margin..high + margin)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(0)
        .y_desc("time(B) / time(A)")
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    chart.draw_series(rows.iter().enumerate().map(|(place, (_, _, noise))| {
        let place = place as f64;
        Rectangle::new([(place - 0.4, noise.low), (place + 0.4, noise.high)], NOISE.filled())
    }))?;
    chart.draw_series([PathElement::new([(-0.5, 1.0), (rows.len() as f64 - 0.5, 1.0)], BLACK)])?;
    let point = |(place, ratio): (usize, &Interval)| {
        let place = place as f64;
        let interval = PathElement::new([(place, ratio.low), (place, ratio.high)], POINT.stroke_width(2));
        (interval, Circle::new((place, ratio.estimate), 4, POINT.filled()))
    };
    let (intervals, points): (Vec<_>, Vec<_>) = rows.iter().map(|(_, ratio, _)| ratio).enumerate().map(point).unzip();
    chart.draw_series(intervals)?;
    chart.draw_series(points)?;
    let below = TextStyle::from(("sans-serif", 12).into_font()).pos(Pos::new(HPos::Center, VPos::Top));
    for (place, (case, ..)) in rows.iter().enumerate() {
        let (x, _) = chart.backend_coord(&(place as f64, 1.0));
        let (_, bottom) = chart.backend_coord(&(0.0, low - margin));
        root.draw(&Text::new(case.name.clone(), (x, bottom + 6), below.clone()))?;
    }
    root.present()?;
    Ok(())
}

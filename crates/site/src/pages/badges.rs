//! Badges for the README of an implementation or of a model that uses an operation.

use axum::extract::Path;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, mode_name};

use crate::ask::{Ask, kept};
use crate::plot::badge;
use crate::stored::REVALIDATE;
use crate::view::{Standing, level};

const SVG: &str = "image/svg+xml";

/// Answers `/badges/implementations/{implementation}.svg`: its best trust, and its fastest time at that level.
#[utoipa::path(get, path = "/badges/implementations/{implementation}.svg", tag = "badges",
    summary = "An implementation's trust and time",
    params(("implementation" = String, Path, description = "Slug of the implementation")),
    responses((status = 200, content_type = "image/svg+xml", body = String), (status = 404)))]
pub(crate) async fn implementation(ask: Ask, Path(file): Path<String>) -> Response {
    let name = file.strip_suffix(".svg").unwrap_or(&file);
    let Some(entry) = ask.catalog().implementation(name) else { return ask.missing("implementation", name) };
    let best = entry.best.iter().filter_map(|id| ask.catalog().run(id));
    let best = best.max_by(|one, other| one.trust.level.cmp(&other.trust.level));
    let value = best.and_then(|run| {
        let time = crate::view::Interval::from(run.facts.time_ns()?).time();
        Some(format!("{} · {time} on {}", level(run.trust.level), run.facts.environment.device))
    });
    draw(&entry.spec.name, value)
}

/// Answers `/badges/operations/{operation}/{device}.svg`: who is fastest.
#[utoipa::path(get, path = "/badges/operations/{operation}/{device}.svg", tag = "badges",
    summary = "The record of an operation on a device",
    params(
        ("operation" = String, Path, description = "Slug of the operation"),
        ("device" = String, Path, description = "Slug of the device"),
    ),
    responses((status = 200, content_type = "image/svg+xml", body = String), (status = 404)))]
pub(crate) async fn operation(ask: Ask, Path((operation, file)): Path<(String, String)>) -> Response {
    let device = file.strip_suffix(".svg").unwrap_or(&file);
    let catalog = ask.catalog();
    let Some(entry) = catalog.operation(&operation) else { return ask.missing("operation", &operation) };
    let Some(known) = catalog.device(device) else { return ask.missing("device", device) };
    draw(&format!("{} on {}", entry.slug, known.name), fastest(catalog, entry.id, &known.name))
}

/// The fastest record of an operation on a device, over its modes.
fn fastest(catalog: &Catalog, operation: kernelproof_index::Digest, device: &str) -> Option<String> {
    let records = catalog.current_records(operation).filter(|record| record.device == device);
    let best = records.min_by(|one, other| one.step.time_ns.estimate.total_cmp(&other.step.time_ns.estimate))?;
    let run = catalog.run(&best.step.run)?;
    let time = crate::view::Interval::from(best.step.time_ns).time();
    let trust = Standing::of(catalog, &run.trust);
    let mode = mode_name(run.facts.implementation.mode);
    Some(format!("{time} · {} ({mode}) · {}", run.facts.implementation.name, trust.level))
}

fn draw(label: &str, value: Option<String>) -> Response {
    kept(SVG, REVALIDATE, badge(label, value.as_deref().unwrap_or("no run that ranks")).into())
}

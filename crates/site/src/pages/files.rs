//! The files of bundles, byte for byte, and the samples as CSV.

use std::fmt::Write as _;

use axum::extract::Path;
use axum::http::header::{CONTENT_DISPOSITION, HeaderValue};
use axum::response::Response;

use crate::ask::{Ask, kept};
use crate::assets::Asset;
use crate::stored::{FOREVER, REVALIDATE};

/// Answers `/files/{run}/{file}`. Whatever a file holds, a browser gets it as plain text or JSON and never runs it.
#[utoipa::path(get, path = "/files/{run}/{file}", tag = "files", summary = "A file of a bundle, byte for byte",
    params(("run" = String, Path, description = "Slug, name of the bundle, or identity"), ("file" = String, Path, description = "Its name, such as run.json")),
    responses((status = 200, body = String), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn file(ask: Ask, Path((run, name)): Path<(String, String)>) -> Response {
    let Some(entry) = ask.catalog().run_named(&run) else { return ask.missing("run", &run) };
    // Only names that the bundle has: nothing from the address reaches a file system.
    let Some((known, _)) = entry.facts.files.get_key_value(&name) else { return ask.missing("file", &name) };
    let media_type = if known.ends_with(".json") { "application/json" } else { "text/plain; charset=utf-8" };
    match ask.documents().file(&entry.facts.id, known) {
        Ok(Some(text)) => {
            let mut response = kept(media_type, REVALIDATE, text.into());
            let name: String =
                known.chars().filter(|letter| letter.is_ascii_alphanumeric() || "._-".contains(*letter)).collect();
            if let Ok(value) = HeaderValue::from_str(&format!("inline; filename=\"{}-{name}\"", entry.slug)) {
                response.headers_mut().insert(CONTENT_DISPOSITION, value);
            }
            response
        }
        Ok(None) => ask.missing("file", &name),
        Err(error) => ask.failed(&error),
    }
}

/// Answers `/runs/{run}/samples.csv`: case, call, ns.
#[utoipa::path(get, path = "/runs/{run}/samples.csv", tag = "files", summary = "All samples of a run as CSV: case, call, ns",
    params(("run" = String, Path, description = "Slug, name of the bundle, or identity")),
    responses((status = 200, content_type = "text/csv", body = String), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn samples(ask: Ask, Path(run): Path<String>) -> Response {
    let Some(entry) = ask.catalog().run_named(&run) else { return ask.missing("run", &run) };
    let cases = match crate::samples::samples(ask.documents(), &entry.facts.id) {
        Ok(Some(cases)) => cases,
        Ok(None) => return ask.missing("bundle", &run),
        Err(error) => return ask.failed(&error),
    };
    let mut text = "case,call,ns\n".to_owned();
    for case in &cases {
        // Names come from outside; a spreadsheet must see text, in one field.
        let name = case.name.replace('"', "\"\"");
        let name = if name.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{name}") } else { name };
        for (call, sample) in case.samples_ns.iter().enumerate() {
            let _ = writeln!(text, "\"{name}\",{call},{sample}");
        }
    }
    kept("text/csv; charset=utf-8", REVALIDATE, text.into())
}

/// Answers `/assets/{file}`.
pub(crate) async fn asset(ask: Ask, Path(name): Path<String>) -> Response {
    match Asset::find(&format!("/assets/{name}")) {
        Some(asset) => {
            kept(asset.media_type, if asset.is_named_by_digest() { FOREVER } else { REVALIDATE }, asset.text.into())
        }
        None => ask.missing("file", &name),
    }
}

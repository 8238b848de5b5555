//! An implementation: who wrote it, how to have it, where it runs, what it did.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, ImplementationEntry};
use serde::Serialize;
use utoipa::ToSchema;

use super::operation::ImplementationLine;
use crate::ask::Ask;
use crate::view::{RunLine, address};

/// Runs that are listed.
const MOST_RUNS: usize = 200;

/// The page of an implementation.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "implementation.html")]
pub(crate) struct ImplementationPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Its identity.
    pub id: String,
    /// Name, author, licence, install command, and its fastest runs.
    pub line: ImplementationLine,
    /// What a caller calls.
    pub entry_point: String,
    /// Kinds of devices that it runs on.
    pub device_kinds: Vec<String>,
    /// Devices that it was run on, with their pages.
    pub devices: Vec<[String; 2]>,
    /// Operations that it was run on, with their pages.
    pub operations: Vec<[String; 2]>,
    /// Flags that it was built with.
    pub build_flags: Vec<String>,
    /// What was run, by name: SHA-256 of its contents.
    pub binaries: Vec<[String; 2]>,
    /// SHA-256 of the file that was evaluated.
    pub source_digest: Option<String>,
    /// What stopped it from passing, by run.
    pub limits: Vec<Limit>,
    /// Its runs, latest first.
    pub runs: Vec<RunLine>,
    /// How many there are.
    pub runs_total: usize,
}

/// A case that it did not pass.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Limit {
    /// The case.
    pub case: String,
    /// How it ended.
    pub status: &'static str,
    /// What was said.
    pub detail: Option<String>,
    /// Address of the run.
    pub run: String,
}

/// Answers `/implementations/{implementation}`.
#[utoipa::path(get, path = "/implementations/{implementation}.json", tag = "pages", summary = "An implementation: licence, source, install, runs",
    params(("implementation" = String, Path, description = "Slug or identity")),
    responses((status = 200, body = ImplementationPage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    match ask.catalog().implementation(&name) {
        Some(entry) => ask.reply(&ImplementationPage::of(ask.catalog(), entry)),
        None => ask.missing("implementation", &name),
    }
}

impl ImplementationPage {
    /// The page of an implementation of the catalog.
    pub(crate) fn of(catalog: &Catalog, entry: &ImplementationEntry) -> Self {
        let spec = &entry.spec;
        let device = |name: &String| {
            let href = catalog.device(name).map(|device| address::device(&device.slug)).unwrap_or_default();
            [name.clone(), href]
        };
        let operation = |id: &kernelproof_index::Digest| {
            let found = catalog.operations().iter().find(|operation| operation.id == *id)?;
            Some([found.title.clone(), address::operation(&found.slug)])
        };
        let runs: Vec<_> = entry.runs.iter().filter_map(|id| catalog.run(id)).collect();
        let limits = runs.iter().take(MOST_RUNS).flat_map(|run| {
            let failed = run.facts.cases.iter().filter(|case| case.time_ns().is_none());
            failed.map(|case| Limit {
                case: case.name.clone(),
                status: case.status.name(),
                detail: case.detail.clone(),
                run: address::run(&run.slug),
            })
        });
        Self {
            twin: format!("{}.json", address::implementation(&entry.slug)),
            id: entry.id.to_string(),
            line: ImplementationLine::of(catalog, entry),
            entry_point: spec.entry_point.clone(),
            device_kinds: spec.devices.clone(),
            devices: entry.devices.iter().map(device).collect(),
            operations: entry.operations.iter().filter_map(operation).collect(),
            build_flags: spec.build_flags.clone(),
            binaries: spec.binaries.iter().map(|(name, digest)| [name.clone(), digest.to_string()]).collect(),
            source_digest: spec.source.digest.map(|digest| digest.to_string()),
            limits: limits.collect(),
            runs: runs.iter().take(MOST_RUNS).map(|run| RunLine::of(catalog, run)).collect(),
            runs_total: entry.runs.len(),
        }
    }

    /// Whether the repository may stand in a link: only addresses of the web.
    fn source_link(&self) -> Option<&str> {
        let source = self.line.implementation.source.as_deref()?;
        (source.starts_with("https://") || source.starts_with("http://")).then_some(source)
    }
}

//! A cohort: its whole ranking, its history, and all its runs.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, CohortEntry};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::Ask;
use crate::view::{CohortView, RunLine, address};

/// Rows of the ranking, and runs, that one page shows; the JSON of the store has all.
const MOST_ROWS: usize = 200;

/// The page of a cohort.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "cohort.html")]
pub(crate) struct CohortPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Its identity.
    pub id: String,
    /// The operation's title and address.
    pub operation: [String; 2],
    /// Its ranking and its history.
    pub cohort: CohortView,
    /// Its runs, latest first.
    pub runs: Vec<RunLine>,
}

/// Answers `/cohorts/{cohort}`.
#[utoipa::path(get, path = "/cohorts/{cohort}.json", tag = "pages", summary = "A cohort: ranking, history and runs",
    params(("cohort" = String, Path, description = "Slug or identity")),
    responses((status = 200, body = CohortPage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    match ask.catalog().cohort_named(&name) {
        Some(entry) => ask.reply(&CohortPage::of(ask.catalog(), entry)),
        None => ask.missing("cohort", &name),
    }
}

impl CohortPage {
    /// The page of a cohort of the catalog.
    pub(crate) fn of(catalog: &Catalog, entry: &CohortEntry) -> Self {
        let operation = catalog.operations().iter().find(|operation| operation.id == entry.key.operation);
        let latest = entry.runs.iter().rev().take(MOST_ROWS).filter_map(|id| catalog.run(id));
        Self {
            twin: format!("{}.json", address::cohort(&entry.slug)),
            id: entry.id.to_string(),
            operation: operation.map_or_else(
                || [entry.key.operation.short(), String::new()],
                |operation| [operation.title.clone(), address::operation(&operation.slug)],
            ),
            cohort: CohortView::of(catalog, entry, MOST_ROWS),
            runs: latest.map(|run| RunLine::of(catalog, run)).collect(),
        }
    }
}

//! A figure that someone else reports, in that one's words, with what is known to be wrong with it.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, ExternalEntry};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::Ask;
use crate::view::{SourceLine, Standing, address};

/// The page of an external run.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "reported.html")]
pub(crate) struct ReportedPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Its identity.
    pub id: String,
    /// The operation's title and address.
    pub operation: [String; 2],
    /// Who, and the figures.
    pub line: SourceLine,
    /// Where the figures stand.
    pub document: String,
    /// Day on which it was read.
    pub read_on: String,
    /// The source's name of the hardware.
    pub hardware: String,
    /// The source's name of the workload.
    pub workload: String,
    /// The source's name of the protocol.
    pub protocol: String,
    /// What is known to be called by a wrong name, or missing.
    pub caveats: Vec<String>,
    /// The level, which is always the lowest.
    pub trust: Standing,
}

/// Answers `/reported/{figure}`.
#[utoipa::path(get, path = "/reported/{figure}.json", tag = "pages", summary = "A figure that someone else reports",
    params(("figure" = String, Path, description = "Slug or identity")),
    responses((status = 200, body = ReportedPage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    match ask.catalog().external_named(&name) {
        Some(entry) => ask.reply(&ReportedPage::of(ask.catalog(), entry)),
        None => ask.missing("reported figure", &name),
    }
}

impl ReportedPage {
    /// The page of an external run of the catalog.
    pub(crate) fn of(catalog: &Catalog, entry: &ExternalEntry) -> Self {
        let operation = catalog.operations().iter().find(|operation| operation.id == entry.spec.operation);
        Self {
            twin: format!("{}.json", address::external(&entry.slug)),
            id: entry.id.to_string(),
            operation: operation.map_or_else(
                || [entry.spec.operation.short(), String::new()],
                |operation| [operation.title.clone(), address::operation(&operation.slug)],
            ),
            line: SourceLine::of(entry, None, None),
            document: entry.spec.source.document.clone(),
            read_on: entry.spec.source.read_on.clone(),
            hardware: entry.spec.hardware.clone(),
            workload: entry.spec.workload.clone(),
            protocol: entry.spec.protocol.clone(),
            caveats: entry.spec.caveats.clone(),
            trust: Standing::reported(),
        }
    }
}

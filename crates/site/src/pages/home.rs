//! The first page: what there is, what is fastest, what came last.

use askama::Template;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, OperationEntry};
use serde::Serialize;
use utoipa::ToSchema;

use super::operation::{OperationPage, Record, Reported};
use crate::ask::Ask;
use crate::view::{RunLine, address};

/// Latest runs that are listed.
const MOST_LATEST: usize = 8;

/// Operations whose records are listed.
const MOST_OPERATIONS: usize = 12;

/// The first page.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "home.html")]
pub(crate) struct HomePage {
    /// Address of this as JSON.
    pub twin: String,
    /// Operations with their records.
    pub operations: Vec<Summary>,
    /// Runs, those of them that rank, implementations, devices, and figures of others.
    pub counts: Counts,
    /// Latest runs.
    pub latest: Vec<RunLine>,
}

/// How much there is.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Counts {
    /// Runs of ours.
    pub runs: usize,
    /// Those of them that rank.
    pub eligible: usize,
    /// Implementations.
    pub implementations: usize,
    /// Devices.
    pub devices: usize,
    /// Figures that others report.
    pub reported: usize,
    /// Corrections.
    pub corrections: usize,
}

/// An operation with its records.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Summary {
    /// Its page.
    pub href: String,
    /// Its name in addresses.
    pub slug: String,
    /// A heading.
    pub title: String,
    /// What a reader should know.
    pub description: Option<String>,
    /// Runs of ours, and those of them that rank.
    pub runs: [usize; 2],
    /// The fastest of each cohort.
    pub records: Vec<Record>,
    /// The fastest that others report.
    pub reported: Option<Reported>,
}

/// Answers `/`.
#[utoipa::path(get, path = "/index.json", tag = "pages", summary = "The first page: operations, records, latest runs",
    responses((status = 200, body = HomePage)))]
pub(crate) async fn page(ask: Ask) -> Response {
    ask.reply(&HomePage::of(ask.catalog()))
}

impl HomePage {
    /// The first page of a catalog.
    pub(crate) fn of(catalog: &Catalog) -> Self {
        let operations = catalog.operations().iter().take(MOST_OPERATIONS).map(|entry| Summary::of(catalog, entry));
        Self {
            twin: "/index.json".to_owned(),
            operations: operations.collect(),
            counts: Counts {
                runs: catalog.runs().len(),
                eligible: catalog.runs().iter().filter(|run| run.eligibility.ranks()).count(),
                implementations: catalog.implementations().len(),
                devices: catalog.devices().len(),
                reported: catalog.externals().len(),
                corrections: catalog.corrections().len(),
            },
            latest: catalog.runs().iter().rev().take(MOST_LATEST).map(|run| RunLine::of(catalog, run)).collect(),
        }
    }
}

impl Summary {
    /// What lists show of an operation.
    pub(crate) fn of(catalog: &Catalog, entry: &OperationEntry) -> Self {
        let page = OperationPage::of(catalog, entry);
        Self {
            href: address::operation(&page.slug),
            slug: page.slug,
            title: page.title,
            description: page.description,
            runs: page.runs,
            records: page.records,
            reported: page.fastest_reported,
        }
    }
}

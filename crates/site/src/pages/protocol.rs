//! A protocol: the rules that samples were taken by, and the runs that followed them.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use kernelproof_index::catalog::Catalog;
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::Ask;
use crate::view::{RunLine, address};

/// Runs that are listed.
const MOST_RUNS: usize = 50;

/// Digits of an identity that may stand for it.
const LEAST_DIGITS: usize = 8;

/// The page of a protocol.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "protocol.html")]
pub(crate) struct ProtocolPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Its identity.
    pub id: String,
    /// Its version, which sets the cohort.
    pub version: String,
    /// Whether runs by it are quick ones, which never rank.
    pub quick: bool,
    /// Its rules, by name.
    pub rules: Vec<[String; 2]>,
    /// Runs by it, latest first.
    pub runs: Vec<RunLine>,
    /// How many there are.
    pub runs_total: usize,
}

/// Answers `/protocols/{protocol}`.
#[utoipa::path(get, path = "/protocols/{protocol}.json", tag = "pages", summary = "A protocol: its rules and its runs",
    params(("protocol" = String, Path, description = "At least 8 digits of the identity")),
    responses((status = 200, body = ProtocolPage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    match ProtocolPage::of(ask.catalog(), &name) {
        Some(page) => ask.reply(&page),
        None => ask.missing("protocol", &name),
    }
}

impl ProtocolPage {
    /// The page of the protocol whose identity begins with these digits.
    pub(crate) fn of(catalog: &Catalog, digits: &str) -> Option<Self> {
        let digits = digits.strip_prefix("sha256:").unwrap_or(digits);
        let usable = digits.len() >= LEAST_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_it = |run: &&kernelproof_index::catalog::RunEntry| run.facts.protocol_id.starts_with(digits);
        let first = catalog.runs().iter().find(is_it).filter(|_| usable)?;
        let id = first.facts.protocol_id;
        let runs = || catalog.runs().iter().rev().filter(move |run| run.facts.protocol_id == id);
        Some(Self {
            twin: format!("{}.json", address::protocol(&id.short())),
            id: id.to_string(),
            version: first.facts.protocol.version.clone(),
            quick: first.facts.protocol.quick,
            rules: super::run::protocol(&first.facts.protocol),
            runs: runs().take(MOST_RUNS).map(|run| RunLine::of(catalog, run)).collect(),
            runs_total: runs().count(),
        })
    }
}

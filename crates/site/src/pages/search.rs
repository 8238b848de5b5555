//! Search over everything that has a name.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, Hit, HitKind};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::ask::Ask;
use crate::view::address;

/// Hits that are shown.
const MOST: usize = 50;

/// Without a question everything is listed, up to this much of each kind.
const MOST_LISTED: usize = 2000;

/// What is searched for.
#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct SearchQuery {
    /// Words, all of which must occur.
    #[serde(default)]
    pub q: String,
}

/// What was found.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "search.html")]
pub(crate) struct SearchPage {
    /// Address of this as JSON.
    pub twin: String,
    /// The words.
    pub query: String,
    /// What was found, best first.
    pub hits: Vec<Found>,
    /// Whether there is more than is shown.
    pub more: bool,
}

/// Something that was found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Found {
    /// `operation`, `implementation`, `device`, `run` or `reported`.
    pub kind: &'static str,
    /// Its page.
    pub href: String,
    /// Its name.
    pub title: String,
    /// A line about it.
    pub detail: String,
}

/// Answers `/search`.
#[utoipa::path(get, path = "/search.json", tag = "pages", summary = "Search over everything that has a name", params(SearchQuery),
    responses((status = 200, body = SearchPage)))]
pub(crate) async fn page(ask: Ask, Query(SearchQuery { q }): Query<SearchQuery>) -> Response {
    ask.reply(&SearchPage::of(ask.catalog(), &q))
}

impl SearchPage {
    /// What a catalog has for these words; everything for none.
    pub(crate) fn of(catalog: &Catalog, query: &str) -> Self {
        let query: String = query.chars().take(100).collect();
        let mut hits: Vec<Found> = match query.trim() {
            "" => everything(catalog),
            words => catalog.search(words, MOST + 1).into_iter().map(Found::of).collect(),
        };
        let most = if query.trim().is_empty() { usize::MAX } else { MOST };
        let more = hits.len() > most;
        hits.truncate(most);
        Self { twin: "/search.json".to_owned(), query, hits, more }
    }
}

impl Found {
    fn of(hit: &Hit) -> Self {
        let (kind, href) = match hit.kind {
            HitKind::Operation => ("operation", address::operation(&hit.slug)),
            HitKind::Implementation => ("implementation", address::implementation(&hit.slug)),
            HitKind::Device => ("device", address::device(&hit.slug)),
            HitKind::Run => ("run", address::run(&hit.slug)),
            HitKind::External => ("reported", address::external(&hit.slug)),
        };
        Self { kind, href, title: hit.title.clone(), detail: hit.detail.clone() }
    }
}

/// All names, for browsing and for the search of a static export.
fn everything(catalog: &Catalog) -> Vec<Found> {
    let found = |kind, href, title: &str, detail: String| Found { kind, href, title: title.to_owned(), detail };
    let operations = catalog.operations().iter().map(|entry| {
        let words = format!("{} {}", entry.spec.family, entry.aliases.join(" "));
        found("operation", address::operation(&entry.slug), &entry.title, words)
    });
    let implementations = catalog.implementations().iter().map(|entry| {
        let author = entry.spec.author.clone().unwrap_or_default();
        let detail = format!("{author} {} on {}", entry.spec.languages.join(", "), entry.devices.join(", "));
        found("implementation", address::implementation(&entry.slug), &entry.spec.name, detail.trim().to_owned())
    });
    let devices = catalog.devices().iter().map(|device| {
        found("device", address::device(&device.slug), &device.name, format!("{} runs", device.runs.len()))
    });
    let externals = catalog.externals().iter().map(|entry| {
        let detail = format!("{} · {}", entry.spec.hardware, entry.spec.source.document);
        found("reported", address::external(&entry.slug), &entry.spec.implementation, detail)
    });
    let runs = catalog.runs().iter().rev().map(|run| {
        let detail = format!("{} {}", run.facts.environment.device, run.facts.observed);
        found("run", address::run(&run.slug), &run.facts.name, detail)
    });
    operations
        .chain(implementations.take(MOST_LISTED))
        .chain(devices.take(MOST_LISTED))
        .chain(externals.take(MOST_LISTED))
        .chain(runs.take(MOST_LISTED))
        .collect()
}

//! Records as an Atom feed (RFC 4287), latest first.

use askama::Template;
use axum::response::Response;
use kernelproof_index::catalog::{CohortEntry, RecordStep};

use crate::ask::{Ask, kept};
use crate::stored::REVALIDATE;
use crate::view::{Interval, address, cohort_about};

/// Entries of the feed.
const MOST: usize = 50;

#[derive(Template)]
#[template(path = "records.xml")]
struct Feed {
    updated: String,
    entries: Vec<Entry>,
}

struct Entry {
    id: String,
    title: String,
    summary: String,
    href: String,
    updated: String,
    author: String,
}

/// Answers `/records.atom`.
#[utoipa::path(get, path = "/records.atom", tag = "records", summary = "Records as an Atom feed, latest first",
    responses((status = 200, content_type = "application/atom+xml", body = String)))]
pub(crate) async fn atom(ask: Ask) -> Response {
    let catalog = ask.catalog();
    let of = |cohort: &CohortEntry, step: &RecordStep| {
        let run = catalog.run(&step.run)?;
        let time = Interval::from(step.time_ns);
        let gain =
            step.ratio_to_previous.map(|ratio| format!(", {} of the record before", Interval::from(ratio).ratio()));
        Some(Entry {
            id: format!("urn:sha256:{}", step.run.to_string().trim_start_matches("sha256:")),
            title: format!("{}: {} ({})", run.facts.implementation.name, time.time(), cohort_about(cohort)),
            summary: format!(
                "{}{}; trust: {}",
                time.times(),
                gain.unwrap_or_default(),
                crate::view::level(run.trust.level)
            ),
            href: address::run(&run.slug),
            updated: step.observed.clone(),
            author: run.facts.implementation.author.clone().unwrap_or_else(|| "unknown".to_owned()),
        })
    };
    let steps =
        catalog.cohorts().iter().flat_map(|cohort| cohort.history.iter().filter_map(move |step| of(cohort, step)));
    let mut entries: Vec<Entry> = steps.collect();
    entries.sort_by(|one, other| other.updated.cmp(&one.updated).then(one.id.cmp(&other.id)));
    entries.truncate(MOST);
    let updated = entries.first().map_or_else(|| "1970-01-01T00:00:00Z".to_owned(), |entry| entry.updated.clone());
    match (Feed { updated, entries }).render() {
        Ok(text) => kept("application/atom+xml; charset=utf-8", REVALIDATE, text.into()),
        Err(error) => ask.failed(&error),
    }
}

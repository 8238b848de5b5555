//! Which implementation to take for a shape, a device and a mode, and why not the others.

use std::collections::BTreeMap;

use askama::Template;
use axum::extract::Query;
use axum::http::StatusCode;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, Question, Resolution};
use kernelproof_index::trust::Trust;
use serde::Serialize;
use utoipa::ToSchema;

use super::operation::Choices;
use crate::ask::{Ask, Problem};
use crate::view::{Interval, Standing, address};

/// The answer to a question.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "resolve.html")]
pub(crate) struct ResolvePage {
    /// Address of this as JSON.
    pub twin: String,
    /// The operation's title and address.
    pub operation: [String; 2],
    /// The operation's name in addresses.
    pub operation_slug: String,
    /// What was asked, by name.
    pub question: Vec<[String; 2]>,
    /// What the times are of: a case, or the suite.
    pub basis: String,
    /// Ranked per cohort; times of different cohorts are not set against each other.
    pub cohorts: Vec<Answer>,
    /// Implementations that do not fit, and why.
    pub excluded: Vec<Excluded>,
    /// What else can be asked for.
    #[serde(skip)]
    pub choices: Choices,
}

/// The answer inside one cohort.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Answer {
    /// What all its runs have in common.
    pub about: String,
    /// The device's name.
    pub device: String,
    /// How operands are rounded.
    pub mode: &'static str,
    /// Address of the cohort.
    pub cohort: Option<String>,
    /// Fastest first.
    pub ranked: Vec<Fit>,
}

/// An implementation that fits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Fit {
    /// Those that cannot be told apart share a rank.
    pub rank: usize,
    /// Its name.
    pub name: String,
    /// Its page.
    pub href: Option<String>,
    /// The run that the time is of.
    pub run: Option<String>,
    /// The time, in ns.
    pub time_ns: Interval,
    /// Its time over that of the first.
    pub ratio_to_first: Interval,
    /// How far the run can be trusted.
    pub trust: Standing,
    /// SPDX expression.
    pub licence: Option<String>,
    /// A command that installs it.
    pub install: Option<String>,
    /// What is called.
    pub entry_point: String,
}

/// An implementation that does not fit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Excluded {
    /// Its name.
    pub name: String,
    /// Its page.
    pub href: Option<String>,
    /// Every reason.
    pub reasons: Vec<String>,
}

/// Excluded implementations that a page lists; figures of others are many.
const MOST_EXCLUDED: usize = 100;

/// Answers `/resolve?operation=…&device=…&mode=…&trust=…` and one parameter per axis.
#[utoipa::path(get, path = "/resolve.json", tag = "resolve",
    summary = "Which implementation to take, and why not the others",
    params(
        ("operation" = String, Query, description = "Slug, alias or identity of the operation"),
        ("device" = Option<String>, Query, description = "Name or slug of a device, or `cpu` or `cuda`; any when left out"),
        ("mode" = Option<String>, Query, description = "`ieee`, `split` or `fast`; any when left out"),
        ("trust" = Option<String>, Query, description = "Least trust: `reported`, `reproducible`, `verified` or `replicated`"),
        ("seq_len" = Option<u64>, Query, description = "One parameter per variable axis of the operation; the whole suite when all are left out"),
        ("batch_size" = Option<u64>, Query, description = "Another axis"),
    ),
    responses(
        (status = 200, body = ResolvePage),
        (status = 400, body = Problem, description = "An unknown operation, axis, mode or level, named in the detail"),
    ))]
pub(crate) async fn page(ask: Ask, Query(asked): Query<BTreeMap<String, String>>) -> Response {
    let question = match question(&asked) {
        Ok(question) => question,
        Err(detail) => return Problem::new(StatusCode::BAD_REQUEST, "What is asked?", detail).reply(ask.format),
    };
    match ask.catalog().resolve(&question) {
        Ok(resolution) => ask.reply(&ResolvePage::of(ask.catalog(), &asked, &question, &resolution)),
        Err(error) => Problem::new(StatusCode::BAD_REQUEST, "What is asked?", error.to_string()).reply(ask.format),
    }
}

fn question(asked: &BTreeMap<String, String>) -> Result<Question, String> {
    let mut question = Question::default();
    for (name, value) in asked.iter().filter(|(_, value)| !value.is_empty()) {
        match name.as_str() {
            "operation" => question.operation.clone_from(value),
            "device" => question.device.clone_from(value),
            "mode" => question.mode = Some(value.clone()),
            "trust" => question.trust = Some(trust(value)?),
            axis => {
                let size = value.parse().map_err(|_| format!("{axis}: found {value:?}, expected a whole number"))?;
                question.axes.insert(axis.to_owned(), size);
            }
        }
    }
    Ok(question)
}

fn trust(text: &str) -> Result<Trust, String> {
    match text {
        "reported" => Ok(Trust::Reported),
        "reproducible" => Ok(Trust::Reproducible),
        "verified" => Ok(Trust::Verified),
        "replicated" => Ok(Trust::Replicated),
        _ => Err(format!("trust: found {text:?}, expected reported, reproducible, verified or replicated")),
    }
}

impl ResolvePage {
    fn of(catalog: &Catalog, asked: &BTreeMap<String, String>, question: &Question, found: &Resolution) -> Self {
        let operation = catalog.operations().iter().find(|operation| operation.id == found.operation);
        let cohorts = found.cohorts.iter().map(|cohort| Answer {
            about: cohort.about.clone(),
            device: cohort.device.clone(),
            mode: cohort.mode,
            cohort: catalog.cohort(&cohort.cohort).map(|cohort| address::cohort(&cohort.slug)),
            ranked: cohort.ranked.iter().map(|row| Fit::of(catalog, row)).collect(),
        });
        let excluded = found.excluded.iter().take(MOST_EXCLUDED).map(|excluded| Excluded {
            name: excluded.name.clone(),
            href: match (catalog.implementation_of(&excluded.id), catalog.external(&excluded.id)) {
                (Some(entry), _) => Some(address::implementation(&entry.slug)),
                (None, Some(entry)) => Some(address::external(&entry.slug)),
                (None, None) => None,
            },
            reasons: excluded.reasons.clone(),
        });
        let given = asked.iter().filter(|(name, value)| !value.is_empty() && *name != "operation");
        Self {
            twin: "/resolve.json".to_owned(),
            operation: operation.map_or_else(
                || [question.operation.clone(), String::new()],
                |operation| [operation.title.clone(), address::operation(&operation.slug)],
            ),
            operation_slug: operation.map(|operation| operation.slug.clone()).unwrap_or_default(),
            question: given.map(|(name, value)| [name.clone(), value.clone()]).collect(),
            basis: found.basis.clone(),
            cohorts: cohorts.collect(),
            excluded: excluded.collect(),
            choices: operation.map_or_else(Choices::none, |operation| Choices::asked(catalog, operation, question)),
        }
    }
}

impl Fit {
    fn of(catalog: &Catalog, row: &kernelproof_index::catalog::Resolved) -> Self {
        let run = catalog.run(&row.run);
        Self {
            rank: row.rank,
            name: row.name.clone(),
            href: catalog.implementation_of(&row.implementation).map(|entry| address::implementation(&entry.slug)),
            run: run.map(|run| address::run(&run.slug)),
            time_ns: row.time_ns.into(),
            ratio_to_first: row.ratio_to_first.into(),
            trust: run.map_or_else(Standing::reported, |run| Standing::of(catalog, &run.trust)),
            licence: row.licence.clone(),
            install: row.install.clone(),
            entry_point: row.entry_point.clone(),
        }
    }

    fn run_href(&self) -> &str {
        self.run.as_deref().unwrap_or("#main")
    }
}

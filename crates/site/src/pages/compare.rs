//! Runs beside each other. Inside one cohort a ratio with its interval; across cohorts what differs, in words.

use askama::Template;
use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, Compared, RunEntry};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::{Ask, Problem, see_other};
use crate::plot::{RatioRow, Ratios};
use crate::view::{Interval, RunLine, address};

/// Runs that fit beside each other.
const MOST_RUNS: usize = 8;

/// The comparison of a first run with others.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "compare.html")]
pub(crate) struct ComparePage {
    /// Address of this as JSON.
    pub twin: String,
    /// The run that the others are held against.
    pub base: RunLine,
    /// The others.
    pub others: Vec<Other>,
    /// Times of the cases in all runs, in ns, base first; `None` where a case did not pass.
    pub cases: Vec<Times>,
}

/// One run against the base.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Other {
    /// The run.
    pub line: RunLine,
    /// Its time over that of the base, geometric mean over the cases; `None` across cohorts.
    pub ratio: Option<Interval>,
    /// Whether the interval excludes 1 by more than the noise of the cohort; `None` across cohorts.
    pub distinguishable: Option<bool>,
    /// Why there is no ratio; `None` inside one cohort.
    pub sentence: Option<String>,
    /// In what the cohorts differ: what, in the base, in the other.
    pub differences: Vec<[String; 3]>,
    /// What may explain a ratio although the cohort is one.
    pub circumstances: Vec<[String; 3]>,
    /// The ratios case by case.
    pub cases: Vec<CaseRatio>,
    /// The same as a picture.
    #[serde(skip)]
    pub svg: Option<String>,
}

/// The ratio of one case.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CaseRatio {
    /// The case.
    pub case: String,
    /// Time of the other over that of the base.
    pub ratio: Option<Interval>,
}

/// One case in all runs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Times {
    /// The case.
    pub case: String,
    /// Its times, base first.
    pub times_ns: Vec<Option<Interval>>,
}

/// Answers `/compare/{runs}`, where `runs` are slugs with `..` between them.
#[utoipa::path(get, path = "/compare/{runs}.json", tag = "pages", summary = "Runs beside each other; no ratio across cohorts",
    params(("runs" = String, Path, description = "Two to eight slugs with `..` between them, the base first")),
    responses((status = 200, body = ComparePage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(names): Path<String>) -> Response {
    let slugs: Vec<&str> = names.split("..").filter(|slug| !slug.is_empty()).collect();
    if slugs.len() < 2 || slugs.len() > MOST_RUNS {
        let detail = format!("Found {} runs, expected two to {MOST_RUNS}, as in /compare/a..b.", slugs.len());
        return Problem::new(StatusCode::BAD_REQUEST, "Which runs?", detail).reply(ask.format);
    }
    let mut runs = Vec::new();
    for slug in slugs {
        match ask.catalog().run_named(slug) {
            Some(run) => runs.push(run),
            None => return ask.missing("run", slug),
        }
    }
    match ComparePage::of(ask.catalog(), &runs) {
        Some(page) => ask.reply(&page),
        None => ask.missing("comparison", &names),
    }
}

/// Answers `/compare?run=a&run=b`, which forms send, with the address of the comparison.
pub(crate) async fn form(ask: Ask, RawQuery(query): RawQuery) -> Response {
    let query = query.unwrap_or_default();
    let slug = |value: &str| value.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
    let chosen = query.split('&').filter_map(|part| part.strip_prefix("run=")).filter(|value| slug(value));
    let chosen: Vec<&str> = chosen.take(MOST_RUNS).collect();
    if chosen.len() < 2 {
        let detail = "Choose two or more runs of the list, then compare.";
        return Problem::new(StatusCode::BAD_REQUEST, "Which runs?", detail).reply(ask.format);
    }
    see_other(&format!("/compare/{}", chosen.join("..")))
}

impl ComparePage {
    /// The comparison of runs of the catalog; `None` without one.
    pub(crate) fn of(catalog: &Catalog, runs: &[&RunEntry]) -> Option<Self> {
        let ids: Vec<_> = runs.iter().map(|run| run.facts.id).collect();
        let comparison = catalog.compare(&ids)?;
        let base = catalog.run(&comparison.base)?;
        let slugs: Vec<&str> = runs.iter().map(|run| run.slug.as_str()).collect();
        let cases = base.facts.cases.iter().map(|case| Times {
            case: case.name.clone(),
            times_ns: runs
                .iter()
                .map(|run| run.facts.case(&case.name).and_then(|case| case.time_ns()).map(Interval::from))
                .collect(),
        });
        let others = comparison.others.iter().enumerate();
        Some(Self {
            twin: format!("/compare/{}.json", slugs.join("..")),
            base: RunLine::of(catalog, base),
            others: others.filter_map(|(index, other)| Other::of(catalog, other, &base.slug, index)).collect(),
            cases: cases.collect(),
        })
    }
}

impl Other {
    fn of(catalog: &Catalog, compared: &Compared, base: &str, index: usize) -> Option<Self> {
        let run = catalog.run(&compared.run)?;
        let three = |difference: &kernelproof_index::catalog::CohortDifference| {
            [difference.what.to_owned(), difference.base.clone(), difference.other.clone()]
        };
        let mut other = Self {
            line: RunLine::of(catalog, run),
            ratio: compared.ratio.map(Interval::from),
            distinguishable: compared.distinguishable,
            sentence: compared.sentence.clone(),
            differences: compared.differences.iter().map(three).collect(),
            circumstances: compared.circumstances.iter().map(three).collect(),
            cases: compared
                .cases
                .iter()
                .map(|case| CaseRatio { case: case.name.clone(), ratio: case.ratio.map(Interval::from) })
                .collect(),
            svg: None,
        };
        if other.sentence.is_none() {
            other.svg = Some(other.draw(base, index));
        }
        Some(other)
    }

    fn draw(&self, base: &str, index: usize) -> String {
        let three = |ratio: &Interval| [ratio.estimate, ratio.low, ratio.high];
        let mut rows: Vec<RatioRow<'_>> = self
            .cases
            .iter()
            .map(|case| RatioRow { name: &case.case, ratio: case.ratio.as_ref().map(three), total: false })
            .collect();
        rows.push(RatioRow { name: "geometric mean", ratio: self.ratio.as_ref().map(three), total: true });
        let title = format!("Time of run {} over that of run {base}", self.line.slug);
        Ratios { id: &format!("ratios-{index}"), title: &title, rows: &rows }.svg()
    }

    /// What the ratio says, in words.
    fn verdict(&self) -> &'static str {
        match (self.distinguishable, &self.ratio) {
            (Some(true), Some(ratio)) if ratio.estimate < 1.0 => {
                "Faster than the base, beyond the noise of the cohort."
            }
            (Some(true), _) => "Slower than the base, beyond the noise of the cohort.",
            (Some(false), _) => "The two cannot be told apart: the interval is within the noise of the cohort.",
            (None, _) => "No case passed in both.",
        }
    }

    fn href(&self) -> &str {
        &self.line.href
    }
}

impl ComparePage {
    /// What stands beside the time of a column: nothing for the base and across cohorts, otherwise the ratio where there is one.
    fn ratio(&self, row: &Times, column: &usize) -> Option<Option<Interval>> {
        let other = self.others.get(column.checked_sub(1)?).filter(|other| other.sentence.is_none())?;
        Some(other.cases.iter().find(|case| case.case == row.case).and_then(|case| case.ratio))
    }

    fn base_href(&self) -> String {
        address::run(&self.base.slug)
    }
}

//! A run: every sample, every check, and the command that repeats it.

mod cases;
mod facts;

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, CohortEntry, RunEntry};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::{Ask, Format};
use crate::display;
use crate::plot::{SampleRow, Samples};
use crate::samples::{CaseSamples, samples};
use crate::view::{RunLine, address, cohort_about};
use cases::CaseLine;
use facts::{File, Telemetered};

pub(crate) use facts::{environment, protocol};

/// The page of a run.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "run.html")]
pub(crate) struct RunPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Its identity.
    pub id: String,
    /// Name of its bundle.
    pub bundle: String,
    /// Who, on what, when, how fast, and how far it can be trusted.
    pub line: RunLine,
    /// `records`, or who submitted it and when.
    pub origin: String,
    /// The operation's title and address.
    pub operation: [String; 2],
    /// The cohort in words, and its address.
    pub cohort: [String; 2],
    /// Address of this run beside the record of its cohort, unless it is that.
    pub compare: Option<String>,
    /// Latest runs of other implementations in the cohort: who, and the address of both beside each other.
    pub beside: Vec<[String; 2]>,
    /// Address of the device's page.
    pub device_href: Option<String>,
    /// Arithmetic mean of the cases' medians, in ns.
    pub arithmetic_mean_ns: Option<f64>,
    /// The largest T / T_sol of any case, against measured ceilings.
    pub worst_ratio: Option<f64>,
    /// Geometric mean of T_sol / T, against measured ceilings.
    pub share_of_light: Option<f64>,
    /// The same against datasheets.
    pub share_of_datasheet: Option<f64>,
    /// S of the protocol.
    pub score: Option<f64>,
    /// Whose times are the baselines of the score.
    pub baseline: Option<String>,
    /// Case by case.
    pub cases: Vec<CaseLine>,
    /// What the machine said of itself during the run.
    pub telemetry: Vec<Telemetered>,
    /// Where it ran, by name of the fact.
    pub environment: Vec<[String; 2]>,
    /// The rules, by name of the fact.
    pub protocol: Vec<[String; 2]>,
    /// Address of the protocol's page.
    pub protocol_href: String,
    /// Commands: replay this run, verify its bundle, and what was typed then.
    pub commands: Commands,
    /// Files of the bundle.
    pub files: Vec<File>,
    /// All samples as a picture; `None` when the bundle cannot be read.
    #[serde(skip)]
    pub samples_svg: Option<String>,
}

/// What somebody types to have the figures again.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Commands {
    /// Gets the implementation.
    pub install: Option<String>,
    /// Repeats the run and compares.
    pub replay: String,
    /// Computes every digest and figure again.
    pub verify: String,
    /// The command line of the run.
    pub original: String,
}

/// Answers `/runs/{run}`.
#[utoipa::path(get, path = "/runs/{run}.json", tag = "pages", summary = "A run: cases, errors, telemetry, environment, commands",
    params(("run" = String, Path, description = "Slug, name of the bundle, or identity")),
    responses((status = 200, body = RunPage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    let Some(run) = ask.catalog().run_named(&name) else { return ask.missing("run", &name) };
    // The twin has no picture; its reader finds the samples in the bundle.
    let samples = match ask.format {
        Format::Html => samples(ask.documents(), &run.facts.id),
        Format::Json => Ok(None),
    };
    match samples {
        Ok(samples) => ask.reply(&RunPage::of(ask.catalog(), run, samples.as_deref())),
        Err(error) => ask.failed(&error),
    }
}

impl RunPage {
    /// The page of a run, with its samples where the bundle has them.
    pub(crate) fn of(catalog: &Catalog, run: &RunEntry, samples: Option<&[CaseSamples]>) -> Self {
        let facts = &run.facts;
        let operation = catalog.operations().iter().find(|operation| operation.id == facts.operation);
        let cohort = catalog.cohort(&run.cohort);
        let record = cohort.and_then(|cohort| catalog.run(&cohort.ranking.first()?.run));
        let folder = format!("records/runs/{}", facts.name);
        let cases: Vec<CaseLine> = facts.cases.iter().map(CaseLine::of).collect();
        Self {
            twin: format!("{}.json", address::run(&run.slug)),
            id: facts.id.to_string(),
            bundle: facts.name.clone(),
            line: RunLine::of(catalog, run),
            origin: facts::origin(&facts.origin),
            operation: operation.map_or_else(
                || [facts.operation.short(), String::new()],
                |operation| [operation.title.clone(), address::operation(&operation.slug)],
            ),
            cohort: cohort.map_or_else(
                || [run.cohort.short(), String::new()],
                |cohort| [cohort_about(cohort), address::cohort(&cohort.slug)],
            ),
            compare: record
                .filter(|record| record.facts.id != facts.id)
                .map(|record| address::compare(&record.slug, &run.slug)),
            beside: cohort.map(|cohort| beside(catalog, run, cohort)).unwrap_or_default(),
            device_href: catalog.device(&facts.environment.device).map(|device| address::device(&device.slug)),
            arithmetic_mean_ns: facts.measured.arithmetic_mean_ns,
            worst_ratio: facts.measured.worst_ratio,
            share_of_light: facts.measured.share_of_light,
            share_of_datasheet: facts.datasheet.share_of_light,
            score: facts.measured.score,
            baseline: facts.baseline.clone(),
            samples_svg: samples.map(|samples| samples_svg(samples, &cases)),
            cases,
            telemetry: facts.cases.iter().filter_map(Telemetered::of).collect(),
            environment: environment(&facts.environment),
            protocol: protocol(&facts.protocol),
            protocol_href: address::protocol(&facts.protocol_id.short()),
            commands: Commands {
                install: facts.implementation.install.clone(),
                replay: format!("kernelproof replay {folder}"),
                verify: format!("kernelproof verify {folder}"),
                original: facts.command.join(" "),
            },
            files: facts.files.iter().map(|(name, file)| File::of(&run.slug, name, file)).collect(),
        }
    }

    /// Whether the run ranks and nothing else needs to be said first.
    pub(crate) fn clean(&self) -> bool {
        self.line.reasons.is_empty()
    }

    fn ms(&self) -> String {
        self.arithmetic_mean_ns.map_or_else(|| "–".to_owned(), |ns| display::time(ns, None).to_string())
    }

    fn number(&self, value: &Option<f64>) -> String {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
    }
}

/// Other implementations that a run is offered to be held against.
const MOST_BESIDE: usize = 6;

fn beside(catalog: &Catalog, run: &RunEntry, cohort: &CohortEntry) -> Vec<[String; 2]> {
    let mut seen = vec![run.facts.implementation_id];
    let mut found = Vec::new();
    for other in cohort.runs.iter().rev().filter_map(|id| catalog.run(id)) {
        if found.len() == MOST_BESIDE {
            break;
        }
        if !seen.contains(&other.facts.implementation_id) {
            seen.push(other.facts.implementation_id);
            found.push([other.facts.implementation.name.clone(), address::compare(&run.slug, &other.slug)]);
        }
    }
    found
}

fn samples_svg(samples: &[CaseSamples], cases: &[CaseLine]) -> String {
    let labels: Vec<String> = cases.iter().map(CaseLine::label).collect();
    let rows: Vec<SampleRow<'_>> = cases
        .iter()
        .zip(&labels)
        .map(|(case, label)| {
            let found = samples.iter().find(|found| found.name == case.name);
            SampleRow {
                name: &case.name,
                label,
                samples_ns: found.map(|found| &found.samples_ns[..]).unwrap_or_default(),
                quartiles_ns: case.quartiles_ns,
            }
        })
        .collect();
    Samples { rows: &rows }.svg()
}

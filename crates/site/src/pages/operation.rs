//! An operation: what is fastest where, by whose word, and how to get it.

mod coverage;
mod implementations;
mod semantics;
mod workloads;

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, OperationEntry, Question};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::Ask;
use crate::display;
use crate::view::{
    CohortView, Interval, Maker, Rival, RunLine, SourceLine, SourceView, Standing, address, cohort_about,
};
use coverage::CoverageView;
pub(crate) use implementations::ImplementationLine;
use semantics::Semantics;
use workloads::Workloads;

/// Rows of a ranking that the operation's page shows; the cohort's page has all.
const MOST_RANKED: usize = 20;

/// Implementations that the operation's page lists.
const MOST_IMPLEMENTATIONS: usize = 40;

/// Latest runs that the operation's page lists.
const MOST_LATEST: usize = 20;

/// Figures in large type.
const MOST_HEROES: usize = 3;

/// The page of an operation.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "operation.html")]
pub(crate) struct OperationPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Its name in addresses.
    pub slug: String,
    /// Its identity.
    pub id: String,
    /// A heading.
    pub title: String,
    /// What a reader should know.
    pub description: Option<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// Which family of operations it belongs to.
    pub family: String,
    /// Runs of ours, and those of them that rank.
    pub runs: [usize; 2],
    /// Figures that others report.
    pub reported: usize,
    /// The fastest of each cohort, fastest device first.
    pub records: Vec<Record>,
    /// The fastest that others report.
    pub fastest_reported: Option<Reported>,
    /// Devices and modes that `resolve` can be asked for.
    pub choices: Choices,
    /// Cases with the record holders' times.
    pub workloads: Option<Workloads>,
    /// Cohorts with their rankings and histories.
    pub cohorts: Vec<CohortView>,
    /// Cohorts in which nothing ranks: what they are, and their addresses.
    pub unranked: Vec<[String; 2]>,
    /// Latest runs, those that do not rank too.
    pub latest: Vec<RunLine>,
    /// Tables of other sources.
    pub sources: Vec<SourceView>,
    /// Implementations that were run here.
    pub implementations: Vec<ImplementationLine>,
    /// How many there are.
    pub implementations_total: usize,
    /// Axes, tensors, and what a caller may rely on.
    pub semantics: Semantics,
    /// What was measured where, and what is open.
    pub coverage: Option<CoverageView>,
}

/// The record of one cohort.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Record {
    /// What the cohort is.
    pub about: String,
    /// Address of the cohort.
    pub cohort: String,
    /// The device's own name.
    pub device: String,
    /// Version of the protocol.
    pub protocol: String,
    /// Who holds it.
    pub holder: Rival,
    /// Implementations that rank.
    pub contenders: usize,
    /// Runs, eligible or not.
    pub runs: usize,
}

/// The fastest figure of other sources.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reported {
    /// The source's name of the hardware.
    pub hardware: String,
    /// The source.
    pub document: String,
    /// The source's name of the protocol.
    pub protocol: String,
    /// The row.
    pub row: SourceLine,
    /// The level, which is always the lowest.
    pub trust: Standing,
}

/// What `resolve` can be asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Choices {
    /// Devices by slug and name.
    pub devices: Vec<[String; 2]>,
    /// Variable axes with the value of a typical case.
    pub axes: Vec<(String, u64)>,
}

/// Answers `/operations/{operation}`.
#[utoipa::path(get, path = "/operations/{operation}.json", tag = "pages", summary = "An operation: records, cohorts, workloads, implementations, coverage",
    params(("operation" = String, Path, description = "Slug, alias or identity")),
    responses((status = 200, body = OperationPage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    match ask.catalog().operation(&name) {
        Some(entry) => ask.reply(&OperationPage::of(ask.catalog(), entry)),
        None => ask.missing("operation", &name),
    }
}

impl OperationPage {
    /// The page of an operation of the catalog.
    pub(crate) fn of(catalog: &Catalog, entry: &OperationEntry) -> Self {
        let id = entry.id;
        let ranked = |cohort: &&kernelproof_index::catalog::CohortEntry| !cohort.ranking.is_empty();
        let cohorts: Vec<CohortView> =
            catalog.cohorts_of(id).filter(ranked).map(|cohort| CohortView::of(catalog, cohort, MOST_RANKED)).collect();
        let sources: Vec<SourceView> = catalog.sources_of(id).map(|table| SourceView::of(catalog, table)).collect();
        let mut records: Vec<Record> = cohorts.iter().filter_map(Record::of).collect();
        records.sort_by(|one, other| one.holder.time_ns.estimate.total_cmp(&other.holder.time_ns.estimate));
        let latest: Vec<_> = catalog.runs_of(id).collect();
        let eligible = latest.iter().filter(|run| run.eligibility.ranks()).count();
        let all: Vec<_> = catalog.implementations_of(id).collect();
        let mut implementations: Vec<ImplementationLine> =
            all.iter().map(|entry| ImplementationLine::of(catalog, entry)).collect();
        implementations.sort_by(ImplementationLine::by_evidence);
        implementations.truncate(MOST_IMPLEMENTATIONS);
        Self {
            twin: format!("{}.json", address::operation(&entry.slug)),
            slug: entry.slug.clone(),
            id: id.to_string(),
            title: entry.title.clone(),
            description: entry.description.clone(),
            aliases: entry.aliases.clone(),
            family: entry.spec.family.clone(),
            runs: [latest.len(), eligible],
            reported: catalog.externals().iter().filter(|external| external.spec.operation == id).count(),
            fastest_reported: fastest_reported(&sources),
            choices: Choices::of(catalog, entry),
            workloads: Workloads::of(catalog, entry),
            implementations_total: all.len(),
            semantics: Semantics::of(&entry.spec),
            coverage: catalog.coverage(id).map(CoverageView::of),
            records,
            unranked: catalog
                .cohorts_of(id)
                .filter(|cohort| cohort.ranking.is_empty())
                .take(MOST_RANKED)
                .map(|cohort| {
                    [format!("{} ({})", cohort_about(cohort), cohort.key.timer), address::cohort(&cohort.slug)]
                })
                .collect(),
            latest: latest.into_iter().rev().take(MOST_LATEST).map(|run| RunLine::of(catalog, run)).collect(),
            cohorts,
            sources,
            implementations,
        }
    }

    /// The records in large type.
    pub(crate) fn heroes(&self) -> &[Record] {
        &self.records[..self.records.len().min(MOST_HEROES)]
    }
}

impl Record {
    fn of(cohort: &CohortView) -> Option<Self> {
        let holder = cohort.ranking.first()?.clone();
        Some(Self {
            about: cohort.about.clone(),
            cohort: cohort.href.clone(),
            device: cohort.device.clone(),
            protocol: cohort.protocol.clone(),
            holder,
            contenders: cohort.contenders,
            runs: cohort.runs,
        })
    }
}

fn fastest_reported(sources: &[SourceView]) -> Option<Reported> {
    let rows = sources.iter().flat_map(|source| source.rows.iter().map(move |row| (source, row)));
    let counted = rows.filter(|(_, row)| row.corrected.is_none() && row.time_ns.is_some());
    let time = |row: &SourceLine| row.time_ns.unwrap_or(f64::INFINITY);
    let (source, row) = counted.min_by(|(_, one), (_, other)| time(one).total_cmp(&time(other)))?;
    Some(Reported {
        hardware: source.hardware.clone(),
        document: source.document.clone(),
        protocol: source.protocol.clone(),
        row: row.clone(),
        trust: Standing::reported(),
    })
}

impl Choices {
    pub(crate) fn of(catalog: &Catalog, entry: &OperationEntry) -> Self {
        let devices = catalog.devices().iter().map(|device| [device.slug.clone(), device.name.clone()]);
        let cases = entry.suites.first().map(|suite| &suite.spec.cases[..]).unwrap_or_default();
        let typical = cases.get(cases.len() / 2);
        let axes = typical.map(|case| case.axes.iter().map(|(name, value)| (name.clone(), *value)).collect());
        Self { devices: devices.collect(), axes: axes.unwrap_or_default() }
    }

    /// The same with the axes of a question.
    pub(crate) fn asked(catalog: &Catalog, entry: &OperationEntry, question: &Question) -> Self {
        let mut choices = Self::of(catalog, entry);
        for (name, value) in &mut choices.axes {
            *value = question.axes.get(name).copied().unwrap_or(*value);
        }
        choices
    }

    /// Nothing to choose.
    pub(crate) fn none() -> Self {
        Self { devices: Vec::new(), axes: Vec::new() }
    }
}

/// The time of one case, in a table of several cohorts.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CaseTime {
    /// The case's median, in ns.
    pub time_ns: Interval,
    /// Address of the run that it is of.
    pub run: String,
    /// T_sol / T against measured ceilings.
    pub share_of_light: Option<f64>,
}

/// Who holds the record of a column.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Column {
    /// What the cohort is.
    pub about: String,
    /// Address of the cohort.
    pub cohort: String,
    /// Who holds its record.
    pub holder: Maker,
    /// Address of the run.
    pub run: String,
}

/// A share as people read it, or a dash.
pub(crate) fn share(value: &Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |share| display::percent(share).to_string())
}

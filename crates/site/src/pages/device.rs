//! A device: what it can do at most, what was reached on it, and in which cohorts.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use kernelproof_eval::evaluation::{Origin, Resource};
use kernelproof_index::catalog::{Catalog, DeviceEntry, mode_name};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::Ask;
use crate::display;
use crate::plot::{Roof, Roofline, RooflinePoint};
use crate::view::{CohortView, RunLine, address};

/// Runs that are listed, rows of each ranking, and runs whose cases are drawn.
const MOST_RUNS: usize = 100;
const MOST_RANKED: usize = 5;
const MOST_DRAWN: usize = 6;

/// The page of a device.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "device.html")]
pub(crate) struct DevicePage {
    /// Address of this as JSON.
    pub twin: String,
    /// Its name in addresses.
    pub slug: String,
    /// Its own name.
    pub name: String,
    /// `cpu` or `cuda`.
    pub kind: String,
    /// What its latest run met: the driver, or the kernel of the operating system.
    pub driver: Option<String>,
    /// What it can do at most.
    pub ceilings: Vec<CeilingLine>,
    /// What record holders reached, case by case.
    pub reached: Vec<Reached>,
    /// Cohorts on it.
    pub cohorts: Vec<CohortView>,
    /// Latest runs.
    pub runs: Vec<RunLine>,
    /// How many there are.
    pub runs_total: usize,
    /// The roofline; `None` where no ceiling is known.
    #[serde(skip)]
    pub svg: Option<String>,
}

/// The most that the device does of one thing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CeilingLine {
    /// `arithmetic` or `bandwidth`.
    pub resource: &'static str,
    /// `measured` or `datasheet`; never mixed.
    pub origin: &'static str,
    /// The mode that it holds for.
    pub mode: Option<&'static str>,
    /// Operations or bytes per ns.
    pub per_ns: f64,
    /// The datasheet, or what was run.
    pub source: String,
}

/// What a run reached.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reached {
    /// Who, and in which mode.
    pub name: String,
    /// Address of the run.
    pub run: String,
    /// Its cases.
    pub cases: Vec<ReachedCase>,
}

/// A case as the roofline sees it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReachedCase {
    /// The case.
    pub case: String,
    /// Operations per byte that must be moved.
    pub flops_per_byte: f64,
    /// Operations per ns.
    pub flops_per_ns: f64,
}

/// Answers `/devices/{device}`.
#[utoipa::path(get, path = "/devices/{device}.json", tag = "pages", summary = "A device: ceilings, what was reached, cohorts",
    params(("device" = String, Path, description = "Slug or name")),
    responses((status = 200, body = DevicePage), (status = 404, body = crate::ask::Problem)))]
pub(crate) async fn page(ask: Ask, Path(name): Path<String>) -> Response {
    match ask.catalog().device(&name) {
        Some(entry) => ask.reply(&DevicePage::of(ask.catalog(), entry)),
        None => ask.missing("device", &name),
    }
}

impl DevicePage {
    /// The page of a device of the catalog.
    pub(crate) fn of(catalog: &Catalog, entry: &DeviceEntry) -> Self {
        let cohorts: Vec<_> = entry.cohorts.iter().filter_map(|id| catalog.cohort(id)).collect();
        let ceilings: Vec<CeilingLine> = entry.ceilings.iter().map(CeilingLine::of).collect();
        let holders = cohorts.iter().filter_map(|cohort| catalog.run(&cohort.ranking.first()?.run));
        let reached: Vec<Reached> = holders.take(MOST_DRAWN).map(Reached::of).collect();
        let runs = entry.runs.iter().take(MOST_RUNS).filter_map(|id| catalog.run(id));
        Self {
            twin: format!("{}.json", address::device(&entry.slug)),
            slug: entry.slug.clone(),
            name: entry.name.clone(),
            kind: entry.kind.clone(),
            driver: entry.driver.clone(),
            svg: roofline(&entry.name, &ceilings, &reached),
            ceilings,
            reached,
            cohorts: cohorts.iter().map(|cohort| CohortView::of(catalog, cohort, MOST_RANKED)).collect(),
            runs: runs.map(|run| RunLine::of(catalog, run)).collect(),
            runs_total: entry.runs.len(),
        }
    }
}

impl Reached {
    fn of(run: &kernelproof_index::catalog::RunEntry) -> Self {
        let facts = &run.facts;
        let case = |case: &kernelproof_index::catalog::CaseFacts| {
            let time = case.time_ns().filter(|time| time.estimate > 0.0)?;
            Some(ReachedCase {
                case: case.name.clone(),
                flops_per_byte: case.flops as f64 / case.min_bytes.max(1) as f64,
                flops_per_ns: case.flops as f64 / time.estimate,
            })
        };
        Self {
            name: format!("{}, {}", facts.implementation.name, mode_name(facts.implementation.mode)),
            run: address::run(&run.slug),
            cases: facts.cases.iter().filter_map(case).collect(),
        }
    }
}

impl CeilingLine {
    fn of(ceiling: &kernelproof_eval::evaluation::Ceiling) -> Self {
        Self {
            resource: match ceiling.resource {
                Resource::Arithmetic => "arithmetic",
                Resource::Bandwidth => "bandwidth",
            },
            origin: match ceiling.origin {
                Origin::Datasheet => "datasheet",
                Origin::Measured => "measured",
            },
            mode: ceiling.precision.map(mode_name),
            per_ns: ceiling.per_ns,
            source: ceiling.source.clone(),
        }
    }

    fn rate(&self) -> String {
        match self.resource {
            "arithmetic" => display::gflops(self.per_ns).to_string(),
            _ => format!("{}\u{202f}GB/s", display::digits(self.per_ns, None)),
        }
    }
}

/// A roof for each mode and origin that has both an arithmetic and a bandwidth ceiling.
fn roofline(device: &str, ceilings: &[CeilingLine], reached: &[Reached]) -> Option<String> {
    let roof = |arithmetic: &CeilingLine| {
        let bandwidths =
            ceilings.iter().filter(|found| found.resource == "bandwidth" && found.origin == arithmetic.origin);
        let bytes_per_ns = bandwidths.map(|found| found.per_ns).reduce(f64::max)?;
        Some(Roof {
            name: format!("{} {}", arithmetic.mode.unwrap_or("all modes"), arithmetic.origin),
            flops_per_ns: arithmetic.per_ns,
            bytes_per_ns,
            datasheet: arithmetic.origin == "datasheet",
        })
    };
    let roofs: Vec<Roof> = ceilings.iter().filter(|found| found.resource == "arithmetic").filter_map(roof).collect();
    let point = |(series, run): (usize, &Reached)| {
        let points = run.cases.iter().map(|case| RooflinePoint {
            name: format!("{} {}", run.name, case.case),
            flops_per_byte: case.flops_per_byte,
            flops_per_ns: case.flops_per_ns,
            series,
        });
        points.collect::<Vec<_>>()
    };
    let points: Vec<RooflinePoint> = reached.iter().enumerate().flat_map(point).collect();
    Roofline { title: &format!("Roofline of {device}"), roofs: &roofs, points: &points }.svg()
}

//! The cases of a suite, with the time that each cohort's record holder took.

use kernelproof_index::catalog::{Catalog, OperationEntry};
use serde::Serialize;
use utoipa::ToSchema;

use super::{CaseTime, Column};
use crate::view::{Maker, address};

/// Cohorts that the table has room for; the others have their own pages.
const MOST_COLUMNS: usize = 6;

/// The cases of one suite.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Workloads {
    /// The suite's name.
    pub suite: String,
    /// The suite's identity.
    pub suite_id: String,
    /// Axes that the cases set, in the order of the rows' values.
    pub axes: Vec<String>,
    /// Cohorts, one column each.
    pub columns: Vec<Column>,
    /// One row per case.
    pub rows: Vec<Workload>,
    /// What the inputs are made of, by group.
    pub inputs: Vec<[String; 2]>,
    /// The generator of the inputs, and the seed that everyone uses.
    pub generator: String,
    /// How far a result may be off: mode, normwise, componentwise, unmatched.
    pub bounds: Vec<Bound>,
}

/// One case.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Workload {
    /// Its name.
    pub name: String,
    /// First digits of the SHA-256 of all its axes.
    pub id: String,
    /// Values of the axes.
    pub axes: Vec<u64>,
    /// Least arithmetic, where a run says so.
    pub flops: Option<u64>,
    /// Times in the order of the columns.
    pub times: Vec<Option<CaseTime>>,
}

/// How far a result may be off in one mode.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Bound {
    /// The mode.
    pub mode: &'static str,
    /// Bound of the normwise error.
    pub normwise: f64,
    /// Bound of an error of a component.
    pub componentwise: f64,
    /// Most elements that may be outside the elementwise allowance, as a share.
    pub unmatched: f64,
}

impl Workloads {
    /// The first suite of an operation.
    pub(crate) fn of(catalog: &Catalog, entry: &OperationEntry) -> Option<Self> {
        let suite = entry.suites.first()?;
        let holders: Vec<_> = catalog
            .cohorts_of(entry.id)
            .filter(|cohort| cohort.key.suite == suite.id)
            .filter_map(|cohort| Some((cohort, catalog.run(&cohort.ranking.first()?.run)?)))
            .take(MOST_COLUMNS)
            .collect();
        let columns = holders.iter().map(|(cohort, run)| Column {
            about: crate::view::cohort_about(cohort),
            cohort: address::cohort(&cohort.slug),
            holder: Maker::of_run(catalog, run),
            run: address::run(&run.slug),
        });
        let rows = suite.spec.cases.iter().map(|case| {
            let found: Vec<_> = holders.iter().map(|(_, run)| (run, run.facts.case(&case.name))).collect();
            let time = |(run, facts): &(
                &&kernelproof_index::catalog::RunEntry,
                Option<&kernelproof_index::catalog::CaseFacts>,
            )| {
                let facts = (*facts)?;
                Some(CaseTime {
                    time_ns: facts.time_ns()?.into(),
                    run: format!("{}#{}", address::run(&run.slug), case.name),
                    share_of_light: facts.measured_share(),
                })
            };
            Workload {
                name: case.name.clone(),
                id: case.id.clone(),
                axes: case.axes.values().copied().collect(),
                flops: found.iter().find_map(|(_, facts)| facts.map(|facts| facts.flops)),
                times: found.iter().map(time).collect(),
            }
        });
        let axes = suite.spec.cases.first().map(|case| case.axes.keys().cloned().collect());
        Some(Self {
            suite: suite.spec.name.clone(),
            suite_id: suite.id.to_string(),
            axes: axes.unwrap_or_default(),
            columns: columns.collect(),
            rows: rows.collect(),
            inputs: suite.spec.inputs.distributions.iter().map(|(name, rule)| [name.clone(), rule.clone()]).collect(),
            generator: format!("{}, seed {}", suite.spec.inputs.generator, suite.spec.inputs.seed),
            bounds: suite.spec.bounds.iter().map(Bound::of).collect(),
        })
    }
}

impl Workload {
    pub(super) fn arithmetic(&self) -> String {
        self.flops.map_or_else(|| "–".to_owned(), |flops| crate::display::flops(flops as f64).to_string())
    }
}

impl Bound {
    fn of(bounds: &kernelproof_index::suite::ModeBounds) -> Self {
        Self {
            mode: kernelproof_index::catalog::mode_name(bounds.mode),
            normwise: bounds.bounds.normwise,
            componentwise: bounds.bounds.componentwise,
            unmatched: bounds.bounds.unmatched,
        }
    }
}

//! Implementations of an operation: whether they can be had, and the best that each did.

use std::cmp::Ordering;

use kernelproof_index::catalog::{Catalog, ImplementationEntry, mode_name};
use serde::Serialize;
use utoipa::ToSchema;

use crate::view::{Interval, Maker, Standing, address};

/// An implementation with its best eligible runs.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ImplementationLine {
    /// Who.
    pub implementation: Maker,
    /// Languages that it is written in.
    pub languages: Vec<String>,
    /// How it rounds operands.
    pub mode: &'static str,
    /// Its fastest eligible run of each cohort.
    pub best: Vec<Best>,
    /// All its runs.
    pub runs: usize,
}

/// The fastest eligible run of an implementation in a cohort.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Best {
    /// What the cohort is.
    pub about: String,
    /// Address of the run.
    pub run: String,
    /// Geometric mean over the suite, in ns.
    pub time_ns: Interval,
    /// How far it can be trusted.
    pub trust: Standing,
}

impl ImplementationLine {
    /// The line of an implementation.
    pub(crate) fn of(catalog: &Catalog, entry: &ImplementationEntry) -> Self {
        let best = entry.best.iter().filter_map(|id| {
            let run = catalog.run(id)?;
            Some(Best {
                about: crate::view::cohort_about(catalog.cohort(&run.cohort)?),
                run: address::run(&run.slug),
                time_ns: run.facts.time_ns()?.into(),
                trust: Standing::of(catalog, &run.trust),
            })
        });
        Self {
            implementation: Maker::of(entry),
            languages: entry.spec.languages.clone(),
            mode: mode_name(entry.spec.mode),
            best: best.collect(),
            runs: entry.runs.len(),
        }
    }

    /// Those that rank first, those that can be had before the others, then by name.
    pub(crate) fn by_evidence(one: &Self, other: &Self) -> Ordering {
        let key =
            |line: &Self| (line.best.is_empty(), line.implementation.missing.len(), line.implementation.name.clone());
        key(one).cmp(&key(other))
    }
}

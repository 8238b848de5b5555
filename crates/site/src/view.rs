//! What pages and their JSON twins have in common: values joined from the catalog, in stored units.
//!
//! One structure serves both: a template formats it, serde writes it.

mod cohort;
mod figure;
pub mod fragment;
mod maker;
mod source;
mod trust;

pub use cohort::{CohortView, HistoryRow, Rival, about as cohort_about};
pub use figure::Interval;
pub use maker::Maker;
pub use source::{SourceLine, SourceView};
pub use trust::{Standing, level_name as level};

use kernelproof_index::catalog::{Catalog, RunEntry, RunStatus};
use serde::Serialize;
use utoipa::ToSchema;

/// A run, as lists name it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunLine {
    /// First digits of its identity.
    pub slug: String,
    /// Its page.
    pub href: String,
    /// Who ran.
    pub implementation: Maker,
    /// On what.
    pub device: String,
    /// `cpu` or `cuda`.
    pub device_kind: String,
    /// Threads that it was given.
    pub threads: u64,
    /// How operands are rounded.
    pub mode: &'static str,
    /// Start, UTC, RFC 3339.
    pub observed: String,
    /// Geometric mean over the suite, in ns; `None` where a case did not pass.
    pub time_ns: Option<Interval>,
    /// Cases that passed, and all.
    pub passed: [usize; 2],
    /// `eligible`, `unranked`, `failed`, `superseded` or `retracted`.
    pub status: &'static str,
    /// Every reason why it does not rank.
    pub reasons: Vec<String>,
    /// How far it can be trusted.
    pub trust: Standing,
}

impl RunLine {
    /// The line of a run.
    pub fn of(catalog: &Catalog, run: &RunEntry) -> Self {
        let facts = &run.facts;
        Self {
            slug: run.slug.clone(),
            href: address::run(&run.slug),
            implementation: Maker::of_run(catalog, run),
            device: facts.environment.device.clone(),
            device_kind: facts.device_kind.clone(),
            threads: facts.environment.threads,
            mode: kernelproof_index::catalog::mode_name(facts.implementation.mode),
            observed: facts.observed.clone(),
            time_ns: facts.time_ns().map(Interval::from),
            passed: [facts.measured.passed, facts.measured.cases],
            status: status_name(run.eligibility.status),
            reasons: run.eligibility.reasons.iter().map(ToString::to_string).collect(),
            trust: Standing::of(catalog, &run.trust),
        }
    }

    /// The device, on a CPU with the number of threads.
    pub fn device_text(&self) -> String {
        match (self.device_kind.as_str(), self.threads) {
            ("cpu", 1) => format!("{}, 1 thread", self.device),
            ("cpu", threads) => format!("{}, {threads} threads", self.device),
            _ => self.device.clone(),
        }
    }

    /// Whether it ranks.
    pub fn ranks(&self) -> bool {
        self.status == "eligible"
    }
}

/// The name of a status in JSON and on pages.
pub fn status_name(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Eligible => "eligible",
        RunStatus::Unranked => "unranked",
        RunStatus::Failed => "failed",
        RunStatus::Superseded => "superseded",
        RunStatus::Retracted => "retracted",
    }
}

/// Addresses of pages. Names in them are slugs, which need no escaping.
pub mod address {
    /// An operation's page.
    pub fn operation(slug: &str) -> String {
        format!("/operations/{slug}")
    }

    /// A run's page.
    pub fn run(slug: &str) -> String {
        format!("/runs/{slug}")
    }

    /// A cohort's page.
    pub fn cohort(slug: &str) -> String {
        format!("/cohorts/{slug}")
    }

    /// An implementation's page.
    pub fn implementation(slug: &str) -> String {
        format!("/implementations/{slug}")
    }

    /// A device's page.
    pub fn device(slug: &str) -> String {
        format!("/devices/{slug}")
    }

    /// A protocol's page.
    pub fn protocol(digits: &str) -> String {
        format!("/protocols/{digits}")
    }

    /// The page of another source's figure.
    pub fn external(slug: &str) -> String {
        format!("/reported/{slug}")
    }

    /// Two runs beside each other, the first as the base.
    pub fn compare(base: &str, other: &str) -> String {
        format!("/compare/{base}..{other}")
    }
}

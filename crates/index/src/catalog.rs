//! The read model: everything that pages, API and export show, as one immutable value in memory.
//!
//! [`Catalog::build`] is a pure function of [`Facts`], which the store hands out: no clock, no files, no order of arrival.
//! A catalog is meant to be held in an `Arc` and replaced whole when [`Catalog::generation`] changes. All queries borrow.
//!
//! What is too large for memory (samples, checked rounds, logs) is read from the bundle through [`Documents`].
//!
//! Units: `_ns` nanoseconds, `_bytes` bytes; ratios and shares are plain numbers.

mod build;
mod cohort;
mod compare;
mod correction;
mod coverage;
mod device;
mod documents;
mod eligibility;
mod estimate;
#[cfg(any(test, feature = "testing"))]
mod example;
mod external;
mod facts;
mod implementation;
mod operation;
mod resolve;
mod run;
mod search;
mod standing;
#[cfg(test)]
mod tests;
mod trust;

use std::collections::HashMap;

use crate::correction::Correction;
use crate::external::ExternalRun;
use crate::identity::Digest;
use crate::manifest::Manifest;
use crate::operation::Operation;
use crate::suite::Suite;

pub use cohort::{CohortEntry, CohortKey, CurrentRecord, Noise, RankingRow, RecordStep, mode_name};
pub use compare::{CohortDifference, Compared, ComparedCase, Comparison};
pub use correction::CorrectionEntry;
pub use coverage::{Challenge, Coverage, CoverageCell};
pub use device::DeviceEntry;
pub use documents::{DocumentError, Documents, evaluation};
pub use eligibility::{Eligibility, Reason, RunStatus, eligibility};
#[cfg(any(test, feature = "testing"))]
pub use example::ExampleDocuments;
pub use external::{ExternalEntry, SourceRow, SourceTable};
pub use implementation::{Availability, ImplementationEntry};
pub use operation::{OperationEntry, SuiteEntry};
pub use resolve::{Exclusion, Question, Resolution, ResolveError, Resolved, ResolvedCohort};
pub(crate) use run::FACTS_VERSION;
pub use run::{
    AggregateFacts, CaseFacts, CorrectnessFacts, Estimate, FileFacts, Origin, RunEntry, RunFacts, SampleFacts,
};
pub use search::{Hit, HitKind};
pub use trust::{Stale, TrustFacts};

/// Everything stored, without anything that follows from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Number of changes that the store has seen.
    pub generation: u64,
    /// Operations with their identities.
    pub operations: Vec<(Digest, Manifest<Operation>)>,
    /// Suites with their identities.
    pub suites: Vec<(Digest, Manifest<Suite>)>,
    /// Runs of ours.
    pub runs: Vec<RunFacts>,
    /// Figures of others with their identities.
    pub externals: Vec<(Digest, Manifest<ExternalRun>)>,
    /// Corrections with their identities.
    pub corrections: Vec<(Digest, Manifest<Correction>)>,
}

/// The read model. See the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub struct Catalog {
    generation: u64,
    operations: Vec<OperationEntry>,
    implementations: Vec<ImplementationEntry>,
    devices: Vec<DeviceEntry>,
    cohorts: Vec<CohortEntry>,
    runs: Vec<RunEntry>,
    externals: Vec<ExternalEntry>,
    sources: Vec<SourceTable>,
    corrections: Vec<CorrectionEntry>,
    coverage: Vec<Coverage>,
    search: Vec<search::Entry>,
    /// Place of each in its list.
    places: HashMap<Digest, Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Operation(usize),
    Implementation(usize),
    Cohort(usize),
    Run(usize),
    External(usize),
}

impl Catalog {
    /// Number of changes that the store had seen when this was built. Another number, another catalog.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// All operations, by slug.
    pub fn operations(&self) -> &[OperationEntry] {
        &self.operations
    }

    /// The operation of this identity, slug, alias or beginning of an identity's digits (at least 8).
    pub fn operation(&self, name: &str) -> Option<&OperationEntry> {
        let named = |entry: &&OperationEntry| entry.slug == name || entry.aliases.iter().any(|alias| alias == name);
        self.operations.iter().find(named).or_else(|| by_digits(&self.operations, |entry| entry.id, name))
    }

    /// All implementations, by slug.
    pub fn implementations(&self) -> &[ImplementationEntry] {
        &self.implementations
    }

    /// The implementation of this slug, identity or beginning of its digits.
    pub fn implementation(&self, name: &str) -> Option<&ImplementationEntry> {
        let named = self.implementations.iter().find(|entry| entry.slug == name);
        named.or_else(|| by_digits(&self.implementations, |entry| entry.id, name))
    }

    /// The implementation of this identity.
    pub fn implementation_of(&self, id: &Digest) -> Option<&ImplementationEntry> {
        match self.places.get(id)? {
            Place::Implementation(place) => self.implementations.get(*place),
            _ => None,
        }
    }

    /// All devices, by slug.
    pub fn devices(&self) -> &[DeviceEntry] {
        &self.devices
    }

    /// The device of this slug or name.
    pub fn device(&self, name: &str) -> Option<&DeviceEntry> {
        self.devices.iter().find(|entry| entry.slug == name || entry.name == name)
    }

    /// All runs of ours, eligible or not, by (observed, id).
    pub fn runs(&self) -> &[RunEntry] {
        &self.runs
    }

    /// The run of this identity.
    pub fn run(&self, id: &Digest) -> Option<&RunEntry> {
        match self.places.get(id)? {
            Place::Run(place) => self.runs.get(*place),
            _ => None,
        }
    }

    /// The run of this slug, bundle name, identity or beginning of its digits (at least 8).
    pub fn run_named(&self, name: &str) -> Option<&RunEntry> {
        // The last part of a bundle's name is digits of the run's identity.
        let digits = name.rsplit_once('-').map_or(name, |(_, digits)| digits);
        by_digits(&self.runs, |entry| entry.facts.id, digits)
            .filter(|entry| !name.contains('-') || entry.facts.name == name)
    }

    /// All cohorts, by (device, mode, protocol, id).
    pub fn cohorts(&self) -> &[CohortEntry] {
        &self.cohorts
    }

    /// The cohort of this identity.
    pub fn cohort(&self, id: &Digest) -> Option<&CohortEntry> {
        match self.places.get(id)? {
            Place::Cohort(place) => self.cohorts.get(*place),
            _ => None,
        }
    }

    /// The cohort of this slug, identity or beginning of its digits.
    pub fn cohort_named(&self, name: &str) -> Option<&CohortEntry> {
        by_digits(&self.cohorts, |entry| entry.id, name)
    }

    /// The cohorts of an operation.
    pub fn cohorts_of(&self, operation: Digest) -> impl Iterator<Item = &CohortEntry> {
        self.cohorts.iter().filter(move |cohort| cohort.key.operation == operation)
    }

    /// The runs of an operation, by (observed, id).
    pub fn runs_of(&self, operation: Digest) -> impl Iterator<Item = &RunEntry> {
        self.runs.iter().filter(move |run| run.facts.operation == operation)
    }

    /// The implementations that were run on an operation.
    pub fn implementations_of(&self, operation: Digest) -> impl Iterator<Item = &ImplementationEntry> {
        self.implementations.iter().filter(move |entry| entry.operations.contains(&operation))
    }

    /// The record that holds in each cohort of an operation; cohorts without one are left out.
    pub fn current_records(&self, operation: Digest) -> impl Iterator<Item = CurrentRecord> {
        self.cohorts_of(operation).filter_map(CohortEntry::current_record)
    }

    /// Figures of others, by (source, hardware, time).
    pub fn externals(&self) -> &[ExternalEntry] {
        &self.externals
    }

    /// The external run of this identity.
    pub fn external(&self, id: &Digest) -> Option<&ExternalEntry> {
        match self.places.get(id)? {
            Place::External(place) => self.externals.get(*place),
            _ => None,
        }
    }

    /// The external run of this slug, identity or beginning of its digits.
    pub fn external_named(&self, name: &str) -> Option<&ExternalEntry> {
        by_digits(&self.externals, |entry| entry.id, name)
    }

    /// The tables of other sources for an operation.
    pub fn sources_of(&self, operation: Digest) -> impl Iterator<Item = &SourceTable> {
        self.sources.iter().filter(move |table| table.operation == operation)
    }

    /// The tables of other sources.
    pub fn sources(&self) -> &[SourceTable] {
        &self.sources
    }

    /// All corrections, by (decided, id).
    pub fn corrections(&self) -> &[CorrectionEntry] {
        &self.corrections
    }

    /// What was measured for an operation, and what is open.
    pub fn coverage(&self, operation: Digest) -> Option<&Coverage> {
        self.coverage.iter().find(|coverage| coverage.operation == operation)
    }
}

/// Fewest digits that name something.
const LEAST_DIGITS: usize = 8;

/// The only entry whose digits begin with `name`, which may have the prefix `sha256:`.
fn by_digits<'a, T>(entries: &'a [T], id: impl Fn(&T) -> Digest, name: &str) -> Option<&'a T> {
    let digits = name.strip_prefix("sha256:").unwrap_or(name);
    if digits.len() < LEAST_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut found = entries.iter().filter(|entry| id(entry).starts_with(digits));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

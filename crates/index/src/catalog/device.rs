//! Devices as pages show them.

use std::collections::BTreeMap;

use kernelproof_eval::evaluation::Ceiling;
use serde::Serialize;

use crate::identity::Digest;

use super::build::{distinct_slugs, slug};
use super::cohort::CohortEntry;
use super::run::{RunEntry, RunFacts};
use super::trust::driver;

/// A device that runs were made on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceEntry {
    /// Its name in addresses.
    pub slug: String,
    /// Its own name.
    pub name: String,
    /// `cpu`, `cuda`.
    pub kind: String,
    /// Runs on it, latest first.
    pub runs: Vec<Digest>,
    /// Cohorts on it.
    pub cohorts: Vec<Digest>,
    /// The driver that its latest run met (on a CPU: the kernel of the operating system).
    pub driver: Option<String>,
    /// Ceilings of the latest run that has any.
    pub ceilings: Vec<Ceiling>,
}

/// The devices of these runs, which are by (observed, id).
pub(super) fn entries(runs: &[RunEntry], cohorts: &[CohortEntry]) -> Vec<DeviceEntry> {
    let mut by_name = BTreeMap::<&str, Vec<&RunFacts>>::new();
    for run in runs.iter().rev() {
        by_name.entry(&run.facts.environment.device).or_default().push(&run.facts);
    }
    let names: Vec<(String, Digest)> = by_name.keys().map(|name| (slug(name), Digest::of(name.as_bytes()))).collect();
    let entry = |((name, runs), slug): ((&str, Vec<&RunFacts>), String)| DeviceEntry {
        slug,
        name: name.to_owned(),
        kind: runs.first().map(|run| run.device_kind.clone()).unwrap_or_default(),
        cohorts: cohorts.iter().filter(|cohort| cohort.key.device == name).map(|cohort| cohort.id).collect(),
        driver: runs.first().map(|run| driver(&run.environment).to_owned()),
        ceilings: runs.iter().map(|run| run.ceilings.clone()).find(|found| !found.is_empty()).unwrap_or_default(),
        runs: runs.iter().map(|run| run.id).collect(),
    };
    let slugs = distinct_slugs(&names);
    let mut entries: Vec<DeviceEntry> = by_name.into_iter().zip(slugs).map(entry).collect();
    entries.sort_by(|one, other| one.slug.cmp(&other.slug));
    entries
}

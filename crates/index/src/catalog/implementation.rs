//! Implementations as pages show them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::bundle::SOLUTION;
use crate::identity::Digest;
use crate::implementation::{Implementation, Source};

use super::build::{distinct_slugs, slug, sorted};
use super::cohort::CohortEntry;
use super::run::{RunEntry, RunFacts};

/// One implementation: a source at a version, with its runs. Running it again adds a run, not an implementation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImplementationEntry {
    /// Its identity.
    pub id: Digest,
    /// Its name in addresses; no other implementation has it.
    pub slug: String,
    /// Name, author, source, licence, install command, devices, mode, binaries.
    pub spec: Arc<Implementation>,
    /// Operations that it was run on.
    pub operations: Vec<Digest>,
    /// Names of the devices that it was run on.
    pub devices: Vec<String>,
    /// Its runs, latest first.
    pub runs: Vec<Digest>,
    /// Its fastest eligible run of each cohort.
    pub best: Vec<Digest>,
    /// What can be had, and what cannot.
    pub availability: Availability,
}

/// Whether anyone can have an implementation. Each is `None` where nobody said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Availability {
    /// SPDX expression.
    pub licence: Option<String>,
    /// Where its source is: a repository, or `in the bundle`.
    pub source: Option<String>,
    /// Which version of it.
    pub version: Option<String>,
    /// A command that installs or builds it.
    pub install: Option<String>,
    /// What is missing, in words: `no licence`, `no source`, `no install recipe`.
    pub missing: Vec<String>,
}

/// The implementations of these runs, which are by (observed, id).
pub(super) fn entries(runs: &[RunEntry], cohorts: &[CohortEntry]) -> Vec<ImplementationEntry> {
    let mut members = BTreeMap::<Digest, Vec<&RunFacts>>::new();
    for run in runs.iter().rev() {
        members.entry(run.facts.implementation_id).or_default().push(&run.facts);
    }
    let mut best = BTreeMap::<Digest, Vec<Digest>>::new();
    for row in cohorts.iter().flat_map(|cohort| &cohort.ranking) {
        best.entry(row.implementation).or_default().push(row.run);
    }
    let named = members.iter().filter_map(|(id, runs)| Some((slug(&runs.first()?.implementation.name), *id)));
    let slugs = distinct_slugs(&named.collect::<Vec<_>>());
    let entry = |((id, runs), slug): ((Digest, Vec<&RunFacts>), String)| {
        let latest = *runs.first()?;
        Some(ImplementationEntry {
            id,
            slug,
            spec: Arc::clone(&latest.implementation),
            operations: sorted(runs.iter().map(|run| run.operation)),
            devices: sorted(runs.iter().map(|run| run.environment.device.clone())),
            best: best.remove(&id).unwrap_or_default(),
            availability: Availability::of(&latest.implementation, &runs),
            runs: runs.iter().map(|run| run.id).collect(),
        })
    };
    let mut entries: Vec<ImplementationEntry> = members.into_iter().zip(slugs).filter_map(entry).collect();
    entries.sort_by(|one, other| one.slug.cmp(&other.slug));
    entries
}

impl Availability {
    fn of(implementation: &Implementation, runs: &[&RunFacts]) -> Self {
        let Implementation { licence, install, source: Source { repository, commit, digest }, .. } = implementation;
        let known = |text: &Option<String>| text.clone().filter(|text| text != "unknown");
        let in_bundle = runs.iter().any(|run| run.files.contains_key(SOLUTION));
        let source = known(repository).or_else(|| in_bundle.then(|| "in the bundle".to_owned()));
        let (licence, install) = (known(licence), known(install));
        let facts = [
            (licence.is_some(), "no licence"),
            (source.is_some(), "no source"),
            (install.is_some(), "no install recipe"),
        ];
        let missing = facts.iter().filter(|(there, _)| !there).map(|(_, what)| (*what).to_owned());
        Self {
            missing: missing.collect(),
            version: known(commit).or_else(|| digest.map(|digest| digest.to_string())),
            licence,
            source,
            install,
        }
    }
}

//! From facts to the read model, as a pure function.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::identity::Digest;
use crate::manifest::Manifest;
use crate::operation::Operation;

use super::cohort::{CohortEntry, CohortKey};
use super::correction::CorrectionEntry;
use super::eligibility::eligibility;
use super::operation::{OperationEntry, SuiteEntry};
use super::run::{Origin, RunEntry, RunFacts};
use super::trust::{Current, TrustFacts, driver, trust};
use super::{Catalog, Facts, Place, coverage, device, external, implementation, search};

impl Catalog {
    /// The catalog of these facts. The same facts give the same catalog, in whatever order they are listed.
    pub fn build(facts: Facts) -> Self {
        let Facts { generation, operations, suites, runs, externals, corrections } = facts;
        let operations = entries(operations, suites);
        let mut corrections: Vec<CorrectionEntry> =
            corrections.into_iter().map(|(id, manifest)| CorrectionEntry { id, spec: manifest.spec }).collect();
        corrections.sort_by_cached_key(|entry| (moment(&entry.spec.decided), entry.id));
        corrections.dedup();
        let runs = judged(runs, &operations, &corrections);
        let cohorts = cohorts(&runs);
        let devices = device::entries(&runs, &cohorts);
        let implementations = implementation::entries(&runs, &cohorts);
        let externals = external::entries(externals, &corrections);
        let sources = external::tables(&externals);
        let mut catalog = Self {
            generation,
            operations,
            implementations,
            devices,
            cohorts,
            runs,
            externals,
            sources,
            corrections,
            coverage: Vec::new(),
            search: Vec::new(),
            places: HashMap::new(),
        };
        catalog.places = catalog.index();
        catalog.coverage = catalog.operations.iter().map(|operation| coverage::of(&catalog, operation)).collect();
        catalog.search = search::entries(&catalog);
        catalog
    }

    fn index(&self) -> HashMap<Digest, Place> {
        let operations = self.operations.iter().enumerate().map(|(place, entry)| (entry.id, Place::Operation(place)));
        let runs = self.runs.iter().enumerate().map(|(place, entry)| (entry.facts.id, Place::Run(place)));
        let cohorts = self.cohorts.iter().enumerate().map(|(place, entry)| (entry.id, Place::Cohort(place)));
        let externals = self.externals.iter().enumerate().map(|(place, entry)| (entry.id, Place::External(place)));
        let implementations = self.implementations.iter().enumerate();
        let implementations = implementations.map(|(place, entry)| (entry.id, Place::Implementation(place)));
        operations.chain(runs).chain(cohorts).chain(externals).chain(implementations).collect()
    }
}

/// A moment in nanoseconds since 1970. Texts of different precision do not sort as moments do. What is no moment comes first.
pub(super) fn moment(text: &str) -> i128 {
    text.parse::<jiff::Timestamp>().map_or(i128::MIN, jiff::Timestamp::as_nanosecond)
}

/// A name for addresses: lower-case letters, digits and single `-`, at most 64 long.
pub(super) fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars() {
        match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => slug.push(letter),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(64);
    slug.trim_end_matches('-').to_owned()
}

/// Gives every entry a slug that no other has: the plain one where it is alone with it, otherwise with digits.
pub(super) fn distinct_slugs(names: &[(String, Digest)]) -> Vec<String> {
    let mut counts = HashMap::<&str, usize>::new();
    for (slug, _) in names {
        *counts.entry(slug).or_default() += 1;
    }
    let of = |(slug, id): &(String, Digest)| match (slug.as_str(), counts.get(slug.as_str())) {
        ("", _) => id.short(),
        (slug, Some(1)) => slug.to_owned(),
        (slug, _) => format!("{slug}-{}", id.short()),
    };
    names.iter().map(of).collect()
}

fn entries(
    operations: Vec<(Digest, Manifest<Operation>)>,
    suites: Vec<(Digest, Manifest<crate::suite::Suite>)>,
) -> Vec<OperationEntry> {
    let mut of = BTreeMap::<Digest, BTreeMap<Digest, SuiteEntry>>::new();
    for (id, suite) in suites {
        of.entry(suite.spec.operation).or_default().insert(id, SuiteEntry { id, spec: suite.spec });
    }
    // The last one said of an operation holds: metadata may be edited.
    let operations: BTreeMap<Digest, Manifest<Operation>> = operations.into_iter().collect();
    let names: Vec<(String, Digest)> =
        operations.iter().map(|(id, operation)| (operation_slug(of.get(id), operation), *id)).collect();
    let slugs = distinct_slugs(&names);
    let entry =
        |((id, Manifest { metadata, spec, .. }), slug): ((Digest, Manifest<Operation>), String)| OperationEntry {
            id,
            slug,
            title: metadata.title.unwrap_or_else(|| spec.family.clone()),
            description: metadata.description,
            aliases: metadata.aliases,
            spec,
            suites: of.remove(&id).unwrap_or_default().into_values().collect(),
        };
    let mut entries: Vec<OperationEntry> = operations.into_iter().zip(slugs).map(entry).collect();
    entries.sort_by(|one, other| one.slug.cmp(&other.slug));
    entries
}

/// An operation is called as its first suite is: short, and what commands print.
fn operation_slug(suites: Option<&BTreeMap<Digest, SuiteEntry>>, operation: &Manifest<Operation>) -> String {
    let suite = suites.and_then(|suites| suites.values().next()).map(|suite| suite.spec.name.as_str());
    slug(suite.or(operation.metadata.title.as_deref()).unwrap_or(&operation.spec.family))
}

/// All runs by (observed, id), each with its cohort, its eligibility and its trust.
fn judged(mut runs: Vec<RunFacts>, operations: &[OperationEntry], corrections: &[CorrectionEntry]) -> Vec<RunEntry> {
    runs.sort_by_cached_key(|run| (moment(&run.observed), run.id));
    runs.dedup_by_key(|run| run.id);
    share_manifests(&mut runs);
    let mut about = HashMap::<Digest, Vec<&CorrectionEntry>>::new();
    for correction in corrections {
        about.entry(correction.spec.target).or_default().push(correction);
    }
    let suite_cases: HashMap<Digest, usize> = operations
        .iter()
        .flat_map(|operation| &operation.suites)
        .map(|suite| (suite.id, suite.spec.cases.len()))
        .collect();
    let mut cohort_ids = HashMap::<CohortKey, Digest>::new();
    let mut entries = Vec::with_capacity(runs.len());
    for facts in runs {
        let corrections = about.get(&facts.id).into_iter().flatten().copied();
        let eligibility =
            eligibility(&facts, suite_cases.get(&facts.suite).copied().unwrap_or(usize::MAX), corrections);
        let key = CohortKey::of(&facts);
        let cohort = match cohort_ids.get(&key) {
            Some(id) => *id,
            None => *cohort_ids.entry(key.clone()).or_insert(key.id()),
        };
        let trust = trust(&facts, false, &[], None);
        entries.push(RunEntry { slug: facts.id.short(), cohort, eligibility, trust, facts });
    }
    let trusts = trusts(&entries);
    for (entry, trust) in entries.iter_mut().zip(trusts) {
        entry.trust = trust;
    }
    entries
}

/// Thousands of runs share a few manifests.
fn share_manifests(runs: &mut [RunFacts]) {
    let (mut implementations, mut protocols, mut environments) = (HashMap::new(), HashMap::new(), HashMap::new());
    for run in runs {
        let implementation = implementations.entry(run.implementation_id).or_insert_with(|| run.implementation.clone());
        run.implementation = Arc::clone(implementation);
        run.protocol = Arc::clone(protocols.entry(run.protocol_id).or_insert_with(|| run.protocol.clone()));
        run.environment = Arc::clone(environments.entry(run.environment_id).or_insert_with(|| run.environment.clone()));
    }
}

fn trusts(entries: &[RunEntry]) -> Vec<TrustFacts> {
    let mut peers = HashMap::<(Digest, Digest), Vec<&RunFacts>>::new();
    let mut current = HashMap::<&str, Current>::new();
    for entry in entries {
        let facts = &entry.facts;
        if entry.eligibility.ranks() {
            peers.entry((entry.cohort, facts.implementation_id)).or_default().push(facts);
        }
        // Entries are by observed time, so the last one holds. What others send does not age what is committed.
        if facts.origin == Origin::Records {
            let latest = Current { driver: driver(&facts.environment).to_owned(), run: facts.id };
            current.insert(&facts.environment.device, latest);
        }
    }
    let of = |entry: &RunEntry| {
        let facts = &entry.facts;
        let peers: Vec<&RunFacts> = peers
            .get(&(entry.cohort, facts.implementation_id))
            .into_iter()
            .flatten()
            .filter(|peer| peer.id != facts.id)
            .copied()
            .collect();
        trust(facts, entry.eligibility.ranks(), &peers, current.get(facts.environment.device.as_str()))
    };
    entries.iter().map(of).collect()
}

fn cohorts(runs: &[RunEntry]) -> Vec<CohortEntry> {
    let mut members = BTreeMap::<Digest, Vec<&RunEntry>>::new();
    for run in runs {
        members.entry(run.cohort).or_default().push(run);
    }
    let mut cohorts: Vec<CohortEntry> = members
        .into_values()
        .filter_map(|runs| Some(CohortEntry::of(CohortKey::of(&runs.first()?.facts), &runs)))
        .collect();
    let order = |cohort: &CohortEntry| {
        let CohortKey { device, mode, protocol, quick, .. } = cohort.key.clone();
        (device, mode, quick, protocol, cohort.id)
    };
    cohorts.sort_by_cached_key(order);
    cohorts
}

/// Texts in order, each once.
pub(super) fn sorted<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    items.into_iter().collect::<BTreeSet<T>>().into_iter().collect()
}

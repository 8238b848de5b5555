//! Figures of others as pages show them: beside ours, never among them.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::external::ExternalRun;
use crate::identity::Digest;
use crate::manifest::Manifest;
use crate::trust::Trust;

use super::correction::CorrectionEntry;
use super::eligibility::Reason;

/// A figure from another source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExternalEntry {
    /// Its identity.
    pub id: Digest,
    /// First digits of the id, for addresses.
    pub slug: String,
    /// What the source says, in its own words, and what is known to be wrong with it.
    pub spec: ExternalRun,
    /// Always [`Trust::Reported`].
    pub trust: Trust,
    /// The time that its source ranks it by, in ns; `None` where there is none above 0.
    pub time_ns: Option<f64>,
    /// Set when a correction took it back or named another in its stead.
    pub corrected: Option<Reason>,
}

/// Figures of one source that the source itself compares: same hardware, workload and protocol by its own names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceTable {
    /// First digits of a digest of what they have in common, for addresses.
    pub slug: String,
    /// Identity of the operation.
    pub operation: Digest,
    /// The document.
    pub document: String,
    /// The source's name of the hardware.
    pub hardware: String,
    /// The source's name of the workload.
    pub workload: String,
    /// The source's name of the protocol.
    pub protocol: String,
    /// Latest day on which the source was read, or on which it says that something was observed.
    pub last_observed: String,
    /// Caveats that all its rows share.
    pub caveats: Vec<String>,
    /// Fastest first; those without a time last.
    pub rows: Vec<SourceRow>,
    /// The rows that were the fastest on the day they appeared, oldest first; those without a day are left out.
    pub history: Vec<Digest>,
}

/// A row of a source's own table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceRow {
    /// Place among the rows with a time; equal times share it.
    pub rank: Option<usize>,
    /// The external run.
    pub external: Digest,
    /// Its time over that of the first row; one source and one protocol, but no interval: no samples are known.
    pub ratio_to_first: Option<f64>,
}

/// External runs by (document, hardware, protocol, time, id).
pub(super) fn entries(
    externals: Vec<(Digest, Manifest<ExternalRun>)>,
    corrections: &[CorrectionEntry],
) -> Vec<ExternalEntry> {
    let about: HashMap<Digest, &CorrectionEntry> =
        corrections.iter().rev().map(|correction| (correction.spec.target, correction)).collect();
    let externals: BTreeMap<Digest, ExternalRun> =
        externals.into_iter().map(|(id, manifest)| (id, manifest.spec)).collect();
    let entry = |(id, spec): (Digest, ExternalRun)| ExternalEntry {
        id,
        slug: id.short(),
        trust: Trust::Reported,
        time_ns: spec.time_ns(),
        corrected: about.get(&id).map(|correction| Reason::of(correction)),
        spec,
    };
    let mut entries: Vec<ExternalEntry> = externals.into_iter().map(entry).collect();
    let key = |entry: &ExternalEntry| {
        let ExternalRun { source, hardware, workload, protocol, .. } = &entry.spec;
        let time = entry.time_ns.unwrap_or(f64::INFINITY).to_bits();
        // The bits of positive floating-point numbers are in their order.
        (source.document.clone(), hardware.clone(), workload.clone(), protocol.clone(), time, entry.id)
    };
    entries.sort_by_cached_key(key);
    entries
}

/// The tables of these entries, which are in the order of [`entries`].
pub(super) fn tables(entries: &[ExternalEntry]) -> Vec<SourceTable> {
    let together = |one: &ExternalEntry, other: &ExternalEntry| {
        let key = |ExternalRun { operation, source, hardware, workload, protocol, .. }: &ExternalRun| {
            (*operation, source.document.clone(), hardware.clone(), workload.clone(), protocol.clone())
        };
        key(&one.spec) == key(&other.spec)
    };
    entries.chunk_by(together).filter_map(SourceTable::of).collect()
}

impl SourceTable {
    /// Of entries with everything in common, by time.
    fn of(entries: &[ExternalEntry]) -> Option<Self> {
        let ExternalRun { operation, source, hardware, workload, protocol, caveats, .. } = &entries.first()?.spec;
        let shared = |caveat: &&String| entries.iter().all(|entry| entry.spec.caveats.contains(caveat));
        let identity = format!("{operation}\n{}\n{hardware}\n{workload}\n{protocol}", source.document);
        let days = entries.iter().flat_map(|entry| {
            let ExternalRun { observed, source, .. } = &entry.spec;
            observed.iter().chain([&source.read_on]).cloned()
        });
        let standing: Vec<&ExternalEntry> = entries.iter().filter(|entry| entry.corrected.is_none()).collect();
        Some(Self {
            slug: Digest::of(identity.as_bytes()).short(),
            operation: *operation,
            document: source.document.clone(),
            hardware: hardware.clone(),
            workload: workload.clone(),
            protocol: protocol.clone(),
            last_observed: days.max().unwrap_or_default(),
            caveats: caveats.iter().filter(shared).cloned().collect(),
            rows: rows(entries),
            history: history(&standing),
        })
    }
}

fn rows(entries: &[ExternalEntry]) -> Vec<SourceRow> {
    let ranked = |entry: &ExternalEntry| entry.time_ns.filter(|_| entry.corrected.is_none());
    let first = entries.iter().find_map(ranked);
    let (mut rows, mut place, mut last) = (Vec::with_capacity(entries.len()), 0, (0, 0.0));
    for entry in entries {
        let time = ranked(entry);
        let rank = time.map(|time| {
            place += 1;
            if time > last.1 {
                last = (place, time);
            }
            last.0
        });
        let ratio = time.and_then(|time| Some(time / first?));
        rows.push(SourceRow { rank, external: entry.id, ratio_to_first: ratio });
    }
    rows
}

/// Those that were faster than everything before them; an equal time keeps the older one. Sources give days, so of one day only
/// the fastest counts.
fn history(entries: &[&ExternalEntry]) -> Vec<Digest> {
    let dated = entries.iter().filter_map(|entry| Some((entry.spec.observed.as_deref()?, entry.id, entry.time_ns?)));
    let mut dated: Vec<(&str, Digest, f64)> = dated.collect();
    dated.sort_by(|one, other| (one.0, one.2.to_bits(), one.1).cmp(&(other.0, other.2.to_bits(), other.1)));
    let mut least = f64::INFINITY;
    let mut steps = Vec::new();
    for (_, id, time) in dated {
        if time < least {
            least = time;
            steps.push(id);
        }
    }
    steps
}

//! Cohorts, rankings in them, and what records they hold.

use std::collections::BTreeMap;

use qkv_rope_op::Precision;
use serde::Serialize;

use crate::identity::{Digest, canonical};

use super::run::{Estimate, RunEntry, RunFacts};
use super::standing::{Timed, best_by_case, history, ranking};

/// What two runs must have in common before their times may be set against each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct CohortKey {
    /// Identity of the operation.
    pub operation: Digest,
    /// Identity of the suite.
    pub suite: Digest,
    /// Version of the protocol.
    pub protocol: String,
    /// Whether it is a quick run, which never ranks.
    pub quick: bool,
    /// Who read the clock, and around what.
    pub timer: String,
    /// The device's own name.
    pub device: String,
    /// Kind of device: `cpu`, `cuda`.
    pub device_kind: String,
    /// Threads that it was given.
    pub threads: u64,
    /// How operands are rounded.
    pub mode: &'static str,
    /// Timed calls per case.
    pub timed_calls: u64,
    /// Bytes written between calls to empty the caches.
    pub flush_bytes: u64,
}

/// Runs that may be set against each other, and how they stand.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CohortEntry {
    /// SHA-256 of the canonical JSON of the key.
    pub id: Digest,
    /// First digits of the id, for addresses.
    pub slug: String,
    /// What all its runs have in common.
    pub key: CohortKey,
    /// All its runs, eligible or not, by (observed, id).
    pub runs: Vec<Digest>,
    /// How far an implementation is from itself when it is run again.
    pub noise: Noise,
    /// Its eligible implementations, fastest first.
    pub ranking: Vec<RankingRow>,
    /// The records that it saw, oldest first; the last one holds.
    pub history: Vec<RecordStep>,
    /// The fastest eligible run of each implementation on each case, by the case's name.
    #[serde(skip)]
    best_by_case: BTreeMap<String, Vec<Digest>>,
}

/// How far two runs of one implementation are apart; a difference within it is none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Noise {
    /// Share of a time, such as 0.02.
    pub share: f64,
    /// Pairs of runs of one implementation that it was taken from; 0 where it is assumed.
    pub replicates: usize,
}

/// One implementation in a ranking, by its fastest eligible run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankingRow {
    /// 1 for the fastest. Those that the samples cannot tell apart from the fastest of their group share its rank.
    pub rank: usize,
    /// Whether others have the same rank.
    pub tied: bool,
    /// Identity of the implementation.
    pub implementation: Digest,
    /// The run.
    pub run: Digest,
    /// Geometric mean over the suite with its interval, in ns.
    pub time_ns: Estimate,
    /// Its time over that of the first row, with the interval of the ratio; 1 in the first row.
    pub ratio_to_first: Estimate,
    /// Eligible runs of the implementation in this cohort.
    pub replicates: usize,
}

/// A run that took the record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordStep {
    /// When it was observed, UTC, RFC 3339.
    pub observed: String,
    /// The run.
    pub run: Digest,
    /// Identity of the implementation.
    pub implementation: Digest,
    /// Its time, in ns.
    pub time_ns: Estimate,
    /// Its time over that of the record before it; `None` for the first.
    pub ratio_to_previous: Option<Estimate>,
}

/// The record of a cohort as an operation's page lists it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CurrentRecord {
    /// The cohort.
    pub cohort: Digest,
    /// The device's name.
    pub device: String,
    /// How operands are rounded.
    pub mode: &'static str,
    /// The step that holds.
    pub step: RecordStep,
    /// Implementations that rank in the cohort.
    pub contenders: usize,
}

/// The name of a mode in files and addresses.
pub fn mode_name(mode: Precision) -> &'static str {
    match mode {
        Precision::Ieee => "ieee",
        Precision::Split => "split",
        Precision::Fast => "fast",
    }
}

impl CohortKey {
    /// The cohort of a run.
    pub(crate) fn of(run: &RunFacts) -> Self {
        Self {
            operation: run.operation,
            suite: run.suite,
            protocol: run.protocol.version.clone(),
            quick: run.protocol.quick,
            timer: run.protocol.timer.clone(),
            device: run.environment.device.clone(),
            device_kind: run.device_kind.clone(),
            threads: run.environment.threads,
            mode: mode_name(run.implementation.mode),
            timed_calls: run.protocol.timed_calls,
            flush_bytes: run.protocol.flush_bytes,
        }
    }

    /// The identity of the cohort.
    pub(crate) fn id(&self) -> Digest {
        // Two keys have one text only if all their fields are equal: `Debug` quotes and escapes texts.
        canonical(self).map_or_else(|_| Digest::of(format!("{self:?}").as_bytes()), |text| Digest::of(&text))
    }

    /// What a page calls it.
    pub fn title(&self) -> String {
        let threads = match self.threads {
            1 => ", 1 thread".to_owned(),
            threads if self.device_kind == "cpu" => format!(", {threads} threads"),
            _ => String::new(),
        };
        let quick = if self.quick { ", quick" } else { "" };
        format!("{}{threads}, {}, {}{quick}", self.device, self.mode, self.protocol)
    }
}

impl CohortEntry {
    /// How these runs stand; all must have this key, ordered by (observed, id).
    pub(crate) fn of(key: CohortKey, runs: &[&RunEntry]) -> Self {
        let eligible: Vec<Timed<'_>> = runs.iter().filter_map(|run| Timed::of(run)).collect();
        let noise = Noise::of(&eligible);
        let id = key.id();
        Self {
            id,
            slug: id.short(),
            runs: runs.iter().map(|run| run.facts.id).collect(),
            ranking: ranking(&eligible, noise),
            history: history(&eligible, noise),
            best_by_case: best_by_case(&eligible),
            noise,
            key,
        }
    }

    /// The record that holds; `None` while nothing ranks.
    pub fn current_record(&self) -> Option<CurrentRecord> {
        let step = self.history.last()?.clone();
        let CohortKey { device, mode, .. } = &self.key;
        Some(CurrentRecord { cohort: self.id, device: device.clone(), mode, step, contenders: self.ranking.len() })
    }

    /// The fastest eligible run of each implementation on a case, by its name.
    pub(super) fn fastest_on(&self, case: &str) -> &[Digest] {
        self.best_by_case.get(case).map_or(&[], Vec::as_slice)
    }

    /// The row of an implementation.
    pub fn row(&self, implementation: &Digest) -> Option<&RankingRow> {
        self.ranking.iter().find(|row| row.implementation == *implementation)
    }
}

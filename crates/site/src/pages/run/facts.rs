//! Facts of a run that are lists of names and values.

use kernelproof_index::catalog::{CaseFacts, FileFacts, Origin};
use kernelproof_index::environment::Environment;
use kernelproof_index::protocol::Protocol;
use serde::Serialize;
use utoipa::ToSchema;

use crate::display;

/// What the machine said of itself during one case.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Telemetered {
    /// The case.
    pub case: String,
    /// When it was begun, UTC, RFC 3339.
    pub observed: String,
    /// Readings.
    pub readings: usize,
    /// Least and largest mean clock of the processors, in MHz.
    pub clock_mhz: Option<[f64; 2]>,
    /// Largest load.
    pub load: Option<f64>,
    /// Share of the time that a hypervisor gave to others.
    pub stolen_share: Option<f64>,
    /// Hottest reading, in degrees Celsius.
    pub temperature_c: Option<f64>,
}

/// A file of the bundle.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct File {
    /// Its name.
    pub name: String,
    /// Where it can be had.
    pub href: String,
    /// SHA-256 of its contents.
    pub digest: String,
    /// Its size.
    pub size_bytes: u64,
}

impl File {
    pub(super) fn of(run: &str, name: &str, file: &FileFacts) -> Self {
        Self {
            name: name.to_owned(),
            href: format!("/files/{run}/{name}"),
            digest: file.digest.to_string(),
            size_bytes: file.size_bytes,
        }
    }

    pub(super) fn size(&self) -> String {
        display::bytes(self.size_bytes as f64).to_string()
    }
}

impl Telemetered {
    pub(super) fn of(case: &CaseFacts) -> Option<Self> {
        let (first, last) = (case.telemetry.first()?, case.telemetry.last()?);
        let of = |pick: fn(&kernelproof_eval::evaluation::Telemetry) -> Option<f64>| {
            case.telemetry.iter().filter_map(pick).collect::<Vec<f64>>()
        };
        let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
        let clocks = of(|reading| reading.clock_mhz);
        let least = clocks.iter().copied().reduce(f64::min);
        let stolen = last.stolen_ticks.zip(first.stolen_ticks).and_then(|(last, first)| last.checked_sub(first));
        let busy = last.busy_ticks.zip(first.busy_ticks).and_then(|(last, first)| last.checked_sub(first));
        let share = stolen.zip(busy).map(|(stolen, busy)| match stolen + busy {
            0 => 0.0,
            wanted => stolen as f64 / wanted as f64,
        });
        Some(Self {
            case: case.name.clone(),
            observed: case.observed.clone(),
            readings: case.telemetry.len(),
            clock_mhz: least.zip(most(&clocks)).map(|(least, most)| [least, most]),
            load: most(&of(|reading| reading.load)),
            stolen_share: share,
            temperature_c: most(&of(|reading| reading.temperature_c)),
        })
    }

    pub(super) fn clock(&self) -> String {
        match self.clock_mhz {
            Some([least, most]) if (most - least) < 1.0 => format!("{most:.0} MHz"),
            Some([least, most]) => format!("{least:.0} to {most:.0} MHz"),
            None => "–".to_owned(),
        }
    }

    pub(super) fn number(&self, value: &Option<f64>) -> String {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
    }
}

/// How a run came into the index, in words.
pub(super) fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Records => "committed in records/".to_owned(),
        Origin::Submission { submitter, received } => {
            format!(
                "submitted by {submitter}, {}; the figures were recomputed, the run was not repeated",
                display::minute(received)
            )
        }
    }
}

fn row(name: &str, value: impl Into<String>) -> [String; 2] {
    [name.to_owned(), value.into()]
}

fn unknown(value: Option<&String>) -> String {
    value.cloned().unwrap_or_else(|| "unknown".to_owned())
}

/// Where a run took place.
pub(crate) fn environment(facts: &Environment) -> Vec<[String; 2]> {
    let bytes = |count: u64| display::bytes(count as f64).to_string();
    let mut rows = vec![
        row("device", facts.device.clone()),
        row("processor", facts.cpu.clone()),
        row("threads", format!("{} of {} available", facts.threads, facts.threads_available)),
        row("last-level cache", bytes(facts.last_level_cache_bytes)),
        row("memory", bytes(facts.memory_bytes)),
        row("system", facts.os.clone()),
        row("kernel", facts.kernel.clone()),
        row("built for", facts.target.clone()),
        row("clock policy", unknown(facts.clock_policy.as_ref())),
        row("virtualisation", unknown(facts.virtualisation.as_ref())),
    ];
    rows.extend(facts.software.iter().map(|(name, version)| row(name, version.clone())));
    rows
}

/// The rules of a run.
pub(crate) fn protocol(facts: &Protocol) -> Vec<[String; 2]> {
    let bytes = |count: u64| display::bytes(count as f64).to_string();
    let evaluator = &facts.evaluator;
    let score = evaluator.mutation_score.map(|[right, all]| format!("{right} of {all}"));
    vec![
        row("version", facts.version.clone()),
        row("quick", if facts.quick { "yes: shows that things work and never ranks" } else { "no" }),
        row("timer", facts.timer.clone()),
        row("checked rounds", facts.check_rounds.to_string()),
        row("calls before timing", facts.warmup_calls.to_string()),
        row("timed calls", facts.timed_calls.to_string()),
        row("statistic", facts.statistic.clone()),
        row("written between calls", bytes(facts.flush_bytes)),
        row(
            "tensors move by",
            format!("multiples of {} up to {}", bytes(facts.offset_bytes[0]), bytes(facts.offset_bytes[1])),
        ),
        row("limit of a call", display::time(facts.call_limit_ns as f64, None).to_string()),
        row("limit of memory", facts.memory_limit_bytes.map_or_else(|| "none (same process)".to_owned(), bytes)),
        row("evaluator", format!("{} at {}, {}", evaluator.version, evaluator.commit, evaluator.profile)),
        row("compiled by", evaluator.rustc.clone()),
        row("exploit suite judged rightly", score.unwrap_or_else(|| "not run by this build".to_owned())),
    ]
}

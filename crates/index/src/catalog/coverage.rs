//! What was measured where, and what nobody has measured yet.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::identity::Digest;
use crate::trust::Trust;

use super::Catalog;
use super::build::sorted;
use super::cohort::mode_name;
use super::operation::OperationEntry;

/// Coverage of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// The operation.
    pub operation: Digest,
    /// Devices with runs of ours, and the modes measured on them.
    pub cells: Vec<CoverageCell>,
    /// What is open, most wanted first.
    pub challenges: Vec<Challenge>,
}

/// One device in one mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoverageCell {
    /// The device's name.
    pub device: String,
    /// Kind of the device: `cpu`, `cuda`.
    pub device_kind: String,
    /// How operands are rounded.
    pub mode: String,
    /// Runs that rank.
    pub eligible: usize,
    /// All runs.
    pub runs: usize,
}

/// Something that nobody has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Challenge {
    /// A heading, such as `No run on NVIDIA B200`.
    pub title: String,
    /// Why it is open, and what is known instead.
    pub why: String,
    /// A command that makes such a run.
    pub command: String,
}

/// Devices that readers of the public leaderboard and of the seed page ask for.
const WANTED: [&str; 3] = ["NVIDIA B200", "NVIDIA H100", "NVIDIA H200"];

/// The coverage of an operation.
pub(super) fn of(catalog: &Catalog, operation: &OperationEntry) -> Coverage {
    let mut cells = BTreeMap::<(String, &str), CoverageCell>::new();
    for run in catalog.runs_of(operation.id) {
        let (device, mode) = (run.facts.environment.device.clone(), mode_name(run.facts.implementation.mode));
        let cell = cells.entry((device, mode)).or_insert_with_key(|(device, mode)| CoverageCell {
            device: device.clone(),
            device_kind: run.facts.device_kind.clone(),
            mode: (*mode).to_owned(),
            eligible: 0,
            runs: 0,
        });
        cell.runs += 1;
        cell.eligible += usize::from(run.eligibility.ranks());
    }
    let cells: Vec<CoverageCell> = cells.into_values().collect();
    let mut challenges = devices(catalog, operation, &cells);
    challenges.extend(modes(operation, &cells));
    challenges.extend(records(catalog, operation));
    Coverage { operation: operation.id, cells, challenges }
}

/// Whether a name of hardware, as anyone writes it, is that of this device.
fn is_device(hardware: &str, device: &str) -> bool {
    let plain = |name: &str| name.to_lowercase().replace('_', " ");
    plain(hardware).contains(&plain(device)) || plain(device).contains(&plain(hardware))
}

fn devices(catalog: &Catalog, operation: &OperationEntry, cells: &[CoverageCell]) -> Vec<Challenge> {
    let reported = catalog.sources_of(operation.id).map(|table| {
        // Sources add their own words after a middle dot, or write underscores.
        table.hardware.split('·').next().unwrap_or(&table.hardware).trim().replace('_', " ")
    });
    let wanted = sorted(reported.chain(WANTED.map(str::to_owned)));
    let covered = |device: &String| cells.iter().any(|cell| cell.eligible > 0 && is_device(device, &cell.device));
    let challenge = |device: String| {
        let rows: usize = catalog
            .sources_of(operation.id)
            .filter(|table| is_device(&table.hardware, &device))
            .map(|table| table.rows.len())
            .sum();
        Challenge {
            why: match rows {
                0 => "nobody has a figure for it".to_owned(),
                rows => format!("other sources report {rows} figures for it; none comes with samples or a source"),
            },
            command: "kernelproof eval --solution SOLUTION --device cuda --all -o records/runs".to_owned(),
            title: format!("No run on {device}"),
        }
    };
    wanted.into_iter().filter(|device| !covered(device)).map(challenge).collect()
}

fn modes(operation: &OperationEntry, cells: &[CoverageCell]) -> Vec<Challenge> {
    let modes = operation.suites.iter().flat_map(|suite| &suite.spec.bounds).map(|bounds| mode_name(bounds.mode));
    let open =
        sorted(modes).into_iter().filter(|mode| !cells.iter().any(|cell| cell.eligible > 0 && cell.mode == *mode));
    let challenge = |mode: &str| Challenge {
        title: format!("No run in mode {mode}"),
        why: "the suite has bounds for it, and no run that ranks".to_owned(),
        command: format!("kernelproof eval --solution SOLUTION --precision {mode} --all -o records/runs"),
    };
    open.map(challenge).collect()
}

/// Records that nobody has run again.
fn records(catalog: &Catalog, operation: &OperationEntry) -> Vec<Challenge> {
    let held = catalog.current_records(operation.id).filter_map(|record| catalog.run(&record.step.run));
    let challenge = |run: &super::RunEntry| {
        let why = match (&run.trust.stale, run.trust.missing.first()) {
            (Some(stale), _) => stale.to_string(),
            (None, Some(missing)) if run.trust.level < Trust::Verified => missing.clone(),
            _ => return None,
        };
        Some(Challenge {
            title: format!("Record on {} to be run again", run.facts.environment.device),
            why,
            command: format!("kernelproof replay records/runs/{}", run.facts.name),
        })
    };
    held.filter_map(challenge).collect()
}

//! What was measured where, and what nobody has measured.

use std::collections::BTreeMap;

use kernelproof_index::catalog::Coverage;
use serde::Serialize;
use utoipa::ToSchema;

/// Devices against modes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CoverageView {
    /// Modes, in the order of the columns.
    pub modes: Vec<String>,
    /// Devices with what was measured on them.
    pub devices: Vec<Covered>,
    /// What is open, most wanted first.
    pub challenges: Vec<ChallengeView>,
}

/// One device.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Covered {
    /// Its name.
    pub device: String,
    /// For each mode, runs that rank and all runs.
    pub counts: Vec<[usize; 2]>,
}

/// Something that nobody has done.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChallengeView {
    /// A heading.
    pub title: String,
    /// Why it is open, and what is known instead.
    pub why: String,
    /// A command that makes such a run.
    pub command: String,
}

impl CoverageView {
    /// The coverage of an operation.
    pub(crate) fn of(coverage: &Coverage) -> Self {
        let modes = ["ieee", "split", "fast"].map(str::to_owned).to_vec();
        let mut devices: BTreeMap<&str, Vec<[usize; 2]>> = BTreeMap::new();
        for cell in &coverage.cells {
            let counts = devices.entry(&cell.device).or_insert_with(|| vec![[0, 0]; modes.len()]);
            let place = modes.iter().position(|mode| *mode == cell.mode);
            if let Some(count) = place.and_then(|place| counts.get_mut(place)) {
                *count = [count[0] + cell.eligible, count[1] + cell.runs];
            }
        }
        let covered = devices.into_iter().map(|(device, counts)| Covered { device: device.to_owned(), counts });
        let challenges = coverage.challenges.iter().map(|challenge| ChallengeView {
            title: challenge.title.clone(),
            why: challenge.why.clone(),
            command: challenge.command.clone(),
        });
        Self { devices: covered.collect(), challenges: challenges.collect(), modes }
    }
}

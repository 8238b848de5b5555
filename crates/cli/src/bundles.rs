//! Run bundles as commands write and read them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kernelproof_eval::evaluation::Evaluation;
use kernelproof_index::bundle::{self, Attached, Written};
use kernelproof_index::{Bundle, verify};
use qkv_rope_op::{Problem, SUITE};

use crate::evaluator::{Settings, table};
use crate::failure::Failure;

/// What was printed, as it stands in the bundle.
const LOG: &str = "evaluation.log";

/// Refuses what no bundle can hold, before anything is measured.
///
/// # Errors
/// When a case is not the suite's.
pub(crate) fn require_suite(settings: &Settings) -> Result<(), Failure> {
    let precision = settings.mode.precision();
    let is_suites =
        |problem: Problem| SUITE.into_iter().any(|case| problem == Problem { precision, ..Problem::new(case.dims()) });
    match settings.workloads.iter().find(|workload| !is_suites(settings.mode.problem(workload.dims))) {
        None => Ok(()),
        Some(other) => {
            let message = format!("{}: only cases of the suite make a record", other.name);
            Err(Failure::input(message).help("leave -o out, or take --case or --all with the half-split style"))
        }
    }
}

/// Writes the bundle of an evaluation into a folder of its own under `parent`, and reads it back.
///
/// # Errors
/// When it cannot be written; then nothing is left behind.
pub(crate) fn write(parent: &Path, evaluation: &Evaluation, solution: Option<Vec<u8>>) -> anyhow::Result<PathBuf> {
    let log = table::text(evaluation) + "\n";
    let logs = BTreeMap::from([(LOG.to_owned(), log.into_bytes())]);
    let bundle = Bundle::of(evaluation.clone(), Attached { solution, logs }).context("the run makes no record")?;
    let (Written::New(folder) | Written::Already(folder)) = bundle::write(&bundle, parent)?;
    read(&folder)?;
    Ok(folder)
}

/// Reads a bundle that verifies.
///
/// # Errors
/// When it cannot be read or does not verify, with the first finding.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Bundle> {
    let (verification, bundle) = verify(folder)?;
    match (verification.findings.first(), bundle) {
        (None, Some(bundle)) => Ok(bundle),
        (first, _) => {
            let message = format!("{}: does not verify", folder.display());
            let failure = Failure::input(first.map_or(message.clone(), |first| format!("{message}: {first}")));
            Err(failure.help("`kernelproof verify` lists everything that is wrong").into())
        }
    }
}

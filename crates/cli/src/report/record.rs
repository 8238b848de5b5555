//! What `bench` writes: every sample, and all that is needed to understand it. Statistics are computed when it is read.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use qkv_rope_op::{Cost, Problem};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::machine::{Build, Machine};

/// Names this layout; a reader refuses others.
pub(crate) const SCHEMA: &str = "kernelproof.bench/1";

/// One run of `bench`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchRecord {
    /// [`SCHEMA`].
    pub(crate) schema: String,
    /// Whether all samples of all cases are there.
    pub(crate) complete: bool,
    /// Start of the run, UTC, RFC 3339.
    pub(crate) started: String,
    /// The command line, with folders left out.
    pub(crate) command: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) build: Build,
    pub(crate) protocol: ProtocolRecord,
    pub(crate) cases: Vec<CaseRecord>,
}

/// How the samples were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ProtocolRecord {
    /// Rounds dropped before the kept ones.
    pub(crate) warmup_rounds: u32,
    /// Rounds asked for.
    pub(crate) sample_rounds: u32,
    /// Bytes written between calls to empty the caches; 0 when they were left warm.
    pub(crate) flush_bytes: usize,
    /// Seeds of the input sets that the rounds rotate through.
    pub(crate) input_seeds: Vec<u64>,
}

/// One case and who ran it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseRecord {
    /// The suite's name of the case, or its sizes.
    pub(crate) name: String,
    pub(crate) problem: Problem,
    /// Sample i of all contestants and peaks belongs to round i. Ratios are taken against the first contestant.
    pub(crate) contestants: Vec<ContestantRecord>,
    pub(crate) peaks: Vec<PeakRecord>,
}

/// One implementation on one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContestantRecord {
    pub(crate) name: String,
    /// Version of a rival, `None` for this build.
    pub(crate) version: Option<String>,
    pub(crate) threads: usize,
    /// Instruction set, where it was chosen.
    pub(crate) isa: Option<String>,
    /// Who read the clock.
    pub(crate) timer: String,
    /// Normwise error of each output against f64, by tensor name.
    pub(crate) normwise_errors: BTreeMap<String, f64>,
    /// Whether all outputs were within the bound of the precision.
    pub(crate) agrees: bool,
    pub(crate) samples_ns: Vec<u64>,
}

/// The FMA peak, measured in the same rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeakRecord {
    pub(crate) isa: String,
    pub(crate) threads: usize,
    /// Floating-point operations behind each sample.
    pub(crate) flops: u64,
    pub(crate) samples_ns: Vec<u64>,
}

impl CaseRecord {
    /// Least arithmetic and bytes of the case.
    pub(crate) fn cost(&self) -> Cost {
        Cost::of(&self.problem)
    }

    /// The peak of the contestant's threads and instruction set, in GFLOP/s; of the fastest one measured where it chose
    /// its own.
    pub(crate) fn peak_gflops(&self, contestant: &ContestantRecord) -> Option<f64> {
        let same_isa = |peak: &PeakRecord| contestant.isa.as_ref().is_none_or(|isa| *isa == peak.isa);
        let peaks = self.peaks.iter().filter(|peak| peak.threads == contestant.threads && same_isa(peak));
        peaks.filter_map(PeakRecord::gflops).max_by(f64::total_cmp)
    }
}

impl ContestantRecord {
    /// Median time in ns.
    pub(crate) fn median_ns(&self) -> Option<f64> {
        kernelproof_eval::statistics::median(&self.samples_ns)
    }

    /// The name, with the threads where they are not obvious.
    pub(crate) fn label(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{}, {} thread{plural}", self.name, self.threads)
    }
}

impl PeakRecord {
    /// Operations over the median time, in GFLOP/s.
    pub(crate) fn gflops(&self) -> Option<f64> {
        Some(self.flops as f64 / kernelproof_eval::statistics::median(&self.samples_ns)?)
    }
}

impl BenchRecord {
    /// Reads a record from a file.
    ///
    /// # Errors
    /// When it cannot be read or is no such record.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Envelope {
            schema: String,
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        let no_record = || format!("{}: is no record of kernelproof bench", path.display());
        let envelope: Envelope = serde_json::from_str(&text).with_context(no_record)?;
        if envelope.schema != SCHEMA {
            let message = format!("{}: found schema {:?}, expected {SCHEMA:?}", path.display(), envelope.schema);
            return Err(Failure::input(message).into());
        }
        serde_json::from_str(&text).with_context(no_record)
    }
}

/// The command line as others may read it: folders are private and say nothing about the measurement.
pub(crate) fn public_command(arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    let without_folders = |argument: String| match argument.rsplit_once(['/', '\\']) {
        Some((_, name)) => name.to_owned(),
        None => argument,
    };
    let mut arguments = arguments.into_iter().map(without_folders);
    arguments.next();
    std::iter::once("kernelproof".to_owned()).chain(arguments).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_left_out_of_the_command() {
        let arguments = ["/home/me/bin/kernelproof", "bench", "--python", "/home/me/venv/bin/python"];
        let public = public_command(arguments.map(str::to_owned));
        assert_eq!(public, ["kernelproof", "bench", "--python", "python"]);
    }
}

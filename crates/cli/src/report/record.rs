//! What `bench` writes: every sample, and all that is needed to understand it. Statistics are computed when it is read.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use kernelproof_eval::evaluation::{Gpu, GpuReading};
use kernelproof_eval::statistics::{Pair, Quartiles, median, median_of_ratios};
use qkv_rope_op::{Cost, Precision, Problem};
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
    /// The GPU, where one computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<Gpu>,
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
    /// What the GPU said of itself, first before and last after the rounds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) telemetry: Vec<GpuReading>,
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
    /// How it rounds operands, where contestants of a case differ in that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) precision: Option<Precision>,
    /// Who read the clock.
    pub(crate) timer: String,
    /// Normwise error of each output against f64, by tensor name.
    pub(crate) normwise_errors: BTreeMap<String, f64>,
    /// What was wrong with its outputs, one sentence each; empty when nothing was.
    pub(crate) failures: Vec<String>,
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

    /// The peak of the contestant's threads and instruction set; the fastest one measured where it chose its own.
    pub(crate) fn peak(&self, contestant: &ContestantRecord) -> Option<&PeakRecord> {
        let same_isa = |peak: &&PeakRecord| contestant.isa.as_ref().is_none_or(|isa| *isa == peak.isa);
        let peaks = self.peaks.iter().filter(|peak| peak.threads == contestant.threads).filter(same_isa);
        peaks.max_by(|one, other| one.gflops().unwrap_or(0.0).total_cmp(&other.gflops().unwrap_or(0.0)))
    }

    /// Whether a GPU said that something held it back.
    pub(crate) fn throttled(&self) -> bool {
        self.telemetry.iter().any(GpuReading::held_back)
    }

    /// As [`CaseRecord::peak`], in GFLOP/s.
    pub(crate) fn peak_gflops(&self, contestant: &ContestantRecord) -> Option<f64> {
        self.peak(contestant)?.gflops()
    }

    /// The contestant's rate as a share of the peak: the median over rounds of the ratio inside a round, so that a clock
    /// or a neighbour that changes during the run cancels.
    pub(crate) fn share_of_peak(&self, contestant: &ContestantRecord) -> Option<f64> {
        let peak = self.peak(contestant)?;
        let times = Pair { numerator: &peak.samples_ns, denominator: &contestant.samples_ns };
        Some(median_of_ratios(times)? * self.cost().flops as f64 / peak.flops as f64)
    }
}

impl ContestantRecord {
    /// Median time in ns.
    pub(crate) fn median_ns(&self) -> Option<f64> {
        median(&self.samples_ns)
    }

    /// Whether nothing was wrong with its outputs.
    pub(crate) fn agrees(&self) -> bool {
        self.failures.is_empty()
    }

    /// The name, with the threads where they are not obvious.
    pub(crate) fn label(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{}, {} thread{plural}", self.name, self.threads)
    }
}

impl PeakRecord {
    /// Operations over the lower quartile of the times, in GFLOP/s. Not the median: a burst is so short that losing a
    /// core for one time slice halves it, and a ceiling is not a typical value.
    pub(crate) fn gflops(&self) -> Option<f64> {
        Some(self.flops as f64 / Quartiles::of(&self.samples_ns)?.lower)
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
        let text = std::fs::read(path).with_context(|| format!("{}: cannot be read", path.display()))?;
        let no_record = || format!("{}: is no record of kernelproof bench", path.display());
        let envelope: Envelope = serde_json::from_slice(&text).with_context(no_record)?;
        if envelope.schema != SCHEMA {
            let message = format!("{}: found schema {:?}, expected {SCHEMA:?}", path.display(), envelope.schema);
            return Err(Failure::input(message).into());
        }
        serde_json::from_slice(&text).with_context(no_record)
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
impl BenchRecord {
    /// Two contestants on one case, for tests of what reads records.
    pub(crate) fn example() -> Self {
        let problem = Problem::new(qkv_rope_op::SUITE[0].dims());
        let contestant = |name: &str, version: Option<&str>, samples_ns: &[u64]| ContestantRecord {
            name: name.to_owned(),
            version: version.map(str::to_owned),
            threads: 2,
            isa: version.is_none().then(|| "avx512".to_owned()),
            precision: None,
            timer: "wall clock around the call".to_owned(),
            normwise_errors: BTreeMap::from([("grad_q_weight".to_owned(), 1.5e-7)]),
            failures: Vec::new(),
            samples_ns: samples_ns.to_vec(),
        };
        let ours = contestant("cpu-avx512", None, &[21_000_000, 20_000_000, 22_000_000]);
        let theirs = contestant("pytorch", Some("2.15.0"), &[42_000_000, 40_000_000, 44_000_000]);
        let peak = PeakRecord {
            isa: "avx512".to_owned(),
            threads: 2,
            flops: 2_500_000_000,
            samples_ns: vec![10_000_000, 10_000_000, 20_000_000],
        };
        Self {
            schema: SCHEMA.to_owned(),
            complete: true,
            started: "2026-01-01T00:00:00Z".to_owned(),
            command: vec!["kernelproof".to_owned(), "bench".to_owned()],
            machine: Machine::example(),
            gpu: None,
            build: Build::example(),
            protocol: ProtocolRecord {
                warmup_rounds: 1,
                sample_rounds: 3,
                flush_bytes: 64 << 20,
                input_seeds: vec![200, 201],
            },
            cases: vec![CaseRecord {
                name: "s128b2".to_owned(),
                problem,
                contestants: vec![ours, theirs],
                peaks: vec![peak],
                telemetry: Vec::new(),
            }],
        }
    }
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

    #[test]
    fn a_record_survives_its_file_and_other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("record.json");
        let record = BenchRecord::example();
        std::fs::write(&path, serde_json::to_vec(&record).expect("it is plain data")).expect("it is writable");
        assert_eq!(BenchRecord::read(&path).expect("it is a record"), record);
        std::fs::write(&path, r#"{"schema":"kernelproof.bench/9"}"#).expect("it is writable");
        let error = BenchRecord::read(&path).expect_err("it is another schema").to_string();
        assert!(error.ends_with("found schema \"kernelproof.bench/9\", expected \"kernelproof.bench/1\""), "{error}");
        std::fs::write(&path, "[]").expect("it is writable");
        assert!(BenchRecord::read(&path).is_err());
    }

    #[test]
    fn a_peak_is_that_of_the_contestants_instruction_set() {
        let record = BenchRecord::example();
        let case = &record.cases[0];
        assert_eq!(case.peak_gflops(&case.contestants[0]), Some(250.0));
        assert_eq!(case.peak_gflops(&case.contestants[1]), Some(250.0));
        let portable = ContestantRecord { isa: Some("portable".to_owned()), ..case.contestants[0].clone() };
        assert_eq!(case.peak_gflops(&portable), None);
    }
}

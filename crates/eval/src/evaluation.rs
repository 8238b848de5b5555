//! What one evaluation yields: facts, figures and samples as data. Every statistic is computed when it is read, so no
//! figure can contradict its samples.
//!
//! Units are in the names: `_ns` are integer nanoseconds, `_bytes` bytes. All integers are below 2^53 and all numbers
//! finite, so the data survives canonical JSON (RFC 8785) unchanged.

mod activities;
mod aggregates;
mod case;
mod gpu;
mod roofline;
mod status;

pub use activities::Activities;
pub use aggregates::Aggregates;
pub use case::{Audit, CaseResult, Headroom, Round, Telemetry};
pub use gpu::{Gpu, GpuReading};
pub use roofline::{BEYOND_CEILINGS, Ceiling, Origin, Resource, SpeedOfLight};
pub use status::Status;

use std::collections::BTreeMap;

use qkv_rope_op::Precision;
use serde::{Deserialize, Serialize};

/// Names this layout; a reader refuses others.
pub const SCHEMA: &str = "kernelproof.evaluation/1";

/// One implementation judged and timed on some cases of the suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// [`SCHEMA`].
    pub schema: String,
    /// Start, UTC, RFC 3339.
    pub observed: String,
    /// The command line that repeats it, with folders left out.
    pub command: Vec<String>,
    /// Who was judged.
    pub implementation: Implementation,
    /// By which rules.
    pub protocol: ProtocolFacts,
    /// On what.
    pub environment: Environment,
    /// What the device can do at most, from datasheets and as measured here; never mixed.
    pub ceilings: Vec<Ceiling>,
    /// Name of the implementation whose times are the cases' `baseline_ns`.
    pub baseline: Option<String>,
    /// The cases, in the order of the suite.
    pub cases: Vec<CaseResult>,
}

/// What is known of an implementation. What is not known is `None` or empty, never guessed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Implementation {
    /// `cpu-avx512`, or the solution's own name.
    pub name: String,
    /// Who wrote it.
    pub author: Option<String>,
    /// `rust`, `pytorch`, `triton`, `cuda_cpp`; several where it uses several.
    pub languages: Vec<String>,
    /// Where its source is.
    pub source: Source,
    /// SPDX expression.
    pub licence: Option<String>,
    /// How to install or build it.
    pub install: Option<String>,
    /// What is called: `kernel.py::run`, or a Rust path.
    pub entry_point: String,
    /// The device it ran on: `cpu`.
    pub device: String,
    /// How operands are rounded.
    pub precision: Precision,
    /// Threads it was given.
    pub threads: usize,
    /// Flags of the compiler, where it was compiled.
    pub build_flags: Vec<String>,
    /// `sha256:…` of each binary that was run, by name.
    pub binaries: BTreeMap<String, String>,
    /// Versions of what it ran inside: `torch`, `python`.
    pub runtime: BTreeMap<String, String>,
}

/// Source of an implementation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Address of the repository.
    pub repository: Option<String>,
    /// Commit.
    pub commit: Option<String>,
    /// `sha256:…` of the file that was evaluated.
    pub digest: Option<String>,
}

/// The rules that the samples were taken by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtocolFacts {
    /// Names the rules; ratios exist only inside one version.
    pub version: String,
    /// A quick run shows that things work. It never ranks.
    pub quick: bool,
    /// Who read the clock, and around what.
    pub timer: String,
    /// Rounds of fresh inputs that outputs were checked on.
    pub check_rounds: u32,
    /// Calls before the timed ones.
    pub warmup_calls: u32,
    /// Timed calls.
    pub timed_calls: u32,
    /// `median`.
    pub statistic: String,
    /// Bytes written between calls to empty the caches.
    pub flush_bytes: usize,
    /// How far tensors move between calls: multiples of the first number up to the second, in bytes.
    pub offset_bytes: [usize; 2],
    /// Seed of the first checked round.
    pub public_seed: u64,
    /// Seed of everything else: further rounds, timed inputs, addresses, the audited call. Not known to the
    /// implementation while it ran.
    pub secret_seed: u64,
    /// Longest that one call may take.
    pub call_limit_ns: u64,
    /// Most memory that a worker process may allocate; `None` in this process.
    pub memory_limit_bytes: Option<u64>,
    /// What the clock shows for a call that does nothing, when it is read in another process. Not subtracted.
    pub handshake_ns: Vec<u64>,
    /// The program that judged.
    pub evaluator: Evaluator,
}

/// The program that judged, and how well it is known to judge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evaluator {
    /// Version of the program.
    pub version: String,
    /// Commit that it was built from, or `unknown`.
    pub commit: String,
    /// Compiler.
    pub rustc: String,
    /// `release` or `debug`.
    pub profile: String,
    /// Cheats and honest solutions of the exploit suite judged rightly, and all that were run; `None` when the suite
    /// was not run by this build on this machine.
    pub mutation_score: Option<[u32; 2]>,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The device that computed, by its own name.
    pub device: String,
    /// The processor's own name.
    pub cpu: String,
    /// Hardware threads that this process may use.
    pub threads_available: usize,
    /// Last-level cache.
    pub last_level_cache_bytes: usize,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Operating system and its version.
    pub os: String,
    /// Kernel version.
    pub kernel: String,
    /// Architecture and operating system that the evaluator was built for.
    pub target: String,
    /// Policy of the clocks (`performance`, …), where the operating system says.
    pub clock_policy: Option<String>,
    /// Hypervisor or container, where one is known.
    pub virtualisation: Option<String>,
    /// The GPU, where one computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
}

impl Evaluation {
    /// Whether this run may be ranked as far as it can tell itself: by the full protocol, an optimised build, every case
    /// of the suite passed, nothing throttled.
    pub fn may_rank(&self) -> bool {
        let names: Vec<&str> = self.cases.iter().map(|case| case.name.as_str()).collect();
        let whole = qkv_rope_op::SUITE.into_iter().map(qkv_rope_op::Case::name).eq(names);
        let facts = &self.protocol;
        whole && !facts.quick && facts.evaluator.profile == "release" && self.cases.iter().all(CaseResult::may_rank)
    }
}

#[cfg(test)]
mod tests;

//! Runs as pages show them: facts, and what follows from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelproof_eval::evaluation::{Ceiling, Status, Telemetry};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::identity::Digest;
use crate::implementation::Implementation;
use crate::protocol::Protocol;

use super::eligibility::Eligibility;
use super::trust::TrustFacts;

/// Names the way in which [`RunFacts`] are computed from a bundle; facts of another version are computed again.
pub(crate) const FACTS_VERSION: i64 = 2;

/// All that the index keeps in memory of one run: computed from its bundle once, when it enters.
///
/// The samples themselves, the checked rounds and the logs are in the bundle ([`super::Documents`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFacts {
    /// Identity of the run.
    pub id: Digest,
    /// Name of its bundle's folder.
    pub name: String,
    /// How it came into the index.
    pub origin: Origin,
    /// Identity of the operation.
    pub operation: Digest,
    /// Identity of the suite.
    pub suite: Digest,
    /// Identity of the implementation.
    pub implementation_id: Digest,
    /// Identity of the protocol.
    pub protocol_id: Digest,
    /// Identity of the environment.
    pub environment_id: Digest,
    /// Start, UTC, RFC 3339.
    pub observed: String,
    /// The implementation's manifest.
    pub implementation: Arc<Implementation>,
    /// The protocol's manifest.
    pub protocol: Arc<Protocol>,
    /// The environment's manifest.
    pub environment: Arc<Environment>,
    /// Kind of the device that it ran on: `cpu`, `cuda`.
    pub device_kind: String,
    /// The command line that repeats it.
    pub command: Vec<String>,
    /// Name of the implementation whose times are the cases' baselines.
    pub baseline: Option<String>,
    /// What the device can do at most, by datasheets and as measured; never mixed.
    pub ceilings: Vec<Ceiling>,
    /// Over all cases, against measured ceilings.
    pub measured: AggregateFacts,
    /// Over all cases, against datasheets.
    pub datasheet: AggregateFacts,
    /// Case by case, in the order of the suite.
    pub cases: Vec<CaseFacts>,
    /// What it lacks to be reproducible; empty when it is.
    pub missing: Vec<String>,
    /// Files of the bundle, by name: identity and size.
    pub files: BTreeMap<String, FileFacts>,
}

/// How a run came into the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Origin {
    /// It is committed in this project's `records/`.
    Records,
    /// A submitter sent it.
    Submission {
        /// Who holds the token that it came with.
        submitter: String,
        /// When it arrived, UTC, RFC 3339.
        received: String,
    },
}

/// A file of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// SHA-256 of its contents.
    pub digest: Digest,
    /// Its size.
    pub size_bytes: u64,
}

/// Figures over all cases; a mean is `None` when a case did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AggregateFacts {
    /// Cases that passed.
    pub passed: usize,
    /// All cases.
    pub cases: usize,
    /// Geometric mean of the cases' medians with its 95 % interval, in ns.
    pub geometric_mean_ns: Option<Estimate>,
    /// Arithmetic mean of the cases' medians, in ns.
    pub arithmetic_mean_ns: Option<f64>,
    /// The largest `T / T_sol` of any case.
    pub worst_ratio: Option<f64>,
    /// Geometric mean of `T_sol / T`.
    pub share_of_light: Option<f64>,
    /// S of the protocol, not clipped.
    pub score: Option<f64>,
}

/// A positive quantity with a 95 % interval, in the unit that its field names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The statistic of the samples.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What is known of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseFacts {
    /// The suite's name.
    pub name: String,
    /// The suite's id.
    pub id: Option<String>,
    /// The variable axes.
    pub axes: BTreeMap<String, u64>,
    /// How it ended.
    pub status: Status,
    /// What went wrong, in words.
    pub detail: Option<String>,
    /// When it was begun, UTC, RFC 3339.
    pub observed: String,
    /// The samples, summed up; `None` without any. A case that did not pass has no time that counts.
    pub samples: Option<SampleFacts>,
    /// Least arithmetic of the problem.
    pub flops: u64,
    /// Least memory traffic of the problem.
    pub min_bytes: u64,
    /// T_sol against measured ceilings, in ns.
    pub measured_sol_ns: Option<f64>,
    /// T_sol against datasheets, in ns.
    pub datasheet_sol_ns: Option<f64>,
    /// What sets T_sol: `arithmetic` or `bandwidth`.
    pub bound_by: Option<kernelproof_eval::evaluation::Resource>,
    /// The baseline's median, in ns.
    pub baseline_ns: Option<f64>,
    /// Errors against the bounds.
    pub correctness: Option<CorrectnessFacts>,
    /// Whether others took so much of the machine that the case makes no record.
    pub throttled: bool,
    /// What the machine said of itself.
    pub telemetry: Vec<Telemetry>,
}

/// Samples of a case, in integer nanoseconds, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleFacts {
    /// How many.
    pub count: u64,
    /// The least.
    pub min_ns: u64,
    /// A quarter is not above it.
    pub lower_ns: f64,
    /// The statistic of the case, with its 95 % interval.
    pub median_ns: Estimate,
    /// Three quarters are not above it.
    pub upper_ns: f64,
    /// The largest.
    pub max_ns: u64,
}

/// The worst of all rounds and outputs, beside the bounds that it was held to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CorrectnessFacts {
    /// Checked rounds.
    pub rounds: u64,
    /// Largest normwise error.
    pub normwise: f64,
    /// Its bound.
    pub normwise_bound: f64,
    /// Share of the normwise bound that is left: 1 when exact, 0 at the bound.
    pub normwise_headroom: f64,
    /// Largest error of a component.
    pub componentwise: f64,
    /// Its bound.
    pub componentwise_bound: f64,
    /// Share of the componentwise bound that is left.
    pub componentwise_headroom: f64,
    /// Least share of matched elements.
    pub matched: f64,
    /// Whether equal inputs gave equal bits; `None` when it was not tried.
    pub repeatable: Option<bool>,
    /// Timed calls (warm-ups included) of which some elements were compared.
    pub spot_checked_calls: u32,
    /// Whether one timed call was compared as a checked round is.
    pub audited: bool,
}

/// A run, with what follows from the others and from corrections.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunEntry {
    /// Its facts.
    #[serde(flatten)]
    pub facts: RunFacts,
    /// First digits of the id, enough for an address.
    pub slug: String,
    /// The cohort that it belongs to.
    pub cohort: Digest,
    /// Whether it ranks, its status, and every reason why not.
    pub eligibility: Eligibility,
    /// How far it can be trusted, and the facts that say so.
    pub trust: TrustFacts,
}

impl CaseFacts {
    /// The median in ns, where the case passed.
    pub fn time_ns(&self) -> Option<Estimate> {
        self.samples.filter(|_| self.status == Status::Passed).map(|samples| samples.median_ns)
    }

    /// T_sol / T against measured ceilings, where the case passed.
    pub fn measured_share(&self) -> Option<f64> {
        Some(self.measured_sol_ns? / self.time_ns()?.estimate)
    }

    /// T_sol / T against datasheets, where the case passed.
    pub fn datasheet_share(&self) -> Option<f64> {
        Some(self.datasheet_sol_ns? / self.time_ns()?.estimate)
    }
}

impl RunFacts {
    /// The geometric mean over the suite, in ns.
    pub fn time_ns(&self) -> Option<Estimate> {
        self.measured.geometric_mean_ns
    }

    /// The case of this name or id.
    pub fn case(&self, name: &str) -> Option<&CaseFacts> {
        self.cases.iter().find(|case| case.name == name || case.id.as_deref() == Some(name))
    }
}

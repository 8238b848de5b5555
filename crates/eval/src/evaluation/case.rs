//! One case of an evaluation.

use qkv_rope_op::{Cost, Problem};
use serde::{Deserialize, Serialize};

use super::activities::Activities;
use super::gpu::GpuReading;
use super::status::Status;
use crate::check::{Agreement, Bounds, Depth, Failure};
use crate::statistics;

/// What was found on one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The suite's name of the case, or its sizes.
    pub name: String,
    /// The suite's id; `None` for other sizes.
    pub id: Option<String>,
    /// Sizes, pairing, precision.
    pub problem: Problem,
    /// How it ended.
    pub status: Status,
    /// What went wrong, in words; `None` when nothing did.
    pub detail: Option<String>,
    /// When the case was begun, UTC, RFC 3339.
    pub observed: String,
    /// Bounds that the rounds were held to.
    pub bounds: Bounds,
    /// The checked rounds.
    pub rounds: Vec<Round>,
    /// The one timed call that was compared as a checked round is; `None` when timing did not get there.
    pub audit: Option<Audit>,
    /// Timed calls (warm-ups included) of which every element was seen to be written and some were compared with the
    /// reference.
    pub spot_checked_calls: u32,
    /// Times of the timed calls in order, in integer nanoseconds.
    pub samples_ns: Vec<u64>,
    /// What each timed call made the device do, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activities: Option<Activities>,
    /// What the machine said of itself, first before and last after the timed calls.
    pub telemetry: Vec<Telemetry>,
    /// T_b of the score: the baseline's median on this case.
    pub baseline_ns: Option<f64>,
}

/// One round of fresh inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Seed of its inputs.
    pub seed: u64,
    /// How much was compared. Not flattened: the sample has a seed of its own.
    pub depth: Depth,
    /// Each output against the f64 reference.
    pub agreements: Vec<Agreement>,
    /// Whether a second call on the same inputs at other addresses gave the same bits; `None` when it was not made.
    /// Reported, not demanded.
    pub repeatable: Option<bool>,
    /// Every reason to reject.
    pub failures: Vec<Failure>,
}

/// The audited call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Its index among the timed calls, drawn from the secret seed.
    pub call: u32,
    /// Each output against the f64 reference.
    pub agreements: Vec<Agreement>,
    /// Every reason to reject; empty when it was right.
    pub failures: Vec<Failure>,
}

/// What the machine said of itself at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Timed calls done at that moment.
    pub after_calls: u32,
    /// Mean clock of the processors, where the operating system says.
    pub clock_mhz: Option<f64>,
    /// Processes that wanted to run, averaged over a minute.
    pub load: Option<f64>,
    /// Time that processors worked for this machine since it started, in ticks.
    pub busy_ticks: Option<u64>,
    /// Time that a hypervisor gave to others while this machine wanted to run, in ticks.
    pub stolen_ticks: Option<u64>,
    /// Hottest sensor, in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// What the GPU said, where one computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuReading>,
}

/// How much of each bound is left: 1 when exact, 0 at the bound, negative past it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Headroom {
    /// Of the normwise error.
    pub normwise: f64,
    /// Of the worst component.
    pub componentwise: f64,
    /// Of the ratio of unmatched elements.
    pub unmatched: f64,
}

impl Headroom {
    /// The headroom of one output.
    pub fn of(agreement: &Agreement, bounds: &Bounds) -> Self {
        Self {
            normwise: agreement.headroom(bounds),
            componentwise: 1.0 - agreement.componentwise / bounds.componentwise,
            unmatched: 1.0 - (1.0 - agreement.matched) / bounds.unmatched,
        }
    }

    fn least(self, other: Self) -> Self {
        Self {
            normwise: self.normwise.min(other.normwise),
            componentwise: self.componentwise.min(other.componentwise),
            unmatched: self.unmatched.min(other.unmatched),
        }
    }
}

/// A machine that others slowed by more than this share of its time makes no record.
const MOST_STOLEN: f64 = 0.05;

impl CaseResult {
    /// Least arithmetic and bytes.
    pub fn cost(&self) -> Cost {
        Cost::of(&self.problem)
    }

    /// The case's statistic: the median of its samples, in ns. `None` unless it passed.
    pub fn median_ns(&self) -> Option<f64> {
        if self.status == Status::Passed { statistics::median(&self.samples_ns) } else { None }
    }

    /// The least headroom over all rounds and outputs; `None` when nothing was compared.
    pub fn headroom(&self) -> Option<Headroom> {
        let agreements = self.rounds.iter().flat_map(|round| &round.agreements);
        agreements.map(|agreement| Headroom::of(agreement, &self.bounds)).reduce(Headroom::least)
    }

    /// The share of processor time that a hypervisor gave to others from the first telemetry to the last.
    pub fn stolen_share(&self) -> Option<f64> {
        let (first, last) = (self.telemetry.first()?, self.telemetry.last()?);
        let stolen = last.stolen_ticks?.checked_sub(first.stolen_ticks?)?;
        let busy = last.busy_ticks?.checked_sub(first.busy_ticks?)?;
        let wanted = stolen + busy;
        Some(if wanted == 0 { 0.0 } else { stolen as f64 / wanted as f64 })
    }

    /// Whether the machine held the case back so much that it makes no record.
    pub fn throttled(&self) -> bool {
        let held_back = |telemetry: &Telemetry| telemetry.gpu.as_ref().is_some_and(GpuReading::held_back);
        match self.telemetry.iter().any(|telemetry| telemetry.gpu.is_some()) {
            // The host waits for a GPU; what it loses meanwhile costs the GPU nothing.
            true => self.telemetry.iter().any(held_back),
            false => self.stolen_share().is_some_and(|share| share > MOST_STOLEN),
        }
    }

    /// Whether the case passed on a machine that was left alone.
    pub fn may_rank(&self) -> bool {
        self.status == Status::Passed && !self.throttled()
    }
}

//! What a device can do at most, and how near a time comes to it.

use qkv_rope_op::{Cost, Precision};
use serde::{Deserialize, Serialize};

use super::{CaseResult, Evaluation};

/// Measured ceilings waver with the machine's neighbours; a time that beats them by more than this factor is no time.
pub const BEYOND_CEILINGS: f64 = 2.0;

/// What a ceiling limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Floating-point operations per nanosecond, which is GFLOP/s.
    Arithmetic,
    /// Bytes between memory and processor per nanosecond, which is GB/s.
    Bandwidth,
}

/// Where a ceiling comes from. The two are never mixed in one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The maker says so.
    Datasheet,
    /// A loop on this machine reached it.
    Measured,
}

/// The most that a device does of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// What it limits.
    pub resource: Resource,
    /// Where it comes from.
    pub origin: Origin,
    /// The precision it holds for; `None` for bandwidth.
    pub precision: Option<Precision>,
    /// Units per nanosecond.
    pub per_ns: f64,
    /// The datasheet, or what was run.
    pub source: String,
}

/// The least time of a case on a device, and what sets it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SpeedOfLight {
    /// `max(flops / peak, bytes / bandwidth)` in ns.
    pub time_ns: f64,
    /// What sets it.
    pub bound_by: Resource,
}

impl Evaluation {
    /// The highest ceiling of a kind for this implementation's precision, in units per ns.
    pub fn ceiling(&self, resource: Resource, origin: Origin) -> Option<&Ceiling> {
        let precision = self.implementation.precision;
        let fits = |ceiling: &&Ceiling| {
            ceiling.resource == resource
                && ceiling.origin == origin
                && ceiling.precision.is_none_or(|found| found == precision)
        };
        self.ceilings.iter().filter(fits).max_by(|one, other| one.per_ns.total_cmp(&other.per_ns))
    }

    /// T_sol of work that costs `cost`; `None` when a ceiling is not known.
    pub fn speed_of_light(&self, cost: Cost, origin: Origin) -> Option<SpeedOfLight> {
        let arithmetic = cost.flops as f64 / self.ceiling(Resource::Arithmetic, origin)?.per_ns;
        let bandwidth = cost.min_bytes as f64 / self.ceiling(Resource::Bandwidth, origin)?.per_ns;
        Some(match arithmetic >= bandwidth {
            true => SpeedOfLight { time_ns: arithmetic, bound_by: Resource::Arithmetic },
            false => SpeedOfLight { time_ns: bandwidth, bound_by: Resource::Bandwidth },
        })
    }

    /// T_sol / T of a case: 1 is the speed of light. `None` unless the case passed and the ceilings are known.
    pub fn share_of_light(&self, case: &CaseResult, origin: Origin) -> Option<f64> {
        Some(self.speed_of_light(case.cost(), origin)?.time_ns / case.median_ns()?)
    }
}

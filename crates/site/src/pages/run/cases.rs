//! The cases of a run: time, speed, and how far from the bounds.

use kernelproof_eval::evaluation::{Resource, Status};
use kernelproof_index::catalog::{CaseFacts, CorrectnessFacts};
use serde::Serialize;
use utoipa::ToSchema;

use crate::display;
use crate::view::Interval;

/// One case.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CaseLine {
    /// The suite's name.
    pub name: String,
    /// Values of the variable axes, by name.
    pub axes: Vec<(String, u64)>,
    /// How it ended.
    pub status: &'static str,
    /// What went wrong, in words.
    pub detail: Option<String>,
    /// The median with its interval, in ns; `None` unless it passed.
    pub time_ns: Option<Interval>,
    /// Lower quartile, median and upper quartile, in ns, also of a case that did not pass.
    pub quartiles_ns: Option<[f64; 3]>,
    /// Least and largest sample, in ns.
    pub range_ns: Option<[u64; 2]>,
    /// Samples.
    pub samples: u64,
    /// Least arithmetic of the problem.
    pub flops: u64,
    /// Least memory traffic of the problem.
    pub min_bytes: u64,
    /// Operations per ns, where it passed.
    pub flops_per_ns: Option<f64>,
    /// T_sol against measured ceilings, in ns.
    pub sol_ns: Option<f64>,
    /// What sets T_sol: `arithmetic` or `bandwidth`.
    pub bound_by: Option<&'static str>,
    /// T_sol / T against measured ceilings.
    pub share_of_light: Option<f64>,
    /// The same against datasheets.
    pub share_of_datasheet: Option<f64>,
    /// The baseline's median, in ns.
    pub baseline_ns: Option<f64>,
    /// Whether others took so much of the machine that it makes no record.
    pub throttled: bool,
    /// Errors against their bounds.
    pub errors: Option<CorrectnessFacts>,
}

impl CaseLine {
    /// The line of a case.
    pub(crate) fn of(case: &CaseFacts) -> Self {
        let time_ns = case.time_ns().map(Interval::from);
        let usable = time_ns.filter(|time| time.estimate > 0.0);
        Self {
            name: case.name.clone(),
            axes: case.axes.iter().map(|(name, value)| (name.clone(), *value)).collect(),
            status: case.status.name(),
            detail: case.detail.clone(),
            time_ns,
            quartiles_ns: case.samples.map(|samples| [samples.lower_ns, samples.median_ns.estimate, samples.upper_ns]),
            range_ns: case.samples.map(|samples| [samples.min_ns, samples.max_ns]),
            samples: case.samples.map_or(0, |samples| samples.count),
            flops: case.flops,
            min_bytes: case.min_bytes,
            flops_per_ns: usable.map(|time| case.flops as f64 / time.estimate),
            sol_ns: case.measured_sol_ns,
            bound_by: case.bound_by.map(|resource| match resource {
                Resource::Arithmetic => "arithmetic",
                Resource::Bandwidth => "bandwidth",
            }),
            share_of_light: case.measured_share().filter(|share| share.is_finite()),
            share_of_datasheet: case.datasheet_share().filter(|share| share.is_finite()),
            baseline_ns: case.baseline_ns,
            throttled: case.throttled,
            errors: case.correctness,
        }
    }

    /// Whether it has a time that counts.
    pub(crate) fn passed(&self) -> bool {
        self.status == Status::Passed.name()
    }

    /// The median, or how it ended.
    pub(crate) fn label(&self) -> String {
        self.time_ns.map_or_else(|| self.status.to_owned(), |time| time.time().to_string())
    }

    pub(super) fn quartiles(&self) -> String {
        let Some([lower, median, upper]) = self.quartiles_ns else { return "–".to_owned() };
        let (unit, scale) = display::time_unit(median);
        let finer = (upper - lower) / scale / 10.0;
        let end = |ns: f64| display::digits(ns / scale, Some(finer));
        format!("{} … {}\u{202f}{unit}", end(lower), end(upper))
    }

    pub(super) fn speed(&self) -> String {
        self.flops_per_ns.map_or_else(|| "–".to_owned(), |speed| display::gflops(speed).to_string())
    }

    pub(super) fn axes_text(&self) -> String {
        self.axes.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }
}

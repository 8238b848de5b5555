//! Judging one implementation on one case: is it right on fresh inputs, is it right while the clock runs, how long does
//! it take.
//!
//! The implementation never learns which call is checked, which is timed and which is audited: all calls look alike, have
//! new contents at new addresses, find their outputs full of NaN, and are looked at when they return.

mod arena;
mod contents;
mod duel;
mod rounds;
mod spot;
mod subject;
mod timing;
mod turn;

pub use arena::{Layout, Places, Span};
pub use contents::{Mixture, Run};
pub use duel::{Duel, SIDES, duel};
pub use subject::{Extent, Fault, InProcess, Subject};

use std::ops::ControlFlow;

use qkv_rope_op::{Cost, Dims, Problem};

use crate::check::Bounds;
use crate::evaluation::{CaseResult, Status, Telemetry};
use crate::flush::CacheFlush;
use crate::measure::Clock;
use turn::Turns;

/// How a case is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Rounds of fresh inputs that are checked; the first one in full unless `quick`.
    pub check_rounds: u32,
    /// Calls before the timed ones.
    pub warmup_calls: u32,
    /// Timed calls.
    pub timed_calls: u32,
    /// Whether all rounds are checked on a sample.
    pub quick: bool,
    /// Seed of the first round.
    pub public_seed: u64,
    /// Seed of everything else.
    pub secret_seed: u64,
}

impl Rules {
    /// Name of these rules in records. Another name for every change that could move a figure.
    pub const VERSION: &'static str = "kernelproof.protocol/1";

    /// The full protocol.
    pub fn full(public_seed: u64, secret_seed: u64) -> Self {
        Self { check_rounds: 10, warmup_calls: 10, timed_calls: 50, quick: false, public_seed, secret_seed }
    }

    /// Enough to show that things work.
    pub fn quick(public_seed: u64, secret_seed: u64) -> Self {
        Self { check_rounds: 2, warmup_calls: 1, timed_calls: 5, quick: true, public_seed, secret_seed }
    }

    /// Calls of one case, for progress: one for each round, one that repeats the first, warm-ups and timed ones.
    pub fn calls(&self) -> u32 {
        self.check_rounds + 1 + self.warmup_calls + self.timed_calls
    }
}

/// What a judge needs of the world around it.
pub struct Bench<'a> {
    /// The evaluator's clock.
    pub clock: &'a dyn Clock,
    /// Empties the caches before each call.
    pub flush: &'a mut CacheFlush,
    /// What the machine says of itself; `after_calls` is set by the judge.
    pub telemetry: &'a dyn Fn() -> Telemetry,
    /// Least time in ns that work of this cost can take on this device.
    pub least_ns: &'a dyn Fn(Cost) -> f64,
    /// Told after each call; breaking stops the case, which is then inconclusive.
    pub watch: &'a mut dyn FnMut() -> ControlFlow<()>,
}

impl std::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bench").field("flush", &self.flush).finish_non_exhaustive()
    }
}

/// Judges `subject` on `problem`; `name` and `observed` go into the result as they are.
///
/// # Panics
/// When the problem does not overwrite all four outputs.
pub fn judge(
    subject: &mut dyn Subject,
    problem: Problem,
    rules: &Rules,
    bench: &mut Bench<'_>,
    (name, observed): (&str, &str),
) -> CaseResult {
    let mut result = CaseResult {
        name: name.to_owned(),
        id: id_of(problem.dims),
        problem,
        status: Status::Passed,
        detail: None,
        observed: observed.to_owned(),
        bounds: Bounds::of(problem.precision),
        rounds: Vec::new(),
        audit: None,
        spot_checked_calls: 0,
        samples_ns: Vec::new(),
        activities: None,
        telemetry: Vec::new(),
        baseline_ns: None,
    };
    if let Err(fault) = judged(subject, rules, bench, &mut result) {
        result.status = fault.status;
        result.detail = Some(fault.detail);
    }
    result
}

fn judged(
    subject: &mut dyn Subject,
    rules: &Rules,
    bench: &mut Bench<'_>,
    result: &mut CaseResult,
) -> Result<(), Fault> {
    let layout = Layout::new(result.problem.dims);
    subject.begin(&result.problem, &layout)?;
    let mut turns = Turns::new(subject, result.problem, layout, rules.secret_seed);
    rounds::check(&mut turns, rules, bench, &mut result.rounds)?;
    timing::time(&mut turns, rules, bench, result)?;
    turns.subject.end()?;
    let least_ns = (bench.least_ns)(result.cost());
    let fastest_ns = result.samples_ns.iter().copied().min().unwrap_or(0);
    // Written so that a floor that is NaN fails.
    let possible = fastest_ns > 0 && fastest_ns as f64 >= least_ns;
    if !possible {
        let detail = format!("a call took {fastest_ns} ns, this device needs at least {least_ns:.0} ns");
        return Err(Fault { status: Status::ImpossibleTime, detail });
    }
    Ok(())
}

fn id_of(dims: Dims) -> Option<String> {
    qkv_rope_op::SUITE.into_iter().find(|case| case.dims() == dims).map(qkv_rope_op::Case::id)
}

fn go_on(bench: &mut Bench<'_>) -> Result<(), Fault> {
    match (bench.watch)() {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            Err(Fault { status: Status::Inconclusive, detail: "stopped before there was a verdict".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests;

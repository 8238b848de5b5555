//! One evaluation from settings to data.

pub(crate) mod ceilings;
pub(crate) mod compare;
pub(crate) mod exclusive;
pub(crate) mod exploits;
mod facts;
mod place;
pub(crate) mod score;
pub(crate) mod table;
mod telemetry;
mod who;

pub(crate) use place::place;
pub(crate) use who::{Candidate, Who, parse_who};

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use kernelproof_eval::evaluation::{BEYOND_CEILINGS, Ceiling, Evaluation, Origin, Resource, SCHEMA, Status};
use kernelproof_eval::flush::CacheFlush;
use kernelproof_eval::judge::{Bench, Rules, judge};
use kernelproof_eval::measure::MonotonicClock;
use qkv_rope_op::{Cost, Problem};

use crate::args::{Device, ModeArgs, Workload};
use crate::interrupt;
use crate::machine::{self, Machine};
use crate::progress::Progress;
use crate::report::record::public_command;

/// What is judged and how.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) mode: ModeArgs,
    pub(crate) rules: Rules,
    pub(crate) limits: Resources,
    /// Times of another implementation, for the score.
    pub(crate) baseline: Option<Evaluation>,
}

/// What an implementation may use.
#[derive(Clone, Debug)]
pub(crate) struct Resources {
    pub(crate) threads: NonZeroUsize,
    pub(crate) python: Option<PathBuf>,
    pub(crate) call_limit: Duration,
    pub(crate) memory_bytes: u64,
    /// Where solutions, and this program's own backends, compute.
    pub(crate) device: Device,
}

impl Resources {
    /// The number of the GPU, where one computes.
    pub(crate) fn gpu(&self) -> Option<usize> {
        match self.device {
            Device::Cpu => None,
            Device::Cuda(ordinal) => Some(ordinal),
        }
    }
}

impl Settings {
    fn problem(&self, workload: &Workload) -> Problem {
        self.mode.problem(workload.dims)
    }

    /// Work of a call for the progress bar, in MFLOP.
    fn weight(&self, workload: &Workload) -> u64 {
        u64::try_from(Cost::of(&self.problem(workload)).flops / 1_000_000).unwrap_or(u64::MAX).max(1)
    }

    /// Refuses what this machine cannot hold.
    ///
    /// # Errors
    /// Names the case.
    pub(crate) fn require_memory(&self, contestants: u128) -> anyhow::Result<()> {
        for workload in &self.workloads {
            let problem = self.problem(workload);
            let (inputs, outputs) = (machine::input_bytes(workload.dims), machine::output_bytes(&problem));
            // Two sets and the current contents; outputs, their copy, and an f64 reference with its magnitudes.
            let bytes = 3 * inputs + 5 * outputs + contestants * (inputs + outputs);
            machine::require_memory(&format!("inputs, outputs and the reference of {}", workload.name), bytes)?;
        }
        Ok(())
    }
}

/// Judges `candidate` on all cases; `None` when the user stopped it.
///
/// # Errors
/// When the machine cannot hold a case.
pub(crate) fn evaluate(
    settings: &Settings,
    candidate: &mut Candidate,
    ceilings: Vec<Ceiling>,
) -> anyhow::Result<Option<Evaluation>> {
    settings.require_memory(1)?;
    let (machine, monitor) = (Machine::here(), candidate.monitor());
    let mut flush = flush_for(&[candidate], &machine);
    let flush_bytes = candidate.gpu_flush_bytes().unwrap_or(flush.len_bytes());
    let mut evaluation = Evaluation {
        schema: SCHEMA.to_owned(),
        observed: now(),
        command: public_command(std::env::args()),
        implementation: candidate.implementation(settings),
        protocol: facts::protocol(settings, candidate, flush_bytes),
        environment: facts::environment(&machine, monitor.as_deref()),
        ceilings,
        baseline: settings.baseline.as_ref().map(|baseline| baseline.implementation.name.clone()),
        cases: Vec::new(),
    };
    let calls = u64::from(settings.rules.calls());
    let total = settings.workloads.iter().map(|workload| calls * settings.weight(workload)).sum();
    let progress = Progress::new(total);
    for workload in &settings.workloads {
        progress.doing(workload.name.clone());
        let step = settings.weight(workload);
        let mut left = calls;
        let mut watch = || {
            left = left.saturating_sub(1);
            progress.add(step);
            if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let least_ns = |cost: Cost| least_ns(&evaluation, cost);
        let mut bench = Bench {
            clock: &MonotonicClock::default(),
            flush: &mut flush,
            telemetry: &|| telemetry::read(monitor.as_deref()),
            least_ns: &least_ns,
            watch: &mut watch,
        };
        let problem = settings.problem(workload);
        let mut subject = candidate.subject();
        let mut case = judge(&mut *subject, problem, &settings.rules, &mut bench, (&workload.name, &now()));
        progress.add(left * step);
        if interrupt::requested() && case.status == Status::Inconclusive {
            return Ok(None);
        }
        case.baseline_ns = settings.baseline.as_ref().and_then(|baseline| {
            baseline.cases.iter().find(|other| other.problem == problem).and_then(|other| other.median_ns())
        });
        evaluation.cases.push(case);
    }
    Ok(Some(evaluation))
}

/// What empties this machine's caches before a call. A GPU's are emptied on the GPU, where the host's do not matter.
fn flush_for(candidates: &[&mut Candidate], machine: &Machine) -> CacheFlush {
    let on_gpu = candidates.iter().any(|candidate| candidate.gpu_flush_bytes().is_some());
    CacheFlush::new(if on_gpu { 0 } else { machine.last_level_cache_bytes }, machine.threads_available)
}

/// The floor that a time must not be below.
fn least_ns(evaluation: &Evaluation, cost: Cost) -> f64 {
    let floor = |resource, amount: u128| {
        let ceiling = evaluation.ceiling(resource, Origin::Measured);
        ceiling.map_or(0.0, |ceiling| amount as f64 / ceiling.per_ns / BEYOND_CEILINGS)
    };
    floor(Resource::Arithmetic, cost.flops).max(floor(Resource::Bandwidth, cost.min_bytes))
}

/// Now, UTC, RFC 3339.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().to_string()
}

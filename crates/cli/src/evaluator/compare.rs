//! Two implementations in turns.

use std::ops::ControlFlow;

use kernelproof_eval::comparison::{Compared, SCHEMA};
use kernelproof_eval::evaluation::{Gpu, Implementation, Status, Telemetry};
use kernelproof_eval::judge::{Bench, SIDES, duel};
use kernelproof_eval::measure::MonotonicClock;
use serde::{Deserialize, Serialize};

use super::{Candidate, Settings, flush_for, now};
use crate::failure::Failure;
use crate::interrupt;
use crate::machine::{Build, Machine};
use crate::progress::Progress;
use crate::report::record::public_command;

/// One run of `compare`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) schema: String,
    /// Whether all cases are there.
    pub(crate) complete: bool,
    /// Start, UTC, RFC 3339.
    pub(crate) observed: String,
    pub(crate) command: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) build: Build,
    /// The GPU, where one computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<Gpu>,
    /// A and B.
    pub(crate) implementations: [Implementation; 2],
    /// Who read the clock for A and for B. Ratios across two timers carry the difference between them.
    pub(crate) timers: [String; 2],
    /// Seed of contents and addresses.
    pub(crate) secret_seed: u64,
    pub(crate) cases: Vec<Compared>,
}

/// Compares the first of `candidates` with the second; the third is the first once more. What was measured until the user
/// stopped it is in the result, which then is not complete.
///
/// # Errors
/// When the machine cannot hold a case, or an implementation is wrong or cannot go on.
pub(crate) fn compare(settings: &Settings, candidates: &mut [Candidate; SIDES]) -> anyhow::Result<Comparison> {
    settings.require_memory(SIDES as u128)?;
    let machine = Machine::here();
    let mut flush = flush_for(&candidates.each_mut(), &machine);
    let monitor = candidates[0].monitor();
    let [first, second, _] = &*candidates;
    let mut comparison = Comparison {
        schema: SCHEMA.to_owned(),
        complete: false,
        observed: now(),
        command: public_command(std::env::args()),
        machine,
        build: Build::this(),
        implementations: [first.implementation(settings), second.implementation(settings)],
        gpu: monitor.as_ref().map(|monitor| monitor.facts().clone()),
        timers: [first.timer().to_owned(), second.timer().to_owned()],
        secret_seed: settings.rules.secret_seed,
        cases: Vec::new(),
    };
    let calls = SIDES as u64 * u64::from(settings.rules.calls());
    let progress = Progress::new(settings.workloads.iter().map(|workload| calls * settings.weight(workload)).sum());
    for workload in &settings.workloads {
        progress.doing(workload.name.clone());
        let step = settings.weight(workload);
        let mut watch = || {
            progress.add(step);
            if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut bench = Bench {
            clock: &MonotonicClock::default(),
            flush: &mut flush,
            telemetry: &Telemetry::default,
            least_ns: &|_| 0.0,
            watch: &mut watch,
        };
        let problem = settings.problem(workload);
        let [first, second, again] = candidates;
        let (mut first, mut second, mut again) = (first.subject(), second.subject(), again.subject());
        let duel = match duel([&mut *first, &mut *second, &mut *again], problem, &settings.rules, &mut bench) {
            Ok(duel) => duel,
            Err((_, fault)) if fault.status == Status::Inconclusive && interrupt::requested() => return Ok(comparison),
            Err((side, fault)) => {
                let name = &comparison.implementations[side % 2].name;
                let message = format!("{}: {name} is {}: {}", workload.name, fault.status, fault.detail);
                return Err(Failure::check(message).into());
            }
        };
        let [first_ns, second_ns, again_ns] = duel.samples_ns;
        comparison.cases.push(Compared { name: workload.name.clone(), problem, first_ns, second_ns, again_ns });
    }
    comparison.complete = true;
    Ok(comparison)
}

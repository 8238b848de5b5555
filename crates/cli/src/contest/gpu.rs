//! A benchmark on a GPU: each mode as a CUDA graph and as plain launches, in turns, with cold caches and telemetry.

use std::ops::ControlFlow;

use anyhow::Context as _;
use kernelproof_eval::check::{Bounds, Depth, Expected, silent};
use kernelproof_eval::measure::{Contestant, Ended, MonotonicClock, Protocol, measure};
use kernelproof_gauge::{CudaContestant, Launch, Monitor, Stopwatch, TimerChoice};
use qkv_rope_op::{OwnedInputs, Precision, Problem, Recipe};

use super::tournament::{INPUT_SEEDS, Outcome};
use crate::args::{ModeArgs, Workload};
use crate::interrupt;
use crate::machine::{self, Build, Machine};
use crate::progress::Progress;
use crate::report::record::{BenchRecord, CaseRecord, ContestantRecord, ProtocolRecord, SCHEMA, public_command};

/// Chooses the rows, columns and signs of the sample that is checked.
const SAMPLE_SEED: u64 = 200;

/// Rounds between two looks at the GPU.
const ROUNDS_A_LOOK: u32 = 10;

/// What is measured and how.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) ordinal: usize,
    pub(crate) timer: TimerChoice,
    pub(crate) workloads: Vec<Workload>,
    /// The precision that was asked for; both modes where none was.
    pub(crate) mode: ModeArgs,
    pub(crate) protocol: Protocol,
}

impl Settings {
    fn precisions(&self) -> Vec<Precision> {
        match self.mode.precision {
            Some(asked) => vec![asked.into()],
            None => vec![Precision::Fast, Precision::Split],
        }
    }

    fn problem(&self, workload: &Workload, precision: Precision) -> Problem {
        Problem { precision, ..self.mode.problem(workload.dims) }
    }
}

/// Opens the GPU; the record that it fills is empty at first.
///
/// # Errors
/// When there is no such GPU, or no such timer.
pub(crate) fn open(settings: &Settings) -> Result<(Stopwatch, Monitor, BenchRecord), kernelproof_gauge::Error> {
    let stopwatch = Stopwatch::open(settings.ordinal, settings.timer)?;
    let monitor = Monitor::new(stopwatch.gpu())?;
    let record = BenchRecord {
        schema: SCHEMA.to_owned(),
        complete: false,
        started: jiff::Timestamp::now().to_string(),
        command: public_command(std::env::args()),
        machine: Machine::here(),
        gpu: Some(monitor.facts().clone()),
        build: Build::this(),
        protocol: ProtocolRecord {
            warmup_rounds: settings.protocol.warmup,
            sample_rounds: settings.protocol.samples,
            flush_bytes: stopwatch.flush_bytes(),
            input_seeds: INPUT_SEEDS.to_vec(),
        },
        cases: Vec::new(),
    };
    Ok((stopwatch, monitor, record))
}

/// Measures what `settings` say. `record` gets what was measured, whole or not.
///
/// # Errors
/// When the backend refuses a case or the device fails.
pub(crate) fn run(
    settings: &Settings,
    stopwatch: &Stopwatch,
    monitor: &Monitor,
    record: &mut BenchRecord,
) -> anyhow::Result<Outcome> {
    for workload in &settings.workloads {
        let bytes =
            machine::input_bytes(workload.dims) + machine::output_bytes(&settings.problem(workload, Precision::Split));
        let blocks = (INPUT_SEEDS.len() * (1 + 2 * settings.precisions().len())) as u128;
        machine::require_memory(&format!("inputs and outputs of {}", workload.name), blocks * bytes)?;
    }
    let rounds = u64::from(settings.protocol.warmup) + u64::from(settings.protocol.samples);
    let progress = Progress::new(rounds * settings.workloads.len() as u64);
    for workload in &settings.workloads {
        progress.doing(workload.name.clone());
        let case =
            run_case(settings, workload, (stopwatch, monitor), &progress).with_context(|| workload.name.clone())?;
        let Some((case, outcome)) = case else { return Ok(Outcome::Stopped) };
        record.cases.push(case);
        if outcome == Outcome::Stopped {
            return Ok(outcome);
        }
    }
    record.complete = true;
    Ok(Outcome::Complete)
}

/// One case; `None` when the user stopped it before it was timed.
fn run_case(
    settings: &Settings,
    workload: &Workload,
    (stopwatch, monitor): (&Stopwatch, &Monitor),
    progress: &Progress,
) -> anyhow::Result<Option<(CaseRecord, Outcome)>> {
    let inputs = INPUT_SEEDS.map(|seed| OwnedInputs::generate(workload.dims, Recipe::Benchmark, seed));
    let (mut contestants, mut records) = (Vec::new(), Vec::new());
    let mut expected = None;
    for precision in settings.precisions() {
        let problem = settings.problem(workload, precision);
        let expected = match &expected {
            Some(expected) => expected,
            None => expected.insert(Expected::new(
                &problem,
                &inputs[0].views(),
                Depth::Sampled { seed: SAMPLE_SEED },
                &silent,
            )?),
        };
        for launch in [Launch::Graph, Launch::Stream] {
            if interrupt::requested() {
                return Ok(None);
            }
            let mut contestant = CudaContestant::new(stopwatch, problem, &inputs, launch)?;
            records.push(checked(&mut contestant, precision, expected)?);
            contestants.push(contestant);
        }
    }
    let mut telemetry = vec![monitor.read()];
    let mut watch = |done: kernelproof_eval::measure::Progress| {
        progress.add(1);
        if done.done.is_multiple_of(ROUNDS_A_LOOK) {
            telemetry.push(monitor.read());
        }
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut players: Vec<&mut dyn Contestant> = Vec::new();
    players.extend(contestants.iter_mut().map(|one| -> &mut dyn Contestant { one }));
    // A stopwatch empties the caches itself.
    let measured = measure(&mut players, settings.protocol, &MonotonicClock::default(), &mut || {}, &mut watch);
    for (record, samples_ns) in records.iter_mut().zip(measured.samples_ns) {
        record.samples_ns = samples_ns;
    }
    let first = settings.precisions().first().copied().unwrap_or_default();
    let case = CaseRecord {
        name: workload.name.clone(),
        problem: settings.problem(workload, first),
        contestants: records,
        peaks: Vec::new(),
        telemetry,
    };
    match measured.ended {
        Ended::Complete => Ok(Some((case, Outcome::Complete))),
        Ended::Stopped => Ok(Some((case, Outcome::Stopped))),
        Ended::Failed { contestant, reason } => {
            Err(anyhow::Error::from_boxed(reason).context(format!("{contestant} failed while it was timed")))
        }
    }
}

/// The record of a contestant before it is timed: how its outputs agree with f64, in the bounds of its mode.
fn checked(
    contestant: &mut CudaContestant<'_>,
    precision: Precision,
    expected: &Expected,
) -> anyhow::Result<ContestantRecord> {
    let agreements = expected.agreements(&contestant.outputs()?, None, &silent);
    let bounds = Bounds::of(precision);
    let failures = agreements.iter().flat_map(|agreement| agreement.failures(&bounds, false));
    Ok(ContestantRecord {
        name: contestant.name(),
        version: None,
        threads: 1,
        isa: None,
        precision: Some(precision),
        timer: contestant.timer().to_owned(),
        failures: failures.map(|failure| failure.to_string()).collect(),
        normwise_errors: agreements.iter().map(|one| (one.tensor.name().to_owned(), one.normwise)).collect(),
        samples_ns: Vec::new(),
    })
}

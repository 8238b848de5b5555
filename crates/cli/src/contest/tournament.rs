//! One benchmark from settings to record: for each case, every contestant is prepared, checked and timed in turn.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;

use anyhow::Context as _;
use kernelproof_eval::flush::CacheFlush;
use kernelproof_eval::measure::{Contestant, Ended, MonotonicClock, Protocol, measure};
use qkv_rope_cpu::{CpuBackend, Isa};
use qkv_rope_op::{Cost, Problem};

use super::pytorch::PyTorch;
use super::verify::{Verdict, expect, verify};
use super::{Entrant, InputSets, Ours};
use crate::args::{ModeArgs, Workload};
use crate::device;
use crate::failure::Failure;
use crate::interrupt;
use crate::machine::{self, Build, Machine};
use crate::peak::PeakLoop;
use crate::progress::Progress;
use crate::report::record::{
    BenchRecord, CaseRecord, ContestantRecord, PeakRecord, ProtocolRecord, SCHEMA, public_command,
};

/// Seeds of the two input sets that rounds alternate between.
pub(crate) const INPUT_SEEDS: [u64; 2] = [200, 201];

/// What a user would run instead of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Rival {
    /// PyTorch in eager mode, from a Python on this machine
    Pytorch,
    /// The crate gemm, after un-rotating into one matrix (needs a build with --features rivals)
    Gemm,
    /// The crate matrixmultiply, likewise
    Matrixmultiply,
}

/// What is measured and how.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) mode: ModeArgs,
    pub(crate) protocol: Protocol,
    pub(crate) flush: bool,
    /// Ours runs with each of these; the first one is what others are compared with.
    pub(crate) isas: Vec<Isa>,
    /// Ours runs with each of these; rivals use the first.
    pub(crate) threads: Vec<NonZeroUsize>,
    pub(crate) rivals: Vec<Rival>,
    pub(crate) python: Option<PathBuf>,
}

/// How a benchmark ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything was measured.
    Complete,
    /// The user stopped it.
    Stopped,
}

/// What lives as long as the benchmark.
struct Field {
    backends: Vec<(CpuBackend, NonZeroUsize)>,
    peaks: Vec<PeakLoop>,
    pytorch: Option<PyTorch>,
    flush: CacheFlush,
    clock: MonotonicClock,
}

impl Settings {
    fn problem(&self, workload: &Workload) -> Problem {
        self.mode.problem(workload.dims)
    }

    fn first_threads(&self) -> NonZeroUsize {
        self.threads.first().copied().unwrap_or(NonZeroUsize::MIN)
    }

    /// A record of this machine and these settings, without cases.
    pub(crate) fn record(&self) -> BenchRecord {
        let machine = Machine::here();
        let flush_bytes = if self.flush { 2 * machine.last_level_cache_bytes } else { 0 };
        BenchRecord {
            schema: SCHEMA.to_owned(),
            complete: false,
            started: jiff::Timestamp::now().to_string(),
            command: public_command(std::env::args()),
            machine,
            gpu: None,
            build: Build::this(),
            protocol: ProtocolRecord {
                warmup_rounds: self.protocol.warmup,
                sample_rounds: self.protocol.samples,
                flush_bytes,
                input_seeds: INPUT_SEEDS.to_vec(),
            },
            cases: Vec::new(),
        }
    }
}

/// Measures what `settings` say. `record` gets what was measured, whole or not: also when this ends with an error.
///
/// # Errors
/// When a contestant is not available, refuses a case or fails.
pub(crate) fn run(settings: &Settings, record: &mut BenchRecord) -> anyhow::Result<Outcome> {
    if let Some(empty) = settings.workloads.iter().find(|workload| cost(settings, workload).flops == 0) {
        return Err(Failure::input(format!("{}: there is nothing to time in an empty problem", empty.name)).into());
    }
    for workload in &settings.workloads {
        let outputs = machine::output_bytes(&settings.problem(workload));
        let bytes = INPUT_SEEDS.len() as u128 * machine::input_bytes(workload.dims) + outputs;
        machine::require_memory(&format!("inputs and outputs of {}", workload.name), bytes)?;
    }
    let mut field = enter(settings, record)?;
    let rounds = u64::from(settings.protocol.warmup) + u64::from(settings.protocol.samples);
    let total: u64 = settings.workloads.iter().map(|workload| rounds * weight(settings, workload)).sum();
    let progress = Progress::new(total);
    for workload in &settings.workloads {
        if run_case(settings, workload, &mut field, record, &progress)? == Outcome::Stopped {
            return Ok(Outcome::Stopped);
        }
    }
    record.complete = true;
    Ok(Outcome::Complete)
}

fn cost(settings: &Settings, workload: &Workload) -> Cost {
    Cost::of(&settings.problem(workload))
}

/// Work of a round for the progress bar, in MFLOP.
fn weight(settings: &Settings, workload: &Workload) -> u64 {
    u64::try_from(cost(settings, workload).flops / 1_000_000).unwrap_or(u64::MAX).max(1)
}

fn enter(settings: &Settings, record: &BenchRecord) -> anyhow::Result<Field> {
    let clock = MonotonicClock::default();
    let (mut backends, mut peaks) = (Vec::new(), Vec::new());
    for &isa in &settings.isas {
        for &threads in &settings.threads {
            backends.push((device::cpu(Some(isa), threads)?, threads));
            peaks.push(PeakLoop::new(isa, threads, &clock)?);
        }
    }
    let threads = settings.first_threads();
    let pytorch = settings.rivals.contains(&Rival::Pytorch);
    let pytorch = pytorch.then(|| PyTorch::start(settings.python.as_deref(), threads.get())).transpose()?;
    let flush = CacheFlush::new(record.protocol.flush_bytes / 2, record.machine.threads_available);
    Ok(Field { backends, peaks, pytorch, flush, clock })
}

fn run_case(
    settings: &Settings,
    workload: &Workload,
    field: &mut Field,
    record: &mut BenchRecord,
    progress: &Progress,
) -> anyhow::Result<Outcome> {
    let problem = settings.problem(workload);
    progress.doing(format!("{}: preparing", workload.name));
    let inputs = InputSets::generate(problem, INPUT_SEEDS);
    let Field { backends, peaks, pytorch, flush, clock } = field;
    let mut entrants = entrants(settings, &inputs, backends, pytorch.as_mut())?;
    let Some(verdicts) = verdicts(workload, &inputs, &mut entrants, progress)? else { return Ok(Outcome::Stopped) };
    progress.doing(format!("{}: timing", workload.name));
    let step = weight(settings, workload);
    let mut watch = |_| {
        progress.add(step);
        if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let mut players: Vec<&mut dyn Contestant> = Vec::new();
    players.extend(entrants.iter_mut().map(|entrant| -> &mut dyn Contestant { &mut **entrant }));
    players.extend(peaks.iter_mut().map(|peak| -> &mut dyn Contestant { peak }));
    let measured = measure(&mut players, settings.protocol, clock, &mut || flush.flush(), &mut watch);
    record.cases.push(case_record(workload, problem, &entrants, verdicts, peaks, measured.samples_ns));
    match measured.ended {
        Ended::Complete => Ok(Outcome::Complete),
        Ended::Stopped => Ok(Outcome::Stopped),
        Ended::Failed { contestant, reason } => {
            let error = anyhow::Error::from_boxed(reason);
            Err(error.context(format!("{}: {contestant} failed while it was timed", workload.name)))
        }
    }
}

/// Everyone who takes part in a case: ours first, each configuration; then the crates; then PyTorch.
fn entrants<'a>(
    settings: &Settings,
    inputs: &'a InputSets,
    backends: &'a [(CpuBackend, NonZeroUsize)],
    pytorch: Option<&'a mut PyTorch>,
) -> anyhow::Result<Vec<Box<dyn Entrant + 'a>>> {
    let mut entrants: Vec<Box<dyn Entrant + 'a>> = Vec::new();
    for (backend, threads) in backends {
        entrants.push(Box::new(Ours::new(backend, threads.get(), inputs)?));
    }
    enter_crates(settings, inputs, &mut entrants)?;
    if let Some(pytorch) = pytorch {
        entrants.push(Box::new(pytorch.load(inputs)?));
    }
    Ok(entrants)
}

/// The check of each entrant; `None` when the user stopped it.
fn verdicts(
    workload: &Workload,
    inputs: &InputSets,
    entrants: &mut [Box<dyn Entrant + '_>],
    progress: &Progress,
) -> anyhow::Result<Option<Vec<Verdict>>> {
    let expected = expect(inputs)?;
    let mut verdicts = Vec::new();
    for entrant in entrants {
        if interrupt::requested() {
            return Ok(None);
        }
        progress.doing(format!("{}: checking {}", workload.name, entrant.name()));
        verdicts.push(verify(&mut **entrant, &expected).with_context(|| workload.name.clone())?);
    }
    Ok(Some(verdicts))
}

#[cfg(feature = "rivals")]
fn enter_crates<'a>(
    settings: &Settings,
    inputs: &'a InputSets,
    entrants: &mut Vec<Box<dyn Entrant + 'a>>,
) -> anyhow::Result<()> {
    use super::rivals::{Product, Rival as CrateRival};
    for (rival, product) in [(Rival::Gemm, Product::Gemm), (Rival::Matrixmultiply, Product::Matrixmultiply)] {
        if settings.rivals.contains(&rival) {
            entrants.push(Box::new(CrateRival::new(product, settings.first_threads(), inputs)?));
        }
    }
    Ok(())
}

#[cfg(not(feature = "rivals"))]
fn enter_crates<'a>(settings: &Settings, _: &'a InputSets, _: &mut Vec<Box<dyn Entrant + 'a>>) -> anyhow::Result<()> {
    if settings.rivals.iter().all(|&rival| rival == Rival::Pytorch) {
        return Ok(());
    }
    let failure =
        Failure::unavailable("this build has no rival crates: gemm and matrixmultiply are left out by default");
    Err(failure.help("build with them: cargo run --release -p kernelproof --features rivals -- bench …").into())
}

fn case_record(
    workload: &Workload,
    problem: Problem,
    entrants: &[Box<dyn Entrant + '_>],
    verdicts: Vec<Verdict>,
    peaks: &[PeakLoop],
    mut samples_ns: Vec<Vec<u64>>,
) -> CaseRecord {
    let peak_samples = samples_ns.split_off(entrants.len());
    let contestants = entrants.iter().zip(verdicts).zip(samples_ns);
    CaseRecord {
        name: workload.name.clone(),
        problem,
        contestants: contestants
            .map(|((entrant, verdict), samples_ns)| ContestantRecord {
                name: entrant.name(),
                version: entrant.version(),
                threads: entrant.threads(),
                isa: entrant.isa().map(|isa| isa.to_string()),
                precision: None,
                timer: entrant.timer(),
                normwise_errors: verdict.normwise_errors,
                failures: verdict.failures,
                samples_ns,
            })
            .collect(),
        peaks: peaks
            .iter()
            .zip(peak_samples)
            .map(|(peak, samples_ns)| PeakRecord {
                isa: peak.isa().to_string(),
                threads: peak.threads(),
                flops: peak.flops(),
                samples_ns,
            })
            .collect(),
        telemetry: Vec::new(),
    }
}

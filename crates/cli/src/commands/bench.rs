//! `bench`: timing, beside what a user would run instead.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use kernelproof_eval::measure::Protocol;
use kernelproof_gauge::TimerChoice;
use qkv_rope_cpu::Isa;

use crate::args::{Device, JsonArg, JsonTo, ModeArgs, WorkloadArgs, parse_device, parse_isa, parse_threads};
use crate::contest::gpu;
use crate::contest::tournament::{self, Outcome, Rival, Settings};
use crate::device::unavailable;
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::machine;
use crate::output;
use crate::report::record::{BenchRecord, ContestantRecord};
use crate::report::{plot, summary};

const AFTER_HELP: &str = "\
Examples:
  kernelproof bench --case s1024b2
  kernelproof bench --all --against pytorch --json bench.json --plot bench.svg
  kernelproof bench --all --against pytorch --python ~/venv/bin/python --samples 15 --warmup 3
  kernelproof bench --case s2048b1 --threads 2,1          how much a second thread helps
  kernelproof bench --all --device cuda --json gpu.json      both modes, CUDA graph on and off
  kernelproof bench --dims B=1,S=300,E=1024,H=16,K=4,D=80

Contestants take turns (A B A B), with other inputs and cold caches before each call, and so does a loop that \
measures the FMA peak. Each contestant is checked against f64 first. Ratios are against the first contestant, with a \
95 % interval. PyTorch times itself inside its own process. Ctrl-C stops after the current round and keeps what was \
measured.";

/// Time cases, beside PyTorch or other rivals, and save all samples
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Rounds before the kept ones
    #[arg(long, value_name = "N", default_value_t = 10)]
    warmup: u32,
    /// Rounds whose times are kept
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Where it computes: cpu, cuda (the first NVIDIA GPU) or cuda:N. On a GPU both modes are timed as CUDA graphs and as
    /// plain launches
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, default_value = "cpu")]
    device: Device,
    /// What reads the time on a GPU [default: cupti where it can be loaded, else events]
    #[arg(long, value_enum, value_name = "TIMER")]
    timer: Option<TimerArg>,
    /// CPU threads, separated by commas; rivals use the first number [default: all that this process may use]
    #[arg(long, value_name = "N", value_parser = parse_threads, value_delimiter = ',')]
    threads: Vec<NonZeroUsize>,
    /// Instruction sets, separated by commas: avx512, avx2, portable [default: the widest that this processor has]
    #[arg(long, value_name = "ISA", value_delimiter = ',', value_parser = parse_isa)]
    isa: Vec<Isa>,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    rivals: RivalArgs,
    /// Leave the caches as the previous call left them
    #[arg(long)]
    no_flush: bool,
    /// Write a plot (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

/// What reads the time on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TimerArg {
    /// The device's own records of what it did, from the first to the last activity of a call
    Cupti,
    /// CUDA events before and after a call
    Events,
}

/// Whom to compare with.
#[derive(Clone, Debug, Args)]
pub(crate) struct RivalArgs {
    /// What to run beside this project's backends, separated by commas
    #[arg(long, value_enum, value_name = "RIVAL", value_delimiter = ',')]
    pub(crate) against: Vec<Rival>,
    /// The Python that has PyTorch [default: python3 or python on PATH]
    #[arg(long, value_name = "PROGRAM", env = "KERNELPROOF_PYTHON")]
    pub(crate) python: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn execute(args: &BenchArgs) -> anyhow::Result<Exit> {
    if let Device::Cuda(ordinal) = args.device {
        return on_gpu(args, ordinal);
    }
    if args.timer.is_some() {
        return Err(Failure::input("--timer is for GPUs; a CPU's times are by the wall clock").into());
    }
    let settings = Settings {
        workloads: args.workload.workloads()?,
        mode: args.mode,
        protocol: Protocol { warmup: args.warmup, samples: args.samples },
        flush: !args.no_flush,
        isas: or_default(&args.isa, Isa::detect()),
        threads: threads_or_all(&args.threads),
        rivals: args.rivals.against.clone(),
        python: args.rivals.python.clone(),
    };
    measure_and_save(&settings, args.json.json.as_ref(), args.plot.as_deref())
}

/// Both modes on a GPU, or the one that was asked for.
fn on_gpu(args: &BenchArgs, ordinal: usize) -> anyhow::Result<Exit> {
    if !args.rivals.against.is_empty() || !args.threads.is_empty() || !args.isa.is_empty() || args.no_flush {
        let failure = Failure::input("--against, --threads, --isa and --no-flush are for the CPU");
        return Err(failure
            .help("on a GPU, `kernelproof compare cuda-fast solution.json` sets a rival beside ours")
            .into());
    }
    let settings = gpu::Settings {
        ordinal,
        timer: match args.timer {
            None => TimerChoice::Best,
            Some(TimerArg::Cupti) => TimerChoice::Cupti,
            Some(TimerArg::Events) => TimerChoice::Events,
        },
        workloads: args.workload.workloads()?,
        mode: args.mode,
        protocol: Protocol { warmup: args.warmup, samples: args.samples },
    };
    let (stopwatch, monitor, mut record) = gpu::open(&settings).map_err(unavailable)?;
    interrupt::listen()?;
    let outcome = gpu::run(&settings, &stopwatch, &monitor, &mut record);
    save(&record, outcome, args.json.json.as_ref(), args.plot.as_deref())
}

/// The counts, or all threads that this process may use.
pub(crate) fn threads_or_all(counts: &[NonZeroUsize]) -> Vec<NonZeroUsize> {
    or_default(counts, NonZeroUsize::new(machine::threads_available()).unwrap_or(NonZeroUsize::MIN))
}

fn or_default<T: Copy>(values: &[T], default: T) -> Vec<T> {
    if values.is_empty() { vec![default] } else { values.to_vec() }
}

/// Runs a benchmark, prints its table and saves what was asked for; what was measured before an error is saved too.
pub(crate) fn measure_and_save(
    settings: &Settings,
    json: Option<&JsonTo>,
    plot: Option<&Path>,
) -> anyhow::Result<Exit> {
    limit_matrixmultiply(settings);
    interrupt::listen()?;
    let mut record = settings.record();
    let outcome = tournament::run(settings, &mut record);
    save(&record, outcome, json, plot)
}

fn save(
    record: &BenchRecord,
    outcome: anyhow::Result<Outcome>,
    json: Option<&JsonTo>,
    plot: Option<&Path>,
) -> anyhow::Result<Exit> {
    if !record.cases.is_empty() {
        output::result(json, record, &summary::text(record))?;
        if let Some(path) = plot {
            save_plot(path, record)?;
        }
    }
    let agrees = record.cases.iter().flat_map(|case| &case.contestants).all(ContestantRecord::agrees);
    match outcome? {
        Outcome::Stopped => Ok(Exit::Interrupted),
        Outcome::Complete if agrees => Ok(Exit::Success),
        Outcome::Complete => Ok(Exit::CheckFailed),
    }
}

/// An interrupted record may hold nothing to draw; that is no second error.
fn save_plot(path: &Path, record: &BenchRecord) -> anyhow::Result<()> {
    match plot::svg(record) {
        Ok(svg) => output::save(path, svg.as_bytes()),
        Err(_) if !record.complete => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(feature = "rivals")]
fn limit_matrixmultiply(settings: &Settings) {
    if let Some(&threads) = settings.threads.first() {
        // SAFETY: called before this process starts its first thread.
        unsafe { crate::contest::rivals::set_matrixmultiply_threads(threads) };
    }
}

#[cfg(not(feature = "rivals"))]
fn limit_matrixmultiply(_: &Settings) {}

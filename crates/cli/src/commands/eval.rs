//! `eval`: judging and timing one implementation by the public protocol.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kernelproof_eval::evaluation::{Evaluation, Status};
use kernelproof_eval::judge::Rules;
use qkv_rope_cpu::Isa;
use rand::RngExt as _;

use crate::args::{Device, JsonArg, ModeArgs, WorkloadArgs, parse_device, parse_threads};
use crate::bundles;
use crate::evaluator::exclusive::Exclusive;
use crate::evaluator::{self, Candidate, Resources, Settings, Who, ceilings, exploits, parse_who, place, score, table};
use crate::failure::Exit;
use crate::interrupt;
use crate::machine;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  kernelproof eval --all -o records/runs
  kernelproof eval --impl cpu-avx2 --case s1024b2
  kernelproof eval --solution solution.json --all --quick --python ~/venv/bin/python
  kernelproof eval --impl cuda-split --all -o records/runs
  kernelproof eval --solution solution.json --device cuda --precision fast --all
  kernelproof eval --self-test                 cheats that must be rejected, honest oddities that must pass

An evaluation checks 10 rounds of fresh inputs against f64 (the first in full), then times 50 calls with new contents at new \
addresses and cold caches, and looks at the outputs of every one of them. A solution runs in a process of its own, which \
is stopped whenever it is not its turn and has neither the clock nor the reference; that keeps figures honest but is \
no protection against malicious code. Ctrl-C discards the run: nothing is written.";

/// The seed of the first checked round, unless another is given.
const PUBLIC_SEED: u64 = 200;

/// Seeds below this are exact in every JSON reader.
const SEEDS: u64 = 1 << 53;

/// Judge and time one implementation so that the figure can be trusted
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct EvalArgs {
    /// A built-in implementation: cpu-avx512, cpu-avx2, cpu-portable, cuda-fast or cuda-split [default: the widest that this processor has]
    #[arg(long = "impl", value_name = "NAME", value_parser = parse_who)]
    implementation: Option<Who>,
    /// A solution in SOL-ExecBench's format (pytorch, triton, cuda_cpp)
    #[arg(long, value_name = "FILE", conflicts_with = "implementation")]
    solution: Option<PathBuf>,
    /// Judge the evaluator: run its exploit suite and print the mutation score
    #[arg(long, conflicts_with_all = ["implementation", "solution", "cases", "all", "dims", "baseline", "output", "quick"])]
    self_test: bool,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    /// A run's bundle to score against: T_b of the score
    #[arg(long, value_name = "BUNDLE")]
    baseline: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
    /// Write the run as a bundle into a new folder under DIR, such as records/runs
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// How thoroughly.
#[derive(Clone, Debug, Args)]
pub(crate) struct RulesArgs {
    /// A few calls only: shows that things work, never ranks
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of the first checked round
    #[arg(long, value_name = "N", default_value_t = PUBLIC_SEED, value_parser = clap::value_parser!(u64).range(..SEEDS))]
    pub(crate) seed: u64,
    /// Seed of everything else; the record shows it [default: drawn anew]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..SEEDS))]
    pub(crate) secret_seed: Option<u64>,
}

impl RulesArgs {
    pub(crate) fn rules(&self) -> Rules {
        let secret = self.secret_seed.unwrap_or_else(secret_seed);
        if self.quick { Rules::quick(self.seed, secret) } else { Rules::full(self.seed, secret) }
    }
}

/// What an implementation may use.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResourceArgs {
    /// Where it computes: cpu, cuda (the first NVIDIA GPU) or cuda:N [default: cuda for cuda-fast and cuda-split, else cpu]
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<Device>,
    /// CPU threads [default: all that this process may use; 1 beside a GPU]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,
    /// The Python that has PyTorch [default: python3 or python on PATH]
    #[arg(long, value_name = "PROGRAM", env = "KERNELPROOF_PYTHON")]
    python: Option<PathBuf>,
    /// Longest that one call of a solution may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    call_limit: u64,
    /// Most memory that a solution may allocate, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 8192, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    memory_limit: u64,
}

impl ResourceArgs {
    /// What was asked for, for implementations on `device`.
    pub(crate) fn resources(&self, device: Device) -> Resources {
        let all = NonZeroUsize::new(machine::threads_available()).unwrap_or(NonZeroUsize::MIN);
        // A GPU is given its work by one thread; more would put runs of other machines into other cohorts.
        self.resources_with(device, if device == Device::Cpu { all } else { NonZeroUsize::MIN })
    }

    /// What was asked for, or `threads` where no number of threads was.
    pub(crate) fn resources_with(&self, device: Device, threads: NonZeroUsize) -> Resources {
        Resources {
            threads: self.threads.unwrap_or(threads),
            python: self.python.clone(),
            call_limit: Duration::from_secs(self.call_limit),
            memory_bytes: self.memory_limit << 20,
            device,
        }
    }
}

/// Runs the command.
pub(crate) fn execute(args: &EvalArgs) -> anyhow::Result<Exit> {
    if args.self_test {
        return self_test(args);
    }
    let who = match (&args.solution, &args.implementation) {
        (Some(path), _) => Who::Solution(path.clone()),
        (None, Some(who)) => who.clone(),
        (None, None) => Who::Cpu(Isa::detect()),
    };
    let (device, mode) = place(&[&who], args.resources.device, args.mode)?;
    let settings = Settings {
        workloads: args.workload.workloads()?,
        mode,
        rules: args.rules.rules(),
        limits: args.resources.resources(device),
        baseline: args.baseline.as_deref().map(read).transpose()?,
    };
    if args.output.is_some() {
        bundles::require_suite(&settings)?;
    }
    let Some(Conducted { evaluation, solution }) = conduct(&who, &settings)? else { return Ok(Exit::Interrupted) };
    let written = args.output.as_deref().map(|parent| bundles::write(parent, &evaluation, solution));
    // A run that cannot be stored is still shown.
    output::result(args.json.json.as_ref(), &evaluation, &table::text(&evaluation))?;
    if let Some(folder) = written.transpose()? {
        output::note(&format!("wrote {}", folder.display()));
    }
    let passed = evaluation.cases.iter().all(|case| case.status == Status::Passed);
    Ok(if passed { Exit::Success } else { Exit::CheckFailed })
}

fn self_test(args: &EvalArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let test = exploits::run(
        &args.resources.resources(args.resources.device.unwrap_or_default()),
        args.rules.rules().secret_seed,
    )?;
    score::keep(&test);
    output::result(args.json.json.as_ref(), &test, &table::self_test(&test))?;
    let right = test.findings.iter().all(exploits::Finding::is_right);
    Ok(match (test.complete, right) {
        (false, _) => Exit::Interrupted,
        (true, true) => Exit::Success,
        (true, false) => Exit::CheckFailed,
    })
}

/// An evaluation that went to its end.
pub(crate) struct Conducted {
    pub(crate) evaluation: Evaluation,
    /// The solution's file, where one was judged.
    pub(crate) solution: Option<Vec<u8>>,
}

/// Judges an implementation, alone on this machine; `None` when the user stopped it.
///
/// # Errors
/// When another measurement is running, or the implementation is not available.
pub(crate) fn conduct(who: &Who, settings: &Settings) -> anyhow::Result<Option<Conducted>> {
    let _machine = Exclusive::take()?;
    interrupt::listen()?;
    let mut candidate = Candidate::open(who, &settings.limits)?;
    let known = ceilings::of(&settings.limits)?;
    let Some(mut evaluation) = evaluator::evaluate(settings, &mut candidate, known)? else {
        output::note("stopped: nothing was written, because part of an evaluation is none");
        return Ok(None);
    };
    if settings.limits.gpu().is_none() {
        // A neighbour may have held the machine back at the start; a ceiling is the most that it was seen to do.
        ceilings::raise(&mut evaluation.ceilings, &ceilings::measured(settings.limits.threads)?);
    }
    Ok(Some(Conducted { evaluation, solution: candidate.solution_file() }))
}

/// A seed that nobody knows yet.
pub(crate) fn secret_seed() -> u64 {
    rand::rng().random_range(0..SEEDS)
}

/// Reads the evaluation of a run's bundle.
///
/// # Errors
/// When it cannot be read or does not verify.
fn read(folder: &Path) -> anyhow::Result<Evaluation> {
    Ok(bundles::read(folder)?.run.spec.evaluation)
}

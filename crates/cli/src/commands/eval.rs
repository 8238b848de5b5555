//! `eval`: judging and timing one implementation by the public protocol.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use kernelproof_eval::evaluation::{Evaluation, SCHEMA, Status};
use kernelproof_eval::judge::Rules;
use qkv_rope_cpu::Isa;
use rand::RngExt as _;

use crate::args::{JsonArg, ModeArgs, WorkloadArgs, parse_threads};
use crate::evaluator::exclusive::Exclusive;
use crate::evaluator::{self, Candidate, Resources, Settings, Who, ceilings, exploits, parse_who, table};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::machine;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  kernelproof eval --all -o evaluation
  kernelproof eval --impl cpu-avx2 --case s1024b2
  kernelproof eval --solution solution.json --all --quick --python ~/venv/bin/python
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
    /// A built-in implementation: cpu-avx512, cpu-avx2 or cpu-portable [default: the widest that this processor has]
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
    /// An evaluation to score against: T_b of the score
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
    /// Write the evaluation to DIR/evaluation.json; the folder is made when it is missing
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
        let secret = self.secret_seed.unwrap_or_else(|| rand::rng().random_range(0..SEEDS));
        if self.quick { Rules::quick(self.seed, secret) } else { Rules::full(self.seed, secret) }
    }
}

/// What an implementation may use.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResourceArgs {
    /// CPU threads [default: all that this process may use]
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
    pub(crate) fn resources(&self) -> Resources {
        let all = || NonZeroUsize::new(machine::threads_available()).unwrap_or(NonZeroUsize::MIN);
        Resources {
            threads: self.threads.unwrap_or_else(all),
            python: self.python.clone(),
            call_limit: Duration::from_secs(self.call_limit),
            memory_bytes: self.memory_limit << 20,
        }
    }
}

/// Runs the command.
pub(crate) fn execute(args: &EvalArgs) -> anyhow::Result<Exit> {
    if args.self_test {
        return self_test(args);
    }
    let target = args.output.as_deref().map(new_file).transpose()?;
    let settings = Settings {
        workloads: args.workload.workloads()?,
        mode: args.mode,
        rules: args.rules.rules(),
        limits: args.resources.resources(),
        baseline: args.baseline.as_deref().map(read).transpose()?,
    };
    let who = match (&args.solution, &args.implementation) {
        (Some(path), _) => Who::Solution(path.clone()),
        (None, Some(who)) => who.clone(),
        (None, None) => Who::Cpu(Isa::detect()),
    };
    let _machine = Exclusive::take()?;
    interrupt::listen()?;
    let mut candidate = Candidate::open(&who, &settings.limits)?;
    let mut known = ceilings::measured(settings.limits.threads)?;
    known.extend(ceilings::stated(&machine::Machine::here().cpu, settings.limits.threads));
    let Some(evaluation) = evaluator::evaluate(&settings, &mut candidate, known)? else {
        output::note("stopped: nothing was written, because part of an evaluation is none");
        return Ok(Exit::Interrupted);
    };
    if let Some(target) = &target {
        save(target, &evaluation)?;
    }
    output::result(args.json.json.as_ref(), &evaluation, &table::text(&evaluation))?;
    let passed = evaluation.cases.iter().all(|case| case.status == Status::Passed);
    Ok(if passed { Exit::Success } else { Exit::CheckFailed })
}

fn self_test(args: &EvalArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let test = exploits::run(&args.resources.resources(), args.rules.rules().secret_seed)?;
    output::result(args.json.json.as_ref(), &test, &table::self_test(&test))?;
    let right = test.findings.iter().all(exploits::Finding::is_right);
    Ok(match (test.complete, right) {
        (false, _) => Exit::Interrupted,
        (true, true) => Exit::Success,
        (true, false) => Exit::CheckFailed,
    })
}

/// The file that will be written, refused at once when it is there: records are never edited in place.
fn new_file(folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join("evaluation.json");
    if path.exists() {
        let message = format!("{}: is there already, and evaluations are never replaced", path.display());
        return Err(Failure::input(message).help("name another folder with -o"));
    }
    if folder.exists() && !folder.is_dir() {
        return Err(Failure::input(format!("{}: is no folder", folder.display())));
    }
    Ok(path)
}

fn save(path: &Path, evaluation: &Evaluation) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
    }
    output::save_json(path, evaluation)
}

/// Reads an evaluation.
///
/// # Errors
/// When the file cannot be read or is none.
pub(crate) fn read(path: &Path) -> anyhow::Result<Evaluation> {
    let shown = path.display();
    let bytes = std::fs::read(path).with_context(|| format!("{shown}: cannot be read"))?;
    let evaluation: Evaluation =
        serde_json::from_slice(&bytes).with_context(|| format!("{shown}: is no evaluation"))?;
    if evaluation.schema != SCHEMA {
        let message = format!("{shown}: found schema {:?}, expected {SCHEMA:?}", evaluation.schema);
        return Err(Failure::input(message).into());
    }
    Ok(evaluation)
}

//! `check`: is it right? Every output against f64, case by case and on random problems.

mod random;
mod report;

use std::num::NonZeroUsize;

use clap::{Args, ValueEnum};
use kernelproof_eval::check::{CheckOptions, Depth, Expected, Stage, check_against};
use qkv_rope_cpu::Isa;
use qkv_rope_op::{Backend, Cost, OwnedInputs, Problem, Recipe};

use super::bench::threads_or_all;
use crate::args::{Device, JsonArg, ModeArgs, Workload, WorkloadArgs, parse_device, parse_isa, parse_threads};
use crate::device;
use crate::failure::Exit;
use crate::interrupt;
use crate::machine;
use crate::output;
use crate::progress::Progress;
use report::{CheckRecord, Checked, Subject};

const AFTER_HELP: &str = "\
Examples:
  kernelproof check --all                         16 cases and 200 random problems, each instruction set in turn
  kernelproof check --case s293b2 --isa avx2 --threads 1
  kernelproof check --dims B=2,S=7,E=100,H=4,K=2,D=64,R=32 --style interleaved --recipe spread
  kernelproof check --random 1000 --seed 7

The table shows ‖out − ref‖₂ / ‖ref‖₂ of each output; the reference is computed in f64 from the same f32 inputs. \
Outputs start as NaN and are computed twice, with the same bits both times; inputs must not change. --depth sampled \
compares 16 rows and 8 columns of each output in full and the rest through random projections.";

/// Random problems beside all cases, when the number is not given.
const RANDOM_WITH_ALL: u32 = 200;

/// Check outputs against f64, on cases and on random problems
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Random problems: sizes, style, recipe, outputs, accumulation [default: 200 with --all, otherwise 0]
    #[arg(long, value_name = "N")]
    random: Option<u32>,
    /// Instruction sets, separated by commas: avx512, avx2, portable [default: each that this processor has]
    #[arg(long, value_name = "ISA", value_delimiter = ',', value_parser = parse_isa)]
    isa: Vec<Isa>,
    /// CPU threads [default: all that this process may use]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,
    /// How much of each output is compared
    #[arg(long, value_enum, default_value_t)]
    depth: DepthArg,
    /// What kind of inputs the cases get (`kernelproof inputs --help` lists them)
    #[arg(long, value_name = "RECIPE", value_parser = str::parse::<Recipe>, default_value_t)]
    recipe: Recipe,
    /// Seed of inputs, random problems and samples
    #[arg(long, value_name = "N", default_value_t = 200)]
    seed: u64,
    #[command(flatten)]
    mode: ModeArgs,
    /// The device that is checked: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, default_value = "cpu")]
    device: Device,
    #[command(flatten)]
    json: JsonArg,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum DepthArg {
    /// Every element
    #[default]
    Full,
    /// Some rows and columns in full, the rest through projections: much faster
    Sampled,
}

/// Runs the command.
pub(crate) fn execute(args: &CheckArgs) -> anyhow::Result<Exit> {
    let subjects = subjects(args)?;
    let backends = backends(args)?;
    interrupt::listen()?;
    let mut record = CheckRecord::new();
    let outcome = check_all(args, &subjects, &backends, &mut record);
    record.complete = matches!(outcome, Ok(true));
    if !record.checked.is_empty() {
        output::result(args.json.json.as_ref(), &record, &record.text())?;
    }
    match (outcome?, record.passed()) {
        (false, _) => Ok(Exit::Interrupted),
        (true, true) => Ok(Exit::Success),
        (true, false) => Ok(Exit::CheckFailed),
    }
}

fn subjects(args: &CheckArgs) -> anyhow::Result<Vec<Subject>> {
    let random = args.random.unwrap_or(if args.workload.all { RANDOM_WITH_ALL } else { 0 });
    let workloads = match args.workload.workloads() {
        Err(_) if random > 0 => Vec::new(),
        workloads => workloads?,
    };
    let mode = args.mode.on(args.device);
    let subject = |workload: Workload| Subject {
        problem: mode.problem(workload.dims),
        name: workload.name,
        recipe: args.recipe,
        seed: args.seed,
        random: false,
    };
    let mut subjects: Vec<Subject> = workloads.into_iter().map(subject).collect();
    subjects.extend(random::subjects(random, args.seed, mode.precision()));
    Ok(subjects)
}

fn backends(args: &CheckArgs) -> anyhow::Result<Vec<Box<dyn Backend>>> {
    if let Device::Cuda(ordinal) = args.device {
        return Ok(vec![device::cuda(ordinal)?]);
    }
    let isas = if args.isa.is_empty() { Isa::available() } else { args.isa.clone() };
    let threads = threads_or_all(args.threads.as_slice())[0];
    let backend = |isa| Ok(Box::new(device::cpu(Some(isa), threads)?) as Box<dyn Backend>);
    isas.into_iter().map(backend).collect()
}

/// Checks until the end (`true`) or until the user stops it.
fn check_all(
    args: &CheckArgs,
    subjects: &[Subject],
    backends: &[Box<dyn Backend>],
    record: &mut CheckRecord,
) -> anyhow::Result<bool> {
    let progress = Progress::new(subjects.iter().map(|subject| weight(&subject.problem)).sum());
    for subject in subjects {
        refuse_early(backends, subject)?;
        let bytes = machine::input_bytes(subject.problem.dims) + machine::output_bytes(&subject.problem);
        machine::require_memory(&format!("inputs and outputs of {}", subject.name), bytes)?;
        progress.doing(format!("{}: inputs", subject.name));
        let inputs = OwnedInputs::generate(subject.problem.dims, subject.recipe, subject.seed);
        let depth = match args.depth {
            DepthArg::Full => Depth::Full,
            DepthArg::Sampled => Depth::Sampled { seed: args.seed },
        };
        let watch = |stage: Stage, done: usize, total: usize| {
            if stage == Stage::Reference && total > 0 {
                progress.doing(format!("{}: reference {} %", subject.name, 100 * done / total));
            }
        };
        let expected = Expected::new(&subject.problem, &inputs.views(), depth, &watch)?;
        let exact = subject.recipe == Recipe::Exact;
        let options = CheckOptions { depth, exact, start_seed: subject.seed };
        for backend in backends {
            if interrupt::requested() {
                return Ok(false);
            }
            progress.doing(format!("{}: {}", subject.name, backend.name()));
            let report = check_against(backend.as_ref(), &expected, &inputs.views(), options, &watch)?;
            record.checked.push(Checked { subject: subject.clone(), report });
        }
        progress.add(weight(&subject.problem));
    }
    Ok(true)
}

/// A refusal should not come after a minute of computing the reference.
fn refuse_early(backends: &[Box<dyn Backend>], subject: &Subject) -> Result<(), qkv_rope_op::Error> {
    backends.iter().try_for_each(|backend| backend.plan(&subject.problem).map(drop))
}

/// Work for the progress bar, in MFLOP.
fn weight(problem: &Problem) -> u64 {
    u64::try_from(Cost::of(problem).flops / 1_000_000).unwrap_or(u64::MAX).max(1)
}

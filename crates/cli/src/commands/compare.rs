//! `compare`: is one implementation faster than another, beyond what the machine makes up by itself?

use std::path::PathBuf;

use clap::Args;
use kernelproof_eval::comparison::{Compared, Conclusion, Verdict, conclude, floor};
use kernelproof_eval::judge::{Rules, SIDES};
use kernelproof_eval::statistics::{Interval, median};
use serde::Serialize;

use crate::args::{JsonArg, ModeArgs, WorkloadArgs};
use crate::commands::eval::{ResourceArgs, secret_seed};
use crate::evaluator::compare::{Comparison, compare};
use crate::evaluator::exclusive::Exclusive;
use crate::evaluator::{Candidate, Settings, Who, parse_who, place};
use crate::failure::{Exit, Failure};
use crate::interrupt;
use crate::output;
use crate::report::ratios;
use crate::report::table::{Table, milliseconds};

const AFTER_HELP: &str = "\
Examples:
  kernelproof compare cpu-avx512 cpu-avx2 --all --plot ratios.svg
  kernelproof compare cpu-avx512 solution.json --case s1024b2 --python ~/venv/bin/python
  kernelproof compare cuda-fast solutions/triton-cublas-fp16.json --precision fast --all
  kernelproof compare --self cpu-avx512 --repeat 20 --case s256b4       how often an interval misses 1

A, B and A once more take turns on the same inputs. The ratio is time(B) / time(A) with a 95 % bootstrap interval; a \
difference counts when the whole interval is farther from 1 than A is from itself. On a CPU a solution's times hold the way \
to its process and back, about 20 µs. --self ends with exit code 1 when less than 19 of 20 intervals contain 1.";

/// Compare two implementations in turns, with an interval of their ratio and the noise floor
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CompareArgs {
    /// cpu-avx512, cpu-avx2, cpu-portable, cuda-fast, cuda-split or a solution's file
    #[arg(value_name = "A", value_parser = parse_who, required_unless_present = "itself", requires = "second")]
    first: Option<Who>,
    /// As A
    #[arg(value_name = "B", value_parser = parse_who)]
    second: Option<Who>,
    /// Set A beside itself: how far noise alone goes, and how often an interval misses 1
    #[arg(long = "self", value_name = "A", value_parser = parse_who, conflicts_with_all = ["first", "second", "plot"])]
    itself: Option<Who>,
    /// With --self: how many comparisons, each with a new seed
    #[arg(long, value_name = "N", default_value_t = 1, requires = "itself", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Rounds before the kept ones
    #[arg(long, value_name = "N", default_value_t = 10)]
    warmup: u32,
    /// Rounds whose times are kept
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Write a plot (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArg,
}

/// Runs the command.
pub(crate) fn execute(args: &CompareArgs) -> anyhow::Result<Exit> {
    let both = args.itself.as_ref().map(|itself| (itself, itself)).or(args.first.as_ref().zip(args.second.as_ref()));
    let Some((first, second)) = both else { return Err(Failure::input("nothing to compare").into()) };
    let (device, mode) = place(&[first, second], args.resources.device, args.mode)?;
    let mut settings = Settings {
        workloads: args.workload.workloads()?,
        mode,
        rules: Rules { warmup_calls: args.warmup, timed_calls: args.samples, ..Rules::quick(200, secret_seed()) },
        limits: args.resources.resources(device),
        baseline: None,
    };
    let _machine = Exclusive::take()?;
    interrupt::listen()?;
    let limits = settings.limits.clone();
    let open = |who| Candidate::open(who, &limits);
    let mut candidates = [open(first)?, open(second)?, open(first)?];
    if args.itself.is_some() {
        return beside_itself(args, &mut settings, &mut candidates);
    }
    let comparison = compare(&settings, &mut candidates)?;
    if !comparison.cases.is_empty() {
        output::result(args.json.json.as_ref(), &comparison, &text(&comparison))?;
        if let Some(path) = &args.plot {
            let [first, second] = &comparison.implementations;
            let title = format!("A = {}, B = {}, {}", first.name, second.name, comparison.machine.cpu);
            output::save(path, ratios::svg(&title, &comparison.cases)?.as_bytes())?;
        }
    }
    Ok(if comparison.complete { Exit::Success } else { Exit::Interrupted })
}

/// Comparisons of an implementation with itself.
#[derive(Debug, Serialize)]
struct BesideItself {
    schema: &'static str,
    comparisons: Vec<Comparison>,
}

/// At most one interval of twenty may miss 1.
const MISSES_ALLOWED: f64 = 0.05;

fn beside_itself(
    args: &CompareArgs,
    settings: &mut Settings,
    candidates: &mut [Candidate; SIDES],
) -> anyhow::Result<Exit> {
    let mut all = BesideItself { schema: "kernelproof.beside-itself/1", comparisons: Vec::new() };
    for _ in 0..args.repeat {
        settings.rules.secret_seed = secret_seed();
        let comparison = compare(settings, candidates)?;
        if !comparison.complete {
            break;
        }
        all.comparisons.push(comparison);
    }
    let intervals: Vec<Interval> =
        all.comparisons.iter().flat_map(|one| &one.cases).filter_map(Compared::ratio).collect();
    let misses = intervals.iter().filter(|interval| !(interval.low..=interval.high).contains(&1.0)).count();
    output::result(args.json.json.as_ref(), &all, &of_itself(&all, &intervals, misses))?;
    let allowed = misses as f64 <= MISSES_ALLOWED * intervals.len() as f64;
    Ok(match all.comparisons.len() < args.repeat as usize {
        true => Exit::Interrupted,
        false if allowed => Exit::Success,
        false => Exit::CheckFailed,
    })
}

fn half_width(interval: &Interval) -> f64 {
    (interval.high - interval.low) / 2.0
}

fn of_itself(all: &BesideItself, intervals: &[Interval], misses: usize) -> String {
    let mut table = Table::new(&["", "case", "A ms", "ratio", "half-width"]);
    for (number, comparison) in all.comparisons.iter().enumerate() {
        for case in &comparison.cases {
            let [name, first_ms, _, ratio, ..] = row(case);
            let width = case.ratio().map_or("-".to_owned(), |interval| percent(half_width(&interval)));
            table.row([(number + 1).to_string(), name, first_ms, ratio, width]);
        }
    }
    let widest = intervals.iter().map(half_width).fold(0.0, f64::max);
    let within = intervals.len() - misses;
    format!("{table}\n\n{within} of {} intervals contain 1; widest half-width {}", intervals.len(), percent(widest))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

fn text(comparison: &Comparison) -> String {
    let [first, second] = &comparison.implementations;
    let mut table = Table::new(&["case", "A ms", "B ms", "time(B) / time(A)", "A against itself", "verdict"]);
    for case in &comparison.cases {
        table.row(row(case));
    }
    let heading = format!("A = {}, B = {}, {} threads", first.name, second.name, first.threads);
    let mut lines = vec![heading, String::new(), table.to_string(), String::new()];
    if comparison.timers[0] != comparison.timers[1] {
        lines.push(format!("two timers: A by the {}; B by the {}", comparison.timers[0], comparison.timers[1]));
    }
    if !comparison.complete {
        lines.push("incomplete: stopped before all cases were measured".to_owned());
    }
    lines.extend(conclude(&comparison.cases).map(|conclusion| in_words(&conclusion)));
    lines.join("\n")
}

fn row(case: &Compared) -> [String; 6] {
    let shown_ms = |samples: &[u64]| median(samples).map_or("-".to_owned(), milliseconds);
    let shown = |interval: Option<Interval>| interval.map_or("-".to_owned(), |interval| with_ends(&interval));
    let verdict = match case.verdict() {
        Some(Verdict::FirstIsFaster) => "A is faster",
        Some(Verdict::SecondIsFaster) => "B is faster",
        Some(Verdict::NoDifference) => "no difference",
        None => "-",
    };
    [
        case.name.clone(),
        shown_ms(&case.first_ns),
        shown_ms(&case.second_ns),
        shown(case.ratio()),
        shown(case.noise()),
        verdict.to_owned(),
    ]
}

fn with_ends(interval: &Interval) -> String {
    format!("{:.3} [{:.3}, {:.3}]", interval.estimate, interval.low, interval.high)
}

fn in_words(conclusion: &Conclusion) -> String {
    let Conclusion { ratio, noise, verdict } = conclusion;
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let said = match verdict {
        Verdict::FirstIsFaster => format!("A is faster: B takes {} more time", percent(ratio.estimate - 1.0)),
        Verdict::SecondIsFaster => format!("B is faster: it takes {} less time", percent(1.0 - ratio.estimate)),
        Verdict::NoDifference => "no difference that exceeds the noise".to_owned(),
    };
    format!(
        "geometric mean of time(B) / time(A): {}\nA against itself: {}, so the noise floor is {}\n{said}",
        with_ends(ratio),
        with_ends(noise),
        percent(floor(*noise))
    )
}

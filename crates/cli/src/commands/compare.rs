//! `compare`: is one implementation faster than another, beyond what the machine makes up by itself?

use std::path::PathBuf;

use clap::Args;
use kernelproof_eval::comparison::{Compared, Conclusion, Verdict, conclude, floor};
use kernelproof_eval::judge::Rules;
use kernelproof_eval::statistics::{Interval, median};

use crate::args::{JsonArg, ModeArgs, WorkloadArgs};
use crate::commands::eval::{ResourceArgs, secret_seed};
use crate::evaluator::compare::{Comparison, compare};
use crate::evaluator::exclusive::Exclusive;
use crate::evaluator::{Candidate, Settings, Who, parse_who, place};
use crate::failure::Exit;
use crate::interrupt;
use crate::output;
use crate::report::ratios;
use crate::report::table::Table;

const AFTER_HELP: &str = "\
Examples:
  kernelproof compare cpu-avx512 cpu-avx2 --all --plot ratios.svg
  kernelproof compare cpu-avx512 solution.json --case s1024b2 --python ~/venv/bin/python
  kernelproof compare cpu-avx512 cpu-avx512 --case s1024b2       how far noise alone goes

A, B and A once more take turns on the same inputs. The ratio is time(B) / time(A) with a 95 % bootstrap interval; a \
difference counts when the whole interval is farther from 1 than A is from itself. A solution's times hold the way to \
its process and back, about 20 µs.";

/// Compare two implementations in turns, with an interval of their ratio and the noise floor
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CompareArgs {
    /// cpu-avx512, cpu-avx2, cpu-portable, cuda-fast, cuda-split or a solution's file
    #[arg(value_name = "A", value_parser = parse_who)]
    first: Who,
    /// As A
    #[arg(value_name = "B", value_parser = parse_who)]
    second: Who,
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
    let (device, mode) = place(&[&args.first, &args.second], args.resources.device, args.mode)?;
    let settings = Settings {
        workloads: args.workload.workloads()?,
        mode,
        rules: Rules { warmup_calls: args.warmup, timed_calls: args.samples, ..Rules::quick(200, secret_seed()) },
        limits: args.resources.resources(device),
        baseline: None,
    };
    let _machine = Exclusive::take()?;
    interrupt::listen()?;
    let open = |who| Candidate::open(who, &settings.limits);
    let mut candidates = [open(&args.first)?, open(&args.second)?, open(&args.first)?];
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
    let milliseconds =
        |samples: &[u64]| median(samples).map_or("-".to_owned(), |time_ns| format!("{:.3}", time_ns / 1e6));
    let shown = |interval: Option<Interval>| interval.map_or("-".to_owned(), |interval| with_ends(&interval));
    let verdict = match case.verdict() {
        Some(Verdict::FirstIsFaster) => "A is faster",
        Some(Verdict::SecondIsFaster) => "B is faster",
        Some(Verdict::NoDifference) => "no difference",
        None => "-",
    };
    [
        case.name.clone(),
        milliseconds(&case.first_ns),
        milliseconds(&case.second_ns),
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

//! `replay`: a recorded run, once more and here.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use kernelproof_eval::evaluation::{Evaluation, Status};
use kernelproof_eval::judge::Rules;
use kernelproof_eval::statistics::Interval;
use kernelproof_index::Bundle;
use kernelproof_index::cohort::{Difference, Repeated, circumstances, differences, within};
use qkv_rope_op::Precision;
use serde::Serialize;

use super::eval::{Conducted, ResourceArgs, conduct, secret_seed};
use crate::args::{Device, JsonTo, ModeArgs, PrecisionArg, StyleArg, Workload, parse_case};
use crate::bundles;
use crate::evaluator::{Settings, Who, parse_who, place, table};
use crate::failure::{Exit, Failure};
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  kernelproof replay records/runs/2026-12-01-cpu-avx512-0123456789ab
  kernelproof replay BUNDLE --case s1024b2 --json

Verifies the bundle, then runs the same implementation on the same cases by the same rules, with a new secret seed and the \
recorded number of threads. On the same device it gives the time here over the time on record with a 95 % interval. On \
another device, or under another protocol, it says what differs instead: no ratio means anything there.

Exit codes: 0 every case ended as on record, 1 one did not, 3 the times cannot be compared.";

/// Repeat a recorded run here and say how well its times agree
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ReplayArgs {
    /// The folder of a run
    bundle: PathBuf,
    /// Only this case of the run; may be repeated
    #[arg(long = "case", value_name = "NAME", value_parser = parse_case)]
    cases: Vec<qkv_rope_op::Case>,
    #[command(flatten)]
    resources: ResourceArgs,
    /// Write what is measured here as a run of its own under DIR
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What a replay found.
#[derive(Debug, Serialize)]
struct Replayed {
    recorded: String,
    /// Cases that ended otherwise than on record.
    changed: Vec<Changed>,
    /// Why there is no ratio; empty when there is one.
    cohort_differs: Vec<Difference>,
    /// What else is not the same.
    circumstances: Vec<Difference>,
    repeated: Option<Repeated>,
}

#[derive(Debug, Serialize)]
struct Changed {
    name: String,
    recorded: Status,
    here: Status,
}

/// Runs the command.
pub(crate) fn execute(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let bundle = bundles::read(&args.bundle)?;
    let recorded = chosen(&bundle.run.spec.evaluation, args)?;
    let who = who(&bundle)?;
    let settings = settings(&recorded, &who, args)?;
    let Some(Conducted { evaluation: here, solution }) = conduct(&who, &settings)? else {
        return Ok(Exit::Interrupted);
    };
    if let Some(parent) = &args.output {
        let folder = bundles::write(parent, &here, solution)?;
        output::note(&format!("wrote {}", folder.display()));
    }
    let replayed = Replayed {
        recorded: bundle.run.digest()?.to_string(),
        changed: changed(&recorded, &here),
        cohort_differs: differences(&recorded, &here),
        circumstances: circumstances(&recorded, &here),
        repeated: Repeated::of(&here, &recorded),
    };
    let json = args.json.then_some(JsonTo::Stdout);
    output::result(json.as_ref(), &replayed, &format!("{}\n\n{}", table::text(&here), replayed.text()))?;
    Ok(match () {
        () if !replayed.changed.is_empty() => Exit::CheckFailed,
        () if !replayed.cohort_differs.is_empty() => Exit::Unavailable,
        () => Exit::Success,
    })
}

/// The recorded run, or the part of it that was asked for.
fn chosen(recorded: &Evaluation, args: &ReplayArgs) -> Result<Evaluation, Failure> {
    let mut chosen = recorded.clone();
    if !args.cases.is_empty() {
        chosen.cases.retain(|case| args.cases.iter().any(|wanted| wanted.name() == case.name));
    }
    if chosen.cases.is_empty() {
        return Err(Failure::input(format!("{}: has none of these cases", args.bundle.display())));
    }
    Ok(chosen)
}

fn settings(recorded: &Evaluation, who: &Who, args: &ReplayArgs) -> anyhow::Result<Settings> {
    let facts = &recorded.protocol;
    let seed = secret_seed();
    let rules = if facts.quick { Rules::quick(facts.public_seed, seed) } else { Rules::full(facts.public_seed, seed) };
    let precision = match recorded.implementation.precision {
        Precision::Ieee => PrecisionArg::Ieee,
        Precision::Split => PrecisionArg::Split,
        Precision::Fast => PrecisionArg::Fast,
    };
    let cases = recorded.cases.iter().map(|case| parse_case(&case.name));
    let workloads = cases.map(|case| case.map(Workload::case).map_err(Failure::input));
    let threads = NonZeroUsize::new(recorded.implementation.threads).unwrap_or(NonZeroUsize::MIN);
    let mode = ModeArgs { precision: Some(precision), style: StyleArg::HalfSplit };
    let on_gpu = recorded.implementation.device == "cuda";
    let asked = args.resources.device.or(on_gpu.then_some(Device::Cuda(0)));
    let (device, mode) = place(&[who], asked, mode)?;
    Ok(Settings {
        workloads: workloads.collect::<Result<_, _>>()?,
        mode,
        rules,
        limits: args.resources.resources_with(device, threads),
        baseline: None,
    })
}

/// The recorded implementation: one of this program's, or the solution in the bundle.
fn who(bundle: &Bundle) -> Result<Who, Failure> {
    if let Some(text) = &bundle.solution {
        return Ok(Who::Text(text.clone()));
    }
    let name = &bundle.implementation.spec.name;
    match parse_who(name) {
        Ok(who @ (Who::Cpu(_) | Who::Cuda(_))) => Ok(who),
        _ => {
            let failure = Failure::unavailable(format!("{name}: this build has no such implementation"));
            Err(failure.help("get it as its implementation.json says, and run it with `kernelproof eval --solution`"))
        }
    }
}

fn changed(recorded: &Evaluation, here: &Evaluation) -> Vec<Changed> {
    let pairs = recorded.cases.iter().zip(&here.cases).filter(|(recorded, here)| recorded.status != here.status);
    let of =
        |(recorded, here): (&kernelproof_eval::evaluation::CaseResult, &kernelproof_eval::evaluation::CaseResult)| {
            Changed { name: recorded.name.clone(), recorded: recorded.status, here: here.status }
        };
    pairs.map(of).collect()
}

impl Replayed {
    fn text(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        for Changed { name, recorded, here } in &self.changed {
            lines.push(format!("{name}: {here} here, {recorded} on record"));
        }
        if !self.cohort_differs.is_empty() {
            let what = Difference::sentence(&self.cohort_differs);
            lines.push(format!("no ratio, because the runs are of different cohorts (record, then here): {what}"));
        }
        if let Some(repeated) = &self.repeated {
            lines.extend(
                repeated.cases.iter().filter_map(|case| Some(format!("{:<10}{}", case.name, told(&case.ratio?)))),
            );
            lines.extend(repeated.ratio.map(|ratio| verdict(&ratio)));
        }
        if !self.circumstances.is_empty() {
            let what = Difference::sentence(&self.circumstances);
            lines.push(format!("not the same either (record, then here): {what}"));
        }
        lines.join("\n")
    }
}

fn told(ratio: &Interval) -> String {
    format!("{:.3} [{:.3}, {:.3}]", ratio.estimate, ratio.low, ratio.high)
}

fn verdict(ratio: &Interval) -> String {
    let share = 100.0 * within(ratio);
    format!("time here / time on record: {}, geometric mean; agrees within {share:.1} %", told(ratio))
}

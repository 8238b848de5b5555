//! `verify`: every digest and every figure of run bundles, computed again.

use std::path::PathBuf;

use clap::Args;
use kernelproof_eval::evaluation::{Aggregates, ProtocolFacts};
use kernelproof_index::manifest::shown;
use kernelproof_index::trust::Standing;
use kernelproof_index::{Bundle, Verification, verify};

use crate::args::JsonTo;
use crate::failure::{self, Exit};
use crate::output;
use crate::report::table::milliseconds;

const AFTER_HELP: &str = "\
Examples:
  kernelproof verify records/runs/*
  kernelproof verify records/runs/2026-12-01-cpu-avx512-0123456789ab --json

Computes the digest of every file, the identity of every manifest and all figures from the samples, and holds the run \
against its protocol. This shows that a bundle is whole, unaltered and consistent; `kernelproof replay` shows whether \
its times can be had again. `sha256sum -c SHA256SUMS` in the bundle's folder checks the digests without this program.

Exit codes: 0 all is right, 1 something was altered or contradicts itself, 2 it is no bundle or cannot be read.";

/// Recompute every digest and figure of run bundles
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct VerifyArgs {
    /// Folders of runs
    #[arg(required = true, value_name = "BUNDLE")]
    bundles: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn execute(args: &VerifyArgs) -> anyhow::Result<Exit> {
    let (mut exit, mut verifications, mut texts) = (Exit::Success, Vec::new(), Vec::new());
    for folder in &args.bundles {
        match verify(folder) {
            Ok((verification, bundle)) => {
                if !verification.findings.is_empty() && exit == Exit::Success {
                    exit = Exit::CheckFailed;
                }
                texts.push(text(&verification, bundle.as_ref()));
                verifications.push(verification);
            }
            Err(error) => {
                output::note(&failure::describe(&error.into()));
                exit = Exit::BadInput;
            }
        }
    }
    let json = args.json.then_some(JsonTo::Stdout);
    output::result(json.as_ref(), &verifications, &texts.join("\n\n"))?;
    Ok(exit)
}

/// What a person reads of one bundle.
fn text(verification: &Verification, bundle: Option<&Bundle>) -> String {
    let verdict = if verification.findings.is_empty() { "verified" } else { "NOT VERIFIED" };
    let mut lines = vec![format!("{}: {verdict}", verification.folder.display())];
    lines.extend(verification.findings.iter().map(|finding| format!("  {finding}")));
    if let (true, Some(bundle)) = (verification.findings.is_empty(), bundle) {
        lines.extend(facts(verification, bundle).map(|(name, value)| format!("  {name:<16}{}", shown(&value))));
    }
    lines.join("\n")
}

fn facts(verification: &Verification, bundle: &Bundle) -> impl Iterator<Item = (&'static str, String)> {
    let evaluation = &bundle.run.spec.evaluation;
    let protocol = &evaluation.protocol;
    let figures = verification.figures.as_ref();
    let measured = figures.map(|figures| &figures.measured);
    let quick = if protocol.quick { ", quick: shows that things work and never ranks" } else { "" };
    let fixed = [
        ("run", verification.run.map_or_else(String::new, |run| run.to_string())),
        ("implementation", evaluation.implementation.name.clone()),
        ("device", format!("{}, {} threads", evaluation.environment.device, evaluation.implementation.threads)),
        ("protocol", format!("{}{quick}", protocol.version)),
        ("evaluator", evaluator(protocol)),
        ("trust", verification.standing.as_ref().map_or_else(String::new, standing)),
    ];
    fixed.into_iter().chain(measured.into_iter().flat_map(aggregates))
}

/// Which program judged, and how well it is known to judge.
fn evaluator(protocol: &ProtocolFacts) -> String {
    let evaluator = &protocol.evaluator;
    let score = evaluator.mutation_score.map(|[right, all]| format!("mutation score {right} of {all}"));
    format!("{}, {}", evaluator.commit, score.unwrap_or_else(|| "mutation score not known".to_owned()))
}

fn standing(Standing { trust, missing }: &Standing) -> String {
    let trust = format!("{trust:?}").to_lowercase();
    if missing.is_empty() { trust } else { format!("{trust}; not known: {}", missing.join(", ")) }
}

fn aggregates(figures: &Aggregates) -> Vec<(&'static str, String)> {
    let ms = |time_ns: f64| format!("{} ms", milliseconds(time_ns));
    let optional = [
        ("geometric mean", figures.geometric_mean_ns.map(ms)),
        ("arithmetic mean", figures.arithmetic_mean_ns.map(ms)),
        ("worst T/T_sol", figures.worst_ratio.map(|ratio| format!("{ratio:.3} of measured ceilings"))),
        ("score", figures.score.map(|score| format!("{score:.3} with measured ceilings"))),
    ];
    let known = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let passed = ("cases", format!("{} of {} passed", figures.passed, figures.cases));
    std::iter::once(passed).chain(known).collect()
}

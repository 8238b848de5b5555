//! `quick`: the first thing to run.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use kernelproof_eval::measure::Protocol;
use qkv_rope_cpu::Isa;
use qkv_rope_op::SUITE;

use super::bench::{self, RivalArgs};
use crate::args::{JsonTo, ModeArgs, PrecisionArg, StyleArg, Workload, parse_threads};
use crate::contest::tournament::Settings;
use crate::failure::Exit;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  kernelproof quick
  kernelproof quick --against pytorch -o before

Every case is checked against f64 on a sample of its elements, then timed in a few rounds; about one minute on two \
cores. `check --all` checks in full, `bench --all` times with enough rounds for narrow intervals.";

/// Check and time the whole suite in about a minute, save a JSON file and a plot
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct QuickArgs {
    /// Where to save: NAME.json and NAME.svg
    #[arg(short, long, value_name = "NAME", default_value = "kernelproof-quick")]
    output: PathBuf,
    /// CPU threads [default: all that this process may use]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    rivals: RivalArgs,
}

/// Runs the command.
pub(crate) fn execute(args: &QuickArgs) -> anyhow::Result<Exit> {
    let settings = Settings {
        workloads: SUITE.into_iter().map(Workload::case).collect(),
        mode: ModeArgs { precision: Some(PrecisionArg::Ieee), style: StyleArg::HalfSplit },
        protocol: Protocol { warmup: 1, samples: 7 },
        flush: true,
        isas: vec![Isa::detect()],
        threads: bench::threads_or_all(args.threads.as_slice()),
        rivals: args.rivals.against.clone(),
        python: args.rivals.python.clone(),
    };
    let (json, plot) = (with_extension(&args.output, ".json"), with_extension(&args.output, ".svg"));
    let exit = bench::measure_and_save(&settings, Some(&JsonTo::File(json.clone())), Some(&plot))?;
    output::print(&format!("\nsaved {} and {}", json.display(), plot.display()))?;
    Ok(exit)
}

/// Appends, so that a name with a dot keeps it.
fn with_extension(path: &std::path::Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(extension);
    name.into()
}

//! `report`: a saved record as a table and a plot.

use std::path::PathBuf;

use clap::Args;

use crate::failure::Exit;
use crate::output;
use crate::report::record::BenchRecord;
use crate::report::{plot, summary};

const AFTER_HELP: &str = "\
Examples:
  kernelproof report bench.json
  kernelproof report bench.json --plot bench.svg";

/// Show a record that `bench` or `quick` saved, as a table and a plot
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ReportArgs {
    /// A JSON file written by `bench --json FILE` or `quick`
    record: PathBuf,
    /// Write a plot (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn execute(args: &ReportArgs) -> anyhow::Result<Exit> {
    let record = BenchRecord::read(&args.record)?;
    if let Some(path) = &args.plot {
        output::save(path, plot::svg(&record)?.as_bytes())?;
    }
    output::print(&summary::text(&record))?;
    Ok(Exit::Success)
}

//! `index traces`: traces of SOL-ExecBench as external runs.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use kernelproof_index::external::Reference;
use kernelproof_index::manifest::Spec as _;
use kernelproof_index::traces::{TraceSource, external_runs};

use crate::failure::{Exit, Failure};
use crate::library::LibraryArgs;
use crate::output;

const AFTER_HELP: &str = "\
Example:
  kernelproof index traces traces.jsonl --source 'results of someone, https://example.org/traces' --read-on 2026-12-01 \\
    --protocol 'SOL-ExecBench evaluation stack v1.1' -o records/external/someone.jsonl
  kernelproof index import

Reads the JSON lines that SOL-ExecBench's documentation calls traces, and writes one external run for each solution and hardware, \
with the source's own digits. Definitions that are no operation of the records are left out.";

/// Turn SOL-ExecBench traces into external runs
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct TracesArgs {
    /// A file of traces, one JSON object a line
    traces: PathBuf,
    /// The document that they are from: a title or an address
    #[arg(long, value_name = "TEXT")]
    source: String,
    /// Day on which it was read, as YYYY-MM-DD
    #[arg(long, value_name = "DAY")]
    read_on: String,
    /// The protocol, as the source calls it: traces do not say
    #[arg(long, value_name = "TEXT")]
    protocol: String,
    /// Write to this file
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    library: LibraryArgs,
}

/// Runs the command.
pub(super) fn execute(args: &TracesArgs) -> anyhow::Result<Exit> {
    let cannot = || format!("{}: cannot be read", args.traces.display());
    let text = std::fs::read_to_string(&args.traces).with_context(cannot)?;
    let operations = args.library.records()?.identified_operations()?;
    let source = TraceSource {
        reference: Reference { document: args.source.clone(), read_on: args.read_on.clone() },
        protocol: args.protocol.clone(),
    };
    let wrong = |error: &dyn std::fmt::Display| Failure::input(format!("{}: {error}", args.traces.display()));
    let runs = external_runs(&text, &operations, &source).map_err(|error| wrong(&error))?;
    if runs.is_empty() {
        return Err(wrong(&"holds no result of an operation of the records").into());
    }
    let mut lines = String::new();
    for run in &runs {
        run.spec.validate().map_err(|error| wrong(&error))?;
        lines.push_str(&serde_json::to_string(run)?);
        lines.push('\n');
    }
    output::save(&args.output, lines.as_bytes())?;
    output::print(&format!("{}: {} external runs", args.output.display(), runs.len()))?;
    Ok(Exit::Success)
}

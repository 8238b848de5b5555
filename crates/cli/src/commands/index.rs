//! `index`: the store behind the site, filled from records, checked, exported and corrected.

mod check;
mod export;
mod generate;
mod import;
mod retract;
mod token;
mod traces;

use clap::{Args, Subcommand};

use crate::failure::Exit;

const AFTER_HELP: &str = "\
Examples:
  kernelproof index import                   records of this clone into the index
  kernelproof index check                    verify all of it again
  kernelproof index export -o index.jsonl    one file with everything, and a checksum

The index is one SQLite file. Everything in it comes from the folder of records or from submissions; nothing in it is edited.
Each command changes all that it should or nothing, also when it is killed.";

/// Fill, check, export and correct the index of runs
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct IndexArgs {
    #[command(subcommand)]
    command: IndexCommand,
}

/// One variant per file in this folder.
#[derive(Debug, Subcommand)]
enum IndexCommand {
    Import(import::ImportArgs),
    Export(export::ExportArgs),
    Check(check::CheckArgs),
    Retract(retract::RetractArgs),
    Traces(traces::TracesArgs),
    Token(token::TokenArgs),
    Generate(generate::GenerateArgs),
}

/// Runs the command.
pub(crate) fn execute(args: &IndexArgs) -> anyhow::Result<Exit> {
    match &args.command {
        IndexCommand::Import(args) => import::execute(args),
        IndexCommand::Export(args) => export::execute(args),
        IndexCommand::Check(args) => check::execute(args),
        IndexCommand::Retract(args) => retract::execute(args),
        IndexCommand::Traces(args) => traces::execute(args),
        IndexCommand::Token(args) => token::execute(args),
        IndexCommand::Generate(args) => generate::execute(args),
    }
}

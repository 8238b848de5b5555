//! `index generate`: an index of made-up runs, for load tests.

use std::path::PathBuf;

use clap::Args;
use kernelproof_index::Store;
use kernelproof_index::testing::generate::fill;

use crate::failure::{Exit, Failure};
use crate::output;
use crate::progress::Progress;

/// Make a new index of runs that nobody measured, to test how it is served
#[derive(Debug, Args)]
#[command(hide = true)]
pub(super) struct GenerateArgs {
    /// How many runs
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    runs: usize,
    /// A file that is not there yet
    #[arg(long, value_name = "FILE")]
    db: PathBuf,
}

/// Runs the command.
pub(super) fn execute(args: &GenerateArgs) -> anyhow::Result<Exit> {
    if args.db.exists() {
        let message = format!("{}: is there already; made-up runs never go into an index of others", args.db.display());
        return Err(Failure::input(message).into());
    }
    let store = Store::open(&args.db)?;
    let progress = Progress::new(args.runs as u64);
    fill(&store, args.runs, &mut |done| progress.at(done as u64, args.runs as u64))?;
    drop(progress);
    output::print(&format!("{}: {} made-up runs", args.db.display(), args.runs))?;
    Ok(Exit::Success)
}

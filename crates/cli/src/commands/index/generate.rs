//! `index generate`: an index of made-up runs, for load tests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use kernelproof_index::Store;
use kernelproof_index::catalog::Question;
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
    output::print(&times(&store)?)?;
    Ok(Exit::Success)
}

/// How long it takes to read what was made, and to answer from it.
fn times(store: &Store) -> anyhow::Result<String> {
    let began = Instant::now();
    let catalog = store.catalog()?;
    let read = began.elapsed();
    let longest = |times: &mut dyn Iterator<Item = Duration>| times.max().unwrap_or_default();
    let search = longest(&mut ["rope", "example-07", "example cuda 3", "2026-03", "e", "nothing"].iter().map(|text| {
        let began = Instant::now();
        catalog.search(text, 50);
        began.elapsed()
    }));
    let sizes = [128, 1000, 8192];
    let resolve = longest(&mut sizes.iter().flat_map(|size| ["cpu", "cuda", ""].map(|device| (size, device))).map(
        |(size, device)| {
            let question = Question {
                operation: "qkv-rope-backward".to_owned(),
                axes: [("seq_len".to_owned(), *size), ("batch_size".to_owned(), 2)].into(),
                device: device.to_owned(),
                ..Question::default()
            };
            let began = Instant::now();
            drop(catalog.resolve(&question));
            began.elapsed()
        },
    ));
    Ok(format!("read in {read:.1?}; longest search {search:.1?}, longest resolve {resolve:.1?}"))
}

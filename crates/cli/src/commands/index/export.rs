//! `index export`: the whole index as JSON lines.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use kernelproof_index::export::{ExportError, export};

use crate::failure::Exit;
use crate::library::LibraryArgs;
use crate::output::{self, Closed};
use crate::progress::Progress;

const AFTER_HELP: &str = "\
Examples:
  kernelproof index export -o index.jsonl
  kernelproof index export | tail -1

One JSON object a line: every operation, suite, run with all files of its bundle, external run and correction; the last line \
has the number of lines and the SHA-256 of the bytes before it. Equal contents give equal bytes. Tokens are left out.
`kernelproof index import --export FILE` reads it again.";

/// Write the whole index as JSON lines with a checksum
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    library: LibraryArgs,
    /// Write to FILE, all or nothing, instead of stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub(super) fn execute(args: &ExportArgs) -> anyhow::Result<Exit> {
    let store = args.library.existing_store()?;
    let progress = Progress::new(0);
    let mut tell = |done: usize, all: usize| progress.at(done as u64, all as u64);
    match &args.output {
        Some(path) => output::replace(path, |file| {
            let mut file = BufWriter::new(file);
            export(&store, &mut file, &mut tell).map_err(io::Error::other)?;
            file.flush()
        })?,
        None => match export(&store, &mut BufWriter::new(io::stdout().lock()), &mut tell) {
            Err(ExportError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Err(Closed.into()),
            other => other.context("the index cannot be exported")?,
        },
    }
    Ok(Exit::Success)
}

//! `index import`: records, or an export, into the index.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use kernelproof_index::Store;
use kernelproof_index::import::{Count, ImportError, Mode, Report, import, import_export};
use kernelproof_index::manifest::shown;
use serde::Serialize;

use crate::args::JsonTo;
use crate::failure::{Exit, Failure};
use crate::library::LibraryArgs;
use crate::output;
use crate::progress::Progress;

const AFTER_HELP: &str = "\
Examples:
  kernelproof index import
  kernelproof index import --rebuild
  kernelproof index import --export index.jsonl --db copy.sqlite

Verifies every bundle that is new and stores it. Importing again changes nothing. If anything is wrong, all of it is named and \
nothing is stored. --rebuild makes the index anew from the records, so that it forgets what is no longer there; \
submissions and tokens stay. A site that serves the index shows the old state until the new one is complete.

Exit codes: 0 the index holds all of it, 1 something is wrong and nothing was stored, 2 the records or the index cannot be read.";

/// Import records into the index, or rebuild it
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ImportArgs {
    #[command(flatten)]
    library: LibraryArgs,
    /// Make the index anew from the records
    #[arg(long, conflicts_with = "export")]
    rebuild: bool,
    /// Import a file that `index export` wrote, instead of records; only from somebody you trust
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    export: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What was imported, and from where.
#[derive(Debug, Serialize)]
struct Imported {
    index: String,
    from: String,
    generation: u64,
    /// What was done; `None` when something is wrong.
    report: Option<Report>,
    /// Everything that is wrong.
    problems: Vec<String>,
}

/// Runs the command.
pub(super) fn execute(args: &ImportArgs) -> anyhow::Result<Exit> {
    let (from, result, store) = match &args.export {
        Some(path) => {
            let file = File::open(path).with_context(|| format!("{}: cannot be read", path.display()))?;
            let store = args.library.store()?;
            (path.clone(), from_export(&store, file), store)
        }
        None => {
            let records = args.library.records()?;
            let store = args.library.store()?;
            let mode = if args.rebuild { Mode::Rebuild } else { Mode::Add };
            let progress = Progress::new(0);
            let result = import(&store, &records, mode, &mut |done, all| progress.at(done as u64, all as u64));
            (records.path().to_owned(), result, store)
        }
    };
    let (report, problems) = match result {
        Ok(report) => (Some(report), Vec::new()),
        Err(ImportError::Refused { problems }) => (None, problems),
        // A line that does not belong is a check that failed, whatever the reason.
        Err(ImportError::Export(error)) => return Err(anyhow::Error::new(Failure::check(error_text(&from, &error)))),
        Err(error) => return Err(error.into()),
    };
    let imported = Imported {
        index: store.path().display().to_string(),
        from: from.display().to_string(),
        generation: store.generation()?,
        report,
        problems,
    };
    output::result(args.json.then_some(JsonTo::Stdout).as_ref(), &imported, &text(&imported))?;
    Ok(if imported.problems.is_empty() { Exit::Success } else { Exit::CheckFailed })
}

fn error_text(from: &Path, error: &dyn std::error::Error) -> String {
    format!("{}: {error}; nothing was imported", from.display())
}

fn from_export(store: &Store, file: File) -> Result<Report, ImportError> {
    let progress = Progress::new(0);
    import_export(store, &mut BufReader::new(file), &mut |done| progress.doing(format!("{done} runs")))
}

fn text(imported: &Imported) -> String {
    let Imported { index, from, report, problems, .. } = imported;
    let Some(report) = report else {
        let mut lines = vec![format!("{from}: NOT IMPORTED, {} wrong", problems.len())];
        lines.extend(problems.iter().map(|problem| format!("  {}", shown(problem))));
        return lines.join("\n");
    };
    let line = |what: &str, Count { new, already }: Count| format!("  {what:<14}{new} new, {already} stored before");
    let mut lines = vec![format!("{from}: imported into {index}")];
    lines.push(line("runs", report.runs));
    lines.push(line("external runs", report.externals));
    lines.push(line("corrections", report.corrections));
    lines.push(line("definitions", report.definitions));
    if report.submissions > 0 {
        lines.push(format!("  {:<14}{} kept", "submissions", report.submissions));
    }
    lines.join("\n")
}

//! `index check`: everything in the index, verified again.

use clap::Args;
use kernelproof_index::check::{Findings, check};
use kernelproof_index::manifest::shown;

use crate::args::JsonTo;
use crate::failure::Exit;
use crate::library::LibraryArgs;
use crate::output;
use crate::progress::Progress;

const AFTER_HELP: &str = "\
Examples:
  kernelproof index check
  kernelproof index check --json --db copy.sqlite

Checks the pages of the file and all references, computes the digest of every stored file, the identity of every manifest and \
all figures again, and says in what the index differs from the records.

Exit codes: 0 all is right, 1 something in the index is wrong, 2 it cannot be read. A difference from the records is no fault.";

/// Verify everything in the index again
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    library: LibraryArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn execute(args: &CheckArgs) -> anyhow::Result<Exit> {
    let store = args.library.existing_store()?;
    let records = args.library.records_if_any()?;
    let progress = Progress::new(0);
    let findings = check(&store, records.as_ref(), &mut |done, all| progress.at(done as u64, all as u64))?;
    drop(progress);
    output::result(args.json.then_some(JsonTo::Stdout).as_ref(), &findings, &text(&findings))?;
    Ok(if findings.wrong.is_empty() { Exit::Success } else { Exit::CheckFailed })
}

fn text(Findings { wrong, differs, runs }: &Findings) -> String {
    let verdict = if wrong.is_empty() { "all is right".to_owned() } else { format!("{} WRONG", wrong.len()) };
    let mut lines = vec![format!("{runs} runs verified: {verdict}")];
    lines.extend(wrong.iter().map(|finding| format!("  {}", shown(finding))));
    if !differs.is_empty() {
        lines.push("differs from the records:".to_owned());
        lines.extend(differs.iter().map(|difference| format!("  {}", shown(difference))));
    }
    lines.join("\n")
}

//! `index retract`: a correction, written into the records and imported.

use clap::Args;
use kernelproof_index::catalog::Catalog;
use kernelproof_index::correction::{Action, Correction};
use kernelproof_index::import::{ImportError, Mode, import};
use kernelproof_index::{Digest, Manifest};
use serde::Serialize;

use crate::args::JsonTo;
use crate::failure::{Exit, Failure};
use crate::library::LibraryArgs;
use crate::output;

const AFTER_HELP: &str = "\
Examples:
  kernelproof index retract f61428db08c7 --reason 'a neighbour used the same core'
  kernelproof index retract f61428db08c7 --by 0123456789ab --reason 'measured again on a quiet machine'

Writes records/corrections/<digits>.json and imports the records. Nothing is removed: the run stays visible, with the reason, and \
no longer ranks. A correction cannot be taken back; run the implementation again instead.";

/// Take back a run, or name another one in its stead
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct RetractArgs {
    /// The run or external run: its name, its identity or the first digits of it
    run: String,
    /// Why, for those who read it years later
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The run that counts in its stead
    #[arg(long, value_name = "RUN")]
    by: Option<String>,
    #[command(flatten)]
    library: LibraryArgs,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Retracted {
    file: String,
    correction: Digest,
    target: Digest,
}

/// Runs the command.
pub(super) fn execute(args: &RetractArgs) -> anyhow::Result<Exit> {
    let records = args.library.records()?;
    let store = args.library.store()?;
    let add = || match import(&store, &records, Mode::Add, &mut |_, _| {}) {
        Err(ImportError::Refused { problems }) => {
            let first = problems.first().cloned().unwrap_or_default();
            Err(Failure::check(format!("the records cannot be imported: {first}"))
                .help("see `kernelproof index import`")
                .into())
        }
        other => other.map_err(anyhow::Error::from),
    };
    add()?;
    let catalog = store.catalog()?;
    let target = find(&catalog, &args.run)?;
    let action = match &args.by {
        Some(by) => Action::Supersede { by: find(&catalog, by)? },
        None => Action::Retract,
    };
    let decided = jiff::Timestamp::now().to_string();
    let correction = Manifest::new(Correction { target, action, reason: args.reason.clone(), decided });
    let text = correction.text()?;
    // What could not be read back is not written.
    Manifest::<Correction>::parse(text.as_bytes()).map_err(|error| Failure::input(error.to_string()))?;
    let digest = correction.digest()?;
    let folder = records.corrections_folder();
    std::fs::create_dir_all(&folder)?;
    let file = folder.join(format!("{}.json", digest.short()));
    output::save(&file, text.as_bytes())?;
    add()?;
    let retracted = Retracted { file: file.display().to_string(), correction: digest, target };
    let text = format!("{}: written and imported\n  commit it with the records", retracted.file);
    output::result(args.json.then_some(JsonTo::Stdout).as_ref(), &retracted, &text)?;
    Ok(Exit::Success)
}

fn find(catalog: &Catalog, name: &str) -> Result<Digest, Failure> {
    let run = catalog.run_named(name).map(|run| run.facts.id);
    let found = run.or_else(|| catalog.external_named(name).map(|external| external.id));
    let failure = || Failure::input(format!("{name}: no such run")).help("give at least 8 digits of its identity");
    found.ok_or_else(failure)
}

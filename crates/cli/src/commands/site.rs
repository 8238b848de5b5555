//! `site build`: the site as files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use kernelproof_index::Store;
use kernelproof_site::Site;
use kernelproof_site::export::export;
use serde::Serialize;

use crate::args::JsonTo;
use crate::failure::{Exit, Failure};
use crate::library::LibraryArgs;
use crate::{library, output};

const AFTER_HELP: &str = "\
Examples:
  kernelproof site build public
  python3 -m http.server -d public

Writes every page, its JSON, the files of all bundles, the feed and the badges. All links are relative, so any file server will do, \
in any folder, and so will opening index.html. What only a server can compute (`resolve`, comparisons of any two runs) \
is left out; the search filters the list of everything with the page's script.

Exit codes: 0 written, 1 the records are not right, 2 something cannot be read or written.";

/// Write the site as files for any file server
#[derive(Debug, Args)]
pub(crate) struct SiteArgs {
    #[command(subcommand)]
    command: SiteCommand,
}

#[derive(Debug, Subcommand)]
enum SiteCommand {
    /// Write the site into a folder
    #[command(after_help = AFTER_HELP)]
    Build(BuildArgs),
}

#[derive(Debug, Args)]
struct BuildArgs {
    /// A folder that is empty or not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    #[command(flatten)]
    library: LibraryArgs,
    /// Take the index as it is, without importing records
    #[arg(long, conflicts_with = "records")]
    no_import: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Built {
    folder: String,
    generation: u64,
    files: usize,
    bytes: usize,
}

/// Runs the command.
pub(crate) fn execute(args: &SiteArgs) -> anyhow::Result<Exit> {
    let SiteCommand::Build(args) = &args.command;
    require_empty(&args.folder)?;
    let store = Arc::new(args.library.store()?);
    if !args.no_import && !library::import_new(&args.library, &store)? {
        return Ok(Exit::CheckFailed);
    }
    let built = build(&args.folder, store)?;
    let text = format!("{}: {} files, {:.1} MB", built.folder, built.files, built.bytes as f64 / 1e6);
    output::result(args.json.then_some(JsonTo::Stdout).as_ref(), &built, &text)?;
    Ok(Exit::Success)
}

fn require_empty(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    if !folder.exists() {
        return Ok(());
    }
    let mut entries = folder.read_dir().with_context(|| format!("{shown}: cannot be read"))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Failure::input(format!("{shown}: is not empty")).help("name a new folder").into()),
    }
}

/// Writes beside the folder and moves all of it there in the end: whole or not at all.
fn build(folder: &Path, store: Arc<Store>) -> anyhow::Result<Built> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).with_context(|| format!("{}: cannot be made", parent.display()))?;
    let cannot = || format!("{}: cannot be written", folder.display());
    let begun = tempfile::Builder::new().prefix(".kernelproof-site-").tempdir_in(parent).with_context(cannot)?;
    let catalog = Arc::new(store.catalog()?);
    let generation = catalog.generation();
    let site = Arc::new(Site::new(catalog, store));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no thread to work in")?;
    let exported = runtime.block_on(export(&site, |path, text| {
        let path = begun.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, text)
    }))?;
    #[cfg(unix)]
    std::fs::set_permissions(begun.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).with_context(cannot)?;
    let begun = begun.keep();
    // An empty folder of this name may be there; it gives way.
    if folder.exists() {
        std::fs::remove_dir(folder).with_context(cannot)?;
    }
    std::fs::rename(&begun, folder).with_context(cannot)?;
    Ok(Built { folder: folder.display().to_string(), generation, files: exported.files, bytes: exported.bytes })
}

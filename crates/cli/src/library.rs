//! Where the index and the records are, for every command that needs them.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use kernelproof_index::Store;
use kernelproof_index::import::{ImportError, Mode, Records, import};
use kernelproof_index::manifest::shown;

use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// `--db` and `--records`.
#[derive(Clone, Debug, Args)]
pub(crate) struct LibraryArgs {
    /// The index's file [default: kernelproof/index.sqlite in $XDG_DATA_HOME, or in ~/.local/share]
    #[arg(long, value_name = "FILE", env = "KERNELPROOF_DB")]
    db: Option<PathBuf>,
    /// The folder of records [default: `records` in this folder or the nearest above it that has one]
    #[arg(long, value_name = "DIR")]
    records: Option<PathBuf>,
}

impl LibraryArgs {
    /// Opens the index; it is made if it is not there.
    ///
    /// # Errors
    /// When there is no place for it or it cannot be opened.
    pub(crate) fn store(&self) -> anyhow::Result<Store> {
        let path = self.path()?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
        }
        Ok(Store::open(&path)?)
    }

    /// Opens the index, which must be there.
    ///
    /// # Errors
    /// Says how to make it.
    pub(crate) fn existing_store(&self) -> anyhow::Result<Store> {
        let path = self.path()?;
        if !path.exists() {
            let failure = Failure::input(format!("{}: there is no such index", path.display()));
            return Err(failure.help("`kernelproof index import` makes it from the folder of records").into());
        }
        Ok(Store::open_existing(&path)?)
    }

    /// Where the index is.
    ///
    /// # Errors
    /// When neither the command line nor the environment says so.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        let named = self.db.clone().or_else(default_path);
        named.ok_or_else(|| Failure::input("no place for the index: HOME is not set").help("name a file with --db"))
    }

    /// The folder of records.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn records(&self) -> anyhow::Result<Records> {
        if let Some(path) = &self.records {
            return Ok(Records::at(path)?);
        }
        let here = std::env::current_dir().context("the working folder cannot be told")?;
        let none = || {
            let failure = Failure::input("there is no folder `records` here or above");
            failure.help("run this inside a clone of the repository, or name one with --records")
        };
        Ok(Records::above(&here).ok_or_else(none)?)
    }

    /// The folder of records where there is one.
    ///
    /// # Errors
    /// When one was named that is none.
    pub(crate) fn records_if_any(&self) -> anyhow::Result<Option<Records>> {
        match &self.records {
            Some(path) => Ok(Some(Records::at(path)?)),
            None => Ok(self.records().ok()),
        }
    }
}

/// Imports what is new in the folder of records, where there is one. Says what is wrong with it and returns false when it is.
///
/// # Errors
/// When the records or the index cannot be read.
pub(crate) fn import_new(library: &LibraryArgs, store: &Store) -> anyhow::Result<bool> {
    let Some(records) = library.records_if_any()? else { return Ok(true) };
    let progress = Progress::new(0);
    match import(store, &records, Mode::Add, &mut |done, all| progress.at(done as u64, all as u64)) {
        Ok(_) => Ok(true),
        Err(ImportError::Refused { problems }) => {
            drop(progress);
            let lines: Vec<String> = problems.iter().map(|problem| format!("  {}", shown(problem))).collect();
            let folder = records.path().display();
            output::note(&format!("{folder}: nothing was imported, {} wrong\n{}", problems.len(), lines.join("\n")));
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn default_path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // The specification asks to ignore relative paths.
    let data = folder("XDG_DATA_HOME").or_else(|| Some(folder("HOME")?.join(Path::new(".local/share"))))?;
    Some(data.join("kernelproof").join("index.sqlite"))
}

//! From `records/` into the store: whole, idempotent, or not at all.
//!
//! | folder | holds |
//! |---|---|
//! | `operations/*.json`, `suites/*.json` | manifests |
//! | `runs/*/` | bundles; names that begin with a dot are being written and are left out |
//! | `external/*.jsonl` | figures of others, a manifest a line |
//! | `corrections/*.json` | what is said later about any of them |
//!
//! Every bundle is verified before it enters. One thing that is wrong refuses the whole import, with everything that is wrong.

mod records;
mod transaction;

use std::io::BufRead;
use std::path::PathBuf;

use serde::Serialize;

use crate::export::{self, ExportError, Line};
use crate::identity::Digest;
use crate::store::{Added, Store, StoreError};

pub use records::Records;
use transaction::Import;

/// How an import treats what is stored already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Add what is new.
    Add,
    /// Make everything anew: what is no longer in `records/` is gone, submissions and tokens stay. Readers see the old
    /// state until the new one is complete.
    Rebuild,
}

/// What an import found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Operations and suites.
    pub definitions: Count,
    /// Bundles.
    pub runs: Count,
    /// Figures of others.
    pub externals: Count,
    /// Corrections.
    pub corrections: Count,
    /// Submissions that were verified anew; only of a rebuild.
    pub submissions: usize,
}

/// How many were there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Added now.
    pub new: usize,
    /// The very same was stored already.
    pub already: usize,
}

impl Count {
    fn add(&mut self, added: Added) {
        match added {
            Added::New => self.new += 1,
            Added::Already => self.already += 1,
        }
    }
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It is no folder of records.
    #[error("{}: is no folder of records: it has no {missing}", path.display())]
    NotRecords {
        /// The folder.
        path: PathBuf,
        /// What it lacks.
        missing: &'static str,
    },
    /// Something in it is wrong.
    #[error("{} {}; nothing was imported", problems.len(), if problems.len() == 1 { "thing is wrong" } else { "things are wrong" })]
    Refused {
        /// Everything that is wrong, each beginning with the file.
        problems: Vec<String>,
    },
    /// The export is altered, or is none.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Imports `records` in one transaction. `progress` is told how many bundles are done, and of how many.
///
/// # Errors
/// When anything in `records` is wrong or the store cannot be written; then the store is as before.
pub fn import(
    store: &Store,
    records: &Records,
    mode: Mode,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report, ImportError> {
    let cause = if mode == Mode::Rebuild { "rebuild" } else { "import" };
    // Read before the transaction begins: a rebuild drops the tables that they are in.
    let kept = if mode == Mode::Rebuild { submissions(store)? } else { Vec::new() };
    store.write(cause, |writer| {
        if mode == Mode::Rebuild {
            writer.empty()?;
        }
        let mut import = Import::new(writer);
        import.definitions(records)?;
        let folders = import.bundles(records);
        progress(0, folders.len());
        for (index, folder) in folders.iter().enumerate() {
            import.bundle(folder)?;
            progress(index + 1, folders.len());
        }
        for submission in kept {
            import.submission(submission)?;
        }
        import.externals(records)?;
        import.corrections(records)?;
        import.finish()
    })
}

/// Imports an export in one transaction, and demands its checksum. What the export calls committed counts as such: give it only
/// exports that you trust.
///
/// # Errors
/// When the export is altered or anything in it is wrong; then the store is as before.
pub fn import_export(
    store: &Store,
    from: &mut dyn BufRead,
    progress: &mut dyn FnMut(usize),
) -> Result<Report, ImportError> {
    store.write("import of an export", |writer| {
        let mut import = Import::new(writer);
        let mut runs = 0;
        export::read(from, |number, line| {
            if matches!(line, Line::Run { .. }) {
                runs += 1;
                progress(runs);
            }
            import.line(number, line).map_err(ExportError::from)
        })?;
        import.finish()
    })
}

/// A stored submission on its way through a rebuild.
struct Submission {
    run: Digest,
    submitter: String,
    received: String,
    files: std::collections::BTreeMap<String, Vec<u8>>,
}

fn submissions(store: &Store) -> Result<Vec<Submission>, StoreError> {
    let sent = store.submissions()?;
    let whole =
        |(run, submitter, received)| Ok(Submission { files: store.bundle_files(&run)?, run, submitter, received });
    sent.into_iter().map(whole).collect()
}

//! What is too large to hold in memory: the files of bundles.

use kernelproof_eval::evaluation::Evaluation;

use crate::bundle::RUN;
use crate::identity::Digest;
use crate::manifest::{Manifest, ManifestError};
use crate::run::Run;

/// Where the files of bundles are.
pub trait Documents: Send + Sync {
    /// A file of a run's bundle by its name, such as `run.json`; `None` when there is no such run or file.
    ///
    /// # Errors
    /// When it cannot be read, or is no longer what it was when it was stored.
    fn file(&self, run: &Digest, name: &str) -> Result<Option<Vec<u8>>, DocumentError>;
}

/// Why a file cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// The store failed.
    #[error("{file} of run {run}: {why}")]
    Store {
        /// The run.
        run: Digest,
        /// The file.
        file: String,
        /// What the store said.
        why: String,
    },
    /// The file is not what it was stored as.
    #[error("{file} of run {run}: is not what it was stored as")]
    Manifest {
        /// The run.
        run: Digest,
        /// The file.
        file: String,
        /// What is wrong.
        source: Box<ManifestError>,
    },
}

/// The whole evaluation of a run, with every sample. It reads and parses hundreds of kilobytes: keep what you compute from it.
///
/// # Errors
/// When the bundle cannot be read.
pub fn evaluation(documents: &dyn Documents, run: &Digest) -> Result<Option<Evaluation>, DocumentError> {
    let Some(text) = documents.file(run, RUN)? else { return Ok(None) };
    let wrong = |source| DocumentError::Manifest { run: *run, file: RUN.to_owned(), source: Box::new(source) };
    Ok(Some(Manifest::<Run>::read(&text).map_err(wrong)?.spec.evaluation))
}

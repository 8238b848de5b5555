//! What can be wrong with a bundle as a set of files.

use std::io;
use std::path::PathBuf;

use crate::manifest::ManifestError;

/// Why a bundle cannot be read or written. Every message begins with the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The operating system refused.
    #[error("{}: cannot be {what}", file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// `read` or `written`.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// Something that no bundle may hold.
    #[error("{}: {why}", file.display())]
    Refused {
        /// The file or folder.
        file: PathBuf,
        /// What it is, and what it should be.
        why: String,
    },
    /// A file that is no manifest of its kind.
    #[error("{}", file.display())]
    Manifest {
        /// The file.
        file: PathBuf,
        /// The field, and what is wrong with it.
        source: ManifestError,
    },
}

impl BundleError {
    /// The message with its cause.
    pub fn with_cause(&self) -> String {
        match self {
            Self::Manifest { source, .. } => format!("{self}: {source}"),
            Self::Io { source, .. } => format!("{self}: {source}"),
            Self::Refused { .. } => self.to_string(),
        }
    }

    pub(crate) fn refused(file: impl Into<PathBuf>, why: impl Into<String>) -> Self {
        Self::Refused { file: file.into(), why: why.into() }
    }

    /// For `map_err` around something that reads `file`.
    pub(super) fn reading(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| Self::Io { file, what: "read", source }
    }

    /// For `map_err` around something that writes `file`.
    pub(super) fn writing(file: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let file = file.into();
        move |source| Self::Io { file, what: "written", source }
    }
}

//! What can be wrong with a store.

use std::path::{Path, PathBuf};

/// Why a store cannot be read or written. Every message begins with its file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no file.
    #[error("{}: there is no such index", path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A database of another program.
    #[error("{}: is a database of another program; it was left as it is", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A store of a later version of this program.
    #[error("{}: has schema version {found}, this program knows up to {known}; it was left as it is", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i32,
        /// The latest one that this program knows.
        known: i32,
    },
    /// Something in it is not what it was when it was stored.
    #[error("{}: {what}: {why}", path.display())]
    Altered {
        /// The file.
        path: PathBuf,
        /// Which row.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// SQLite or the operating system refused.
    #[error("{}: cannot be read or written", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// For `map_err` around something that SQLite does with the file at `path`.
    pub(crate) fn of(path: &Path) -> impl Fn(rusqlite::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Database { path: path.clone(), source }
    }

    pub(crate) fn altered(path: &Path, what: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self::Altered { path: path.to_owned(), what: what.into(), why: why.to_string() }
    }

    /// The message with its cause.
    pub fn with_cause(&self) -> String {
        match self {
            Self::Database { source, .. } => format!("{self}: {source}"),
            other => other.to_string(),
        }
    }
}

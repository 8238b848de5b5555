//! The store: one SQLite file that holds everything, transactional and append-only.
//!
//! It is filled from `records/` ([`crate::import`]), by submissions ([`crate::intake`]) or from an export
//! ([`crate::export`]), and read as a whole into a [`Catalog`]. Every change is one transaction: after a crash all of it
//! is there, or nothing.
//!
//! A write-ahead log lets pages be served from the last state while an import is at work.

mod error;
mod load;
mod schema;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, Transaction, TransactionBehavior};

pub use error::StoreError;
pub(crate) use write::{Added, ManifestKind, Writer};

use crate::catalog::{Catalog, DocumentError, Documents, Facts};
use crate::identity::Digest;

/// How long a writer waits for another one before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open store. It may be shared between threads; each call takes a connection for itself.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// Files of bundles are read through a connection of their own, so that a page waits for no import and no new catalog.
    documents: Mutex<Connection>,
}

impl Store {
    /// Opens the store at `path`, which is made if it is not there, and brings it to this program's version.
    ///
    /// # Errors
    /// When the file cannot be opened, is no store, or was written by a later version of this program.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        Self::with(path, flags)
    }

    /// Opens the store at `path`, which must be there.
    ///
    /// # Errors
    /// As [`Store::open`], and when there is no file.
    pub fn open_existing(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::Missing { path: path.to_owned() });
        }
        Self::with(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    /// Where its file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn with(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let mut connection = connect(path, flags)?;
        migrate(&mut connection, path)?;
        let documents = connect(path, flags)?;
        Ok(Self { path: path.to_owned(), connection: Mutex::new(connection), documents: Mutex::new(documents) })
    }

    /// Number of changes that the store has seen; the catalog's generation.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn generation(&self) -> Result<u64, StoreError> {
        load::generation(&self.lock()).map_err(StoreError::of(&self.path))
    }

    /// Everything in it as the read model. It reads all runs: keep the catalog until the generation changes.
    ///
    /// # Errors
    /// When the file cannot be read, or holds what this program did not write.
    pub fn catalog(&self) -> Result<Catalog, StoreError> {
        self.facts().map(Catalog::build)
    }

    /// Everything in it as it was stored.
    ///
    /// # Errors
    /// As [`Store::catalog`].
    pub fn facts(&self) -> Result<Facts, StoreError> {
        // One transaction, so that all tables are of one state.
        self.read(load::facts)
    }

    /// Identities of all runs, in order.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn runs(&self) -> Result<Vec<Digest>, StoreError> {
        load::runs(&self.lock(), &self.path)
    }

    /// Every submission: the run, who sent it, and when it arrived.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn submissions(&self) -> Result<Vec<(Digest, String, String)>, StoreError> {
        load::submissions(&self.lock(), &self.path)
    }

    /// All files of a run's bundle but the list of their digests, by name; empty when there is no such run.
    ///
    /// # Errors
    /// When the store cannot be read or a file is not what it was.
    pub fn bundle_files(&self, run: &Digest) -> Result<std::collections::BTreeMap<String, Vec<u8>>, StoreError> {
        load::files(&self.lock(), &self.path, run)
    }

    /// Does `work` in one transaction: all of it is stored, or, on an error or a crash, nothing.
    ///
    /// # Errors
    /// What `work` returns, and when the store cannot be written.
    pub(crate) fn write<T, E: From<StoreError>>(
        &self,
        cause: &str,
        work: impl FnOnce(&Writer<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let failed = StoreError::of(&self.path);
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&failed)?;
        let writer = Writer::new(&transaction, &self.path);
        let result = work(&writer)?;
        if writer.changed() {
            writer.next_generation(cause)?;
        }
        transaction.commit().map_err(&failed)?;
        Ok(result)
    }

    /// Reads through `read` in one state of the store.
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Connection, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction().map_err(StoreError::of(&self.path))?;
        read(&transaction, &self.path)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // Whoever panicked left no half of a change: its transaction was rolled back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Documents for Store {
    fn file(&self, run: &Digest, name: &str) -> Result<Option<Vec<u8>>, DocumentError> {
        let connection = self.documents.lock().unwrap_or_else(PoisonError::into_inner);
        load::file(&connection, &self.path, run, name).map_err(|error| DocumentError::Store {
            run: *run,
            file: name.to_owned(),
            why: error.with_cause(),
        })
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let failed = StoreError::of(path);
    // No URI: a path that begins with `file:` is a path. No mutex: each connection is behind one of ours.
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(&failed)?;
    connection.busy_timeout(PATIENCE).map_err(&failed)?;
    let connection = recognised(connection, path)?;
    log_ahead(&connection).map_err(&failed)?;
    let settings = "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA recursive_triggers = ON;
                    PRAGMA trusted_schema = OFF;";
    connection.execute_batch(settings).map_err(&failed)?;
    Ok(connection)
}

/// Refuses a file that another program or a later version wrote, before anything is changed in it.
fn recognised(connection: Connection, path: &Path) -> Result<Connection, StoreError> {
    let failed = StoreError::of(path);
    let (application, version, tables) = marks(&connection).map_err(&failed)?;
    let empty = tables == 0 && application == 0 && version == 0;
    if !empty && application != schema::APPLICATION {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    let known = schema::STEPS.len() as i32;
    if !(0..=known).contains(&version) {
        return Err(StoreError::Version { path: path.to_owned(), found: version, known });
    }
    Ok(connection)
}

/// Whose file it is, its version and how many tables it has, all of one state: another process may be making it.
fn marks(connection: &Connection) -> rusqlite::Result<(i32, i32, i64)> {
    let transaction = connection.unchecked_transaction()?;
    let number = |pragma: &str| transaction.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let tables = transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok((number("application_id")?, number("user_version")?, tables))
}

/// Turns the write-ahead log on. SQLite does not wait for others here, so this does.
fn log_ahead(connection: &Connection) -> rusqlite::Result<()> {
    const PAUSE: Duration = Duration::from_millis(20);
    let mut left = PATIENCE;
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && !left.is_zero() => {
                std::thread::sleep(PAUSE);
                left = left.saturating_sub(PAUSE);
            }
            other => return other,
        }
    }
}

/// Brings the schema to this program's version, a step at a time, all in one transaction.
fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = StoreError::of(path);
    if version(connection).map_err(&failed)? == schema::STEPS.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&failed)?;
    // Another process may have done it while this one waited.
    let done = version(&transaction).map_err(&failed)?;
    for (index, step) in schema::STEPS.iter().enumerate().skip(done) {
        transaction.execute_batch(step).map_err(&failed)?;
        if index == 0 {
            transaction.execute_batch(schema::DERIVED_TABLES).map_err(&failed)?;
            transaction.pragma_update(None, "application_id", schema::APPLICATION).map_err(&failed)?;
        }
        transaction.pragma_update(None, "user_version", index as i32 + 1).map_err(&failed)?;
    }
    transaction.commit().map_err(&failed)
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0))
        .map(|version| version.max(0) as usize)
}

/// Makes the tables of what comes from `records/` anew, inside a transaction.
pub(crate) fn empty_derived(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    // Dropping a table does not ask its triggers: a rebuild is the one thing that may forget what it makes again.
    for table in schema::DERIVED {
        transaction.execute_batch(&format!("DROP TABLE {table};"))?;
    }
    transaction.execute_batch(schema::DERIVED_TABLES)
}

/// The only row of a query, if there is one.
fn maybe<T>(result: rusqlite::Result<T>) -> rusqlite::Result<Option<T>> {
    result.optional()
}

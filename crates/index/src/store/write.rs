//! What one transaction may add. Nothing here changes or removes a row.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use rusqlite::{Transaction, params};

use super::{StoreError, empty_derived, load, maybe};
use crate::catalog::{FACTS_VERSION, RunFacts};
use crate::identity::Digest;
use crate::manifest::{Manifest, Spec};

/// What became of something that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is new.
    New,
    /// The very same was there.
    Already,
}

/// Manifests that are stored by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ManifestKind {
    Operation,
    Suite,
    External,
    Correction,
}

impl ManifestKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Suite => "suite",
            Self::External => "external",
            Self::Correction => "correction",
        }
    }
}

/// An open transaction.
pub(crate) struct Writer<'a> {
    transaction: &'a Transaction<'a>,
    path: &'a Path,
    changed: Cell<bool>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(transaction: &'a Transaction<'a>, path: &'a Path) -> Self {
        Self { transaction, path, changed: Cell::new(false) }
    }

    /// Whether anything was added.
    pub(super) fn changed(&self) -> bool {
        self.changed.get()
    }

    pub(super) fn next_generation(&self, cause: &str) -> Result<(), StoreError> {
        self.execute("INSERT INTO generation (cause) VALUES (?1)", [cause]).map(drop)
    }

    /// Forgets everything that can be made again from `records/`. What follows must make it again.
    pub(crate) fn empty(&self) -> Result<(), StoreError> {
        self.changed.set(true);
        empty_derived(self.transaction).map_err(StoreError::of(self.path))
    }

    /// Adds a manifest. One whose metadata was edited is one more row; the last one of an identity holds.
    pub(crate) fn manifest<S: Spec>(&self, kind: ManifestKind, manifest: &Manifest<S>) -> Result<Added, StoreError> {
        let unstorable = |error: &dyn std::fmt::Display| StoreError::altered(self.path, kind.name(), error);
        let body = serde_json::to_string(manifest).map_err(|error| unstorable(&error))?;
        let digest = manifest.digest().map_err(|error| unstorable(&error))?;
        self.insert(
            "INSERT INTO manifest (text_digest, kind, digest, body) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            params![Digest::of(body.as_bytes()).to_string(), kind.name(), digest.to_string(), body],
        )
    }

    /// Whether a manifest of this kind and identity is stored.
    pub(crate) fn has_manifest(&self, kind: ManifestKind, digest: &Digest) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM manifest WHERE kind = ?1 AND digest = ?2";
        let found = self.transaction.query_row(sql, [kind.name(), &digest.to_string()], |_| Ok(()));
        maybe(found).map(|found| found.is_some()).map_err(StoreError::of(self.path))
    }

    /// Whether a run is stored.
    pub(crate) fn has_run(&self, run: &Digest) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM run WHERE digest = ?1";
        let found = self.transaction.query_row(sql, [run.to_string()], |_| Ok(()));
        maybe(found).map(|found| found.is_some()).map_err(StoreError::of(self.path))
    }

    /// The digests of a stored run's files, by name.
    pub(crate) fn run_files(&self, run: &Digest) -> Result<BTreeMap<String, Digest>, StoreError> {
        load::file_digests(self.transaction, self.path, run)
    }

    /// Adds a run that was verified, with all its files.
    pub(crate) fn run(&self, facts: &RunFacts, files: &BTreeMap<String, Vec<u8>>) -> Result<Added, StoreError> {
        let id = facts.id.to_string();
        let text = serde_json::to_string(facts).map_err(|error| StoreError::altered(self.path, &id, error))?;
        let added = self.insert(
            "INSERT INTO run (digest, facts_version, facts) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            params![id, FACTS_VERSION, text],
        )?;
        if added == Added::New {
            for (name, contents) in files {
                let digest = self.blob(contents)?;
                let sql = "INSERT INTO run_file (run, name, digest) VALUES (?1, ?2, ?3)";
                self.insert(sql, params![id, name, digest.to_string()])?;
            }
        }
        Ok(added)
    }

    /// Says that a stored run is committed in `records/`.
    pub(crate) fn committed(&self, run: &Digest) -> Result<Added, StoreError> {
        self.insert("INSERT INTO committed (run) VALUES (?1) ON CONFLICT DO NOTHING", [run.to_string()])
    }

    /// Says who sent a stored run.
    pub(crate) fn submission(&self, run: &Digest, submitter: &str, received: &str) -> Result<Added, StoreError> {
        self.insert(
            "INSERT INTO submission (run, submitter, received) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
            [&run.to_string(), submitter, received],
        )
    }

    /// Adds the hash of a token. The catalog does not show it.
    pub(crate) fn token(&self, hash: &Digest, submitter: &str, created: &str) -> Result<(), StoreError> {
        let sql = "INSERT INTO token (hash, submitter, created) VALUES (?1, ?2, ?3)";
        self.execute(sql, [&hash.to_string(), submitter, created]).map(drop)
    }

    /// Takes back every token of a submitter; returns how many.
    pub(crate) fn revoke(&self, submitter: &str, decided: &str, reason: &str) -> Result<usize, StoreError> {
        let sql = "INSERT INTO revoked (hash, decided, reason) SELECT hash, ?2, ?3 FROM token
                   WHERE submitter = ?1 AND hash NOT IN (SELECT hash FROM revoked)";
        self.execute(sql, [submitter, decided, reason])
    }

    fn blob(&self, contents: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(contents);
        let known =
            self.transaction.query_row("SELECT 1 FROM blob WHERE digest = ?1", [digest.to_string()], |_| Ok(()));
        if maybe(known).map_err(StoreError::of(self.path))?.is_none() {
            let deflated =
                deflate(contents).map_err(|error| StoreError::altered(self.path, digest.to_string(), error))?;
            let sql = "INSERT INTO blob (digest, size_bytes, deflated) VALUES (?1, ?2, ?3)";
            self.insert(sql, params![digest.to_string(), contents.len() as i64, deflated])?;
        }
        Ok(digest)
    }

    /// Adds a row that the catalog shows.
    fn insert(&self, sql: &str, row: impl rusqlite::Params) -> Result<Added, StoreError> {
        let rows = self.execute(sql, row)?;
        self.changed.set(self.changed.get() || rows > 0);
        Ok(if rows > 0 { Added::New } else { Added::Already })
    }

    fn execute(&self, sql: &str, row: impl rusqlite::Params) -> Result<usize, StoreError> {
        let mut statement = self.transaction.prepare_cached(sql).map_err(StoreError::of(self.path))?;
        statement.execute(row).map_err(StoreError::of(self.path))
    }
}

fn deflate(contents: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(contents)?;
    encoder.finish()
}

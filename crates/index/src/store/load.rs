//! Reading rows back. What is not what it was stored as is an error that names the row.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use flate2::read::DeflateDecoder;
use rusqlite::{Connection, Row};

use super::{ManifestKind, StoreError, maybe};
use crate::bundle::{Bundle, Files};
use crate::catalog::{FACTS_VERSION, Facts, Origin, RunFacts};
use crate::identity::Digest;
use crate::manifest::{Manifest, Spec};

pub(super) fn generation(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |row: &Row<'_>| row.get::<_, Option<i64>>(0);
    let number = connection.query_row("SELECT max(number) FROM generation", [], number)?;
    Ok(number.unwrap_or(0).max(0) as u64)
}

pub(super) fn facts(connection: &Connection, path: &Path) -> Result<Facts, StoreError> {
    Ok(Facts {
        generation: generation(connection).map_err(StoreError::of(path))?,
        operations: manifests(connection, path, ManifestKind::Operation)?,
        suites: manifests(connection, path, ManifestKind::Suite)?,
        runs: run_facts(connection, path)?,
        externals: manifests(connection, path, ManifestKind::External)?,
        corrections: manifests(connection, path, ManifestKind::Correction)?,
    })
}

/// All manifests of a kind in the order in which they came; the last one of an identity holds.
pub(crate) fn manifests<S: Spec>(
    connection: &Connection,
    path: &Path,
    kind: ManifestKind,
) -> Result<Vec<(Digest, Manifest<S>)>, StoreError> {
    let failed = StoreError::of(path);
    let mut statement =
        connection.prepare("SELECT digest, body FROM manifest WHERE kind = ?1 ORDER BY sequence").map_err(&failed)?;
    let rows = statement.query_map([kind.name()], pair).map_err(&failed)?;
    let mut manifests = Vec::new();
    for row in rows {
        let (digest, body) = row.map_err(&failed)?;
        let what = format!("{} {digest}", kind.name());
        let manifest = Manifest::parse(body.as_bytes()).map_err(|error| StoreError::altered(path, &what, error))?;
        let found = manifest.digest().map_err(|error| StoreError::altered(path, &what, error))?;
        if found.to_string() != digest {
            return Err(StoreError::altered(path, what, format!("found identity {found}")));
        }
        manifests.push((found, manifest));
    }
    Ok(manifests)
}

fn pair(row: &Row<'_>) -> rusqlite::Result<(String, String)> {
    Ok((row.get(0)?, row.get(1)?))
}

pub(super) fn runs(connection: &Connection, path: &Path) -> Result<Vec<Digest>, StoreError> {
    let failed = StoreError::of(path);
    let mut statement = connection.prepare("SELECT digest FROM run ORDER BY digest").map_err(&failed)?;
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).map_err(&failed)?;
    rows.map(|row| digest(path, "run", &row.map_err(&failed)?)).collect()
}

pub(super) fn submissions(connection: &Connection, path: &Path) -> Result<Vec<(Digest, String, String)>, StoreError> {
    let failed = StoreError::of(path);
    let sql = "SELECT run, submitter, received FROM submission ORDER BY run";
    let mut statement = connection.prepare(sql).map_err(&failed)?;
    let rows =
        statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?))).map_err(&failed)?;
    rows.map(|row| {
        let (run, submitter, received) = row.map_err(&failed)?;
        Ok((digest(path, "submission", &run)?, submitter, received))
    })
    .collect()
}

fn digest(path: &Path, what: &str, text: &str) -> Result<Digest, StoreError> {
    text.parse().map_err(|error| StoreError::altered(path, what, error))
}

/// Facts of all runs, each with how it came into the index.
fn run_facts(connection: &Connection, path: &Path) -> Result<Vec<RunFacts>, StoreError> {
    let failed = StoreError::of(path);
    let sql =
        "SELECT run.digest, run.facts_version, run.facts, committed.run, submission.submitter, submission.received
               FROM run LEFT JOIN committed ON committed.run = run.digest
                        LEFT JOIN submission ON submission.run = run.digest
               ORDER BY run.digest";
    let mut statement = connection.prepare(sql).map_err(&failed)?;
    let rows = statement
        .query_map([], |row| {
            let sent: (Option<String>, Option<String>) = (row.get(4)?, row.get(5)?);
            Ok((pair3(row)?, row.get::<_, Option<String>>(3)?.is_some(), sent))
        })
        .map_err(&failed)?;
    let mut runs = Vec::new();
    for row in rows {
        let ((id, version, text), committed, sent) = row.map_err(&failed)?;
        let what = || format!("run {id}");
        let mut facts: RunFacts = match version {
            FACTS_VERSION => serde_json::from_str(&text).map_err(|error| StoreError::altered(path, what(), error))?,
            // Another version of this program computed them: they are computed again from the bundle.
            _ => computed(connection, path, &digest(path, "run", &id)?)?,
        };
        if facts.id.to_string() != id {
            return Err(StoreError::altered(path, what(), format!("has the facts of {}", facts.id)));
        }
        // What is committed is vouched for, whoever sent it first.
        facts.origin = match (committed, sent) {
            (false, (Some(submitter), Some(received))) => Origin::Submission { submitter, received },
            (true, _) => Origin::Records,
            _ => return Err(StoreError::altered(path, what(), "came from nowhere")),
        };
        runs.push(facts);
    }
    Ok(runs)
}

fn pair3(row: &Row<'_>) -> rusqlite::Result<(String, i64, String)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

/// The facts of a stored run, computed from its bundle.
pub(crate) fn computed(connection: &Connection, path: &Path, run: &Digest) -> Result<RunFacts, StoreError> {
    let what = || format!("run {run}");
    let files = Files::new(files(connection, path, run)?);
    let bundle = Bundle::parse(&files).map_err(|error| StoreError::altered(path, what(), error.with_cause()))?;
    RunFacts::of_files(&bundle, &files, Origin::Records).map_err(|error| StoreError::altered(path, what(), error))
}

pub(crate) fn file_digests(
    connection: &Connection,
    path: &Path,
    run: &Digest,
) -> Result<BTreeMap<String, Digest>, StoreError> {
    let failed = StoreError::of(path);
    let mut statement =
        connection.prepare_cached("SELECT name, digest FROM run_file WHERE run = ?1").map_err(&failed)?;
    let rows = statement.query_map([run.to_string()], pair).map_err(&failed)?;
    rows.map(|row| {
        let (name, text) = row.map_err(&failed)?;
        let digest = digest(path, &format!("{name} of run {run}"), &text)?;
        Ok((name, digest))
    })
    .collect()
}

pub(crate) fn files(
    connection: &Connection,
    path: &Path,
    run: &Digest,
) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
    let names = file_digests(connection, path, run)?;
    names.into_iter().map(|(name, digest)| Ok((name, blob(connection, path, &digest)?))).collect()
}

pub(super) fn file(
    connection: &Connection,
    path: &Path,
    run: &Digest,
    name: &str,
) -> Result<Option<Vec<u8>>, StoreError> {
    let sql = "SELECT digest FROM run_file WHERE run = ?1 AND name = ?2";
    let found = connection.query_row(sql, [run.to_string().as_str(), name], |row| row.get::<_, String>(0));
    let Some(text) = maybe(found).map_err(StoreError::of(path))? else { return Ok(None) };
    blob(connection, path, &digest(path, name, &text)?).map(Some)
}

/// Contents by their digest, which is computed again.
fn blob(connection: &Connection, path: &Path, digest: &Digest) -> Result<Vec<u8>, StoreError> {
    let what = || format!("blob {digest}");
    let sql = "SELECT size_bytes, deflated FROM blob WHERE digest = ?1";
    let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?));
    let mut statement = connection.prepare_cached(sql).map_err(StoreError::of(path))?;
    let (size_bytes, deflated) = statement.query_row([digest.to_string()], row).map_err(StoreError::of(path))?;
    let expected = u64::try_from(size_bytes).map_err(|_| StoreError::altered(path, what(), "its size is negative"))?;
    let mut contents = Vec::new();
    let mut decoder = DeflateDecoder::new(deflated.as_slice()).take(expected + 1);
    decoder.read_to_end(&mut contents).map_err(|error| StoreError::altered(path, what(), error))?;
    let found = Digest::of(&contents);
    if found != *digest {
        return Err(StoreError::altered(path, what(), format!("found {found}")));
    }
    Ok(contents)
}

//! Whether a store is still what was put into it, and whether it is what `records/` says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::Serialize;

use crate::bundle::{self, Files, RUN};
use crate::catalog::{Facts, RunFacts};
use crate::identity::Digest;
use crate::import::Records;
use crate::store::{Store, StoreError};
use crate::verify::verify_files;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Everything that is wrong.
    pub wrong: Vec<String>,
    /// What differs from `records/` and is no mistake: an import or a rebuild changes it.
    pub differs: Vec<String>,
    /// Runs that were verified again.
    pub runs: usize,
}

/// Verifies everything stored again: pages of the file, references, the digest of every file, every bundle, and that the facts
/// are those of the bundle. `progress` is told how many runs are done, and of how many.
///
/// # Errors
/// When the store cannot be read at all.
pub fn check(
    store: &Store,
    records: Option<&Records>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Findings, StoreError> {
    let mut findings = Findings { wrong: store.read(integrity)?, ..Findings::default() };
    let facts = match store.facts() {
        Ok(facts) => facts,
        Err(error @ StoreError::Altered { .. }) => {
            findings.wrong.push(error.with_cause());
            return Ok(findings);
        }
        Err(error) => return Err(error),
    };
    for (index, run) in facts.runs.iter().enumerate() {
        findings.wrong.extend(check_run(store, run)?);
        findings.runs += 1;
        progress(index + 1, facts.runs.len());
    }
    let runs: BTreeSet<Digest> = facts.runs.iter().map(|run| run.id).collect();
    let externals: BTreeSet<Digest> = facts.externals.iter().map(|(id, _)| *id).collect();
    for (id, correction) in &facts.corrections {
        let target = correction.spec.target;
        if !runs.contains(&target) && !externals.contains(&target) {
            findings.wrong.push(format!("correction {id}: no run {target}"));
        }
    }
    if let Some(records) = records {
        findings.differs = differences(&facts, records);
    }
    Ok(findings)
}

/// What SQLite finds wrong with the file.
fn integrity(connection: &Connection, path: &Path) -> Result<Vec<String>, StoreError> {
    let failed = StoreError::of(path);
    let mut wrong = Vec::new();
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(&failed)?;
    for row in statement.query_map([], |row| row.get::<_, String>(0)).map_err(&failed)? {
        wrong.push(row.map_err(&failed)?);
    }
    wrong.retain(|line| line != "ok");
    let mut statement = connection.prepare("PRAGMA foreign_key_check").map_err(&failed)?;
    for row in statement.query_map([], |row| row.get::<_, String>(0)).map_err(&failed)? {
        wrong.push(format!("a row of {} refers to nothing", row.map_err(&failed)?));
    }
    Ok(wrong)
}

fn check_run(store: &Store, facts: &RunFacts) -> Result<Vec<String>, StoreError> {
    let label = PathBuf::from(&facts.name);
    let files = match store.bundle_files(&facts.id) {
        Ok(files) => Files::new(files),
        Err(error @ StoreError::Altered { .. }) => {
            return Ok(vec![format!("run {}: {}", facts.id, error.with_cause())]);
        }
        Err(error) => return Err(error),
    };
    let (verification, bundle) = verify_files(&label, &files, &[]);
    let mut wrong = verification.findings;
    let computed = bundle.and_then(|bundle| RunFacts::of_files(&bundle, &files, facts.origin.clone()).ok());
    if computed.is_some_and(|computed| computed != *facts) {
        wrong.push(format!("{}: the stored facts are not those of the bundle", facts.name));
    }
    Ok(wrong)
}

/// Bundles that only one side has.
fn differences(facts: &Facts, records: &Records) -> Vec<String> {
    let mut problems = Vec::new();
    let mut differs = Vec::new();
    let mut here = BTreeSet::new();
    for folder in records.bundles(&mut problems) {
        match bundle::read(&folder) {
            Ok((files, altered)) => {
                problems.extend(altered.iter().map(ToString::to_string));
                here.extend(files.all().get(RUN).map(|text| (Digest::of(text), folder)));
            }
            Err(error) => problems.push(error.with_cause()),
        }
    }
    let known: BTreeSet<Digest> = here.iter().map(|(id, _)| *id).collect();
    let stored: BTreeSet<Digest> = facts.runs.iter().map(|run| run.id).collect();
    let missing = here.iter().filter(|(id, _)| !stored.contains(id));
    differs.extend(missing.map(|(_, folder)| format!("{}: is not in the index yet; import it", folder.display())));
    let gone =
        facts.runs.iter().filter(|run| run.origin == crate::catalog::Origin::Records && !known.contains(&run.id));
    differs.extend(gone.map(|run| format!("{}: is no longer in the records; a rebuild forgets it", run.name)));
    let externals: BTreeSet<Digest> = facts.externals.iter().map(|(id, _)| *id).collect();
    let corrections: BTreeSet<Digest> = facts.corrections.iter().map(|(id, _)| *id).collect();
    let listed = records.externals(&mut problems).into_iter().map(|(place, manifest)| (place, manifest.digest()));
    let listed: Vec<_> = listed.filter_map(|(place, id)| Some((place, id.ok()?, &externals))).collect();
    let decided = records.corrections(&mut problems).into_iter().map(|(place, manifest)| (place, manifest.digest()));
    let decided = decided.filter_map(|(place, id)| Some((place, id.ok()?, &corrections)));
    let missing = listed.into_iter().chain(decided).filter(|(_, id, stored)| !stored.contains(id));
    differs.extend(missing.map(|(place, ..)| format!("{place}: is not in the index yet; import it")));
    differs.extend(problems);
    differs
}

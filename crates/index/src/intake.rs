//! Submissions: a bundle as one archive from somebody who is known but not trusted.
//!
//! The archive is a plain tar file. It is read in memory, never unpacked to disk and never executed. Everything is recomputed
//! as for any other bundle, and the run enters with what its facts deserve: reported or reproducible. Whatever a
//! submitter says, a run becomes verified only when this project's own run agrees with it ([`crate::catalog::TrustFacts`]).

mod archive;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::bundle::{self, BundleError, Files};
use crate::catalog::{Origin, RunFacts};
use crate::identity::Digest;
use crate::store::{Added, ManifestKind, Store, StoreError};
use crate::token::Submitter;
use crate::trust::Standing;
use crate::verify::verify_files;

pub use archive::{ArchiveError, MOST_ARCHIVE_BYTES, pack};

/// A submission that is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// Identity of the run.
    pub run: Digest,
    /// Whether the very same run was stored before; then nothing changed.
    pub already: bool,
    /// What the bundle deserves by itself, and what it lacks for more.
    pub standing: Standing,
}

/// Why a submission is refused. Nothing of it was stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It is no archive that this server reads.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The files are no bundle.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The bundle is altered, contradicts itself or its protocol.
    #[error("the bundle does not verify: {}", findings.join("; "))]
    Findings {
        /// Everything that is wrong, each beginning with the file.
        findings: Vec<String>,
    },
    /// An operation or suite that this index does not have.
    #[error("{file}: found {found}, expected one of this index's")]
    Unknown {
        /// The manifest's file.
        file: &'static str,
        /// Its identity.
        found: Digest,
    },
    /// The store failed; the submission may be sent again.
    #[error("the index cannot store it now")]
    Store(#[from] StoreError),
}

impl Refused {
    /// Whether the fault is the server's, not the submission's.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Whether it was refused for its size alone.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::Archive(ArchiveError::TooLarge { .. }))
    }
}

/// What messages call the archive.
const LABEL: &str = "archive";

/// Takes an archive in ([`pack`] makes one), in one transaction. `received` is the moment of its arrival, UTC, RFC 3339. The same run again is
/// no error and changes nothing.
///
/// # Errors
/// When anything about it is wrong, with what and where; then nothing was stored.
pub fn submit(store: &Store, submitter: &Submitter, archive: &[u8], received: &str) -> Result<Accepted, Refused> {
    submit_files(store, submitter, archive::unpack(archive)?, received)
}

/// As [`submit`], of the files of a bundle by name, the list of their digests among them. The caller bounds their size.
///
/// # Errors
/// As [`submit`].
pub fn submit_files(
    store: &Store,
    submitter: &Submitter,
    files: BTreeMap<String, Vec<u8>>,
    received: &str,
) -> Result<Accepted, Refused> {
    let label = PathBuf::from(LABEL);
    let (files, altered) = bundle::unpacked(&label, files)?;
    archive::require_few_values(&files)?;
    let (verification, bundle) = verify_files(&label, &files, &altered);
    let (Some(bundle), Some(standing)) = (bundle, verification.standing) else {
        return Err(Refused::Findings { findings: verification.findings });
    };
    let origin = Origin::Submission { submitter: submitter.name().to_owned(), received: received.to_owned() };
    let facts = RunFacts::of_files(&bundle, &files, origin)
        .map_err(|error| Refused::Findings { findings: vec![format!("run.json: {error}")] })?;
    store.write("submission", |writer| {
        for (file, kind, found) in [
            ("operation.json", ManifestKind::Operation, facts.operation),
            ("suite.json", ManifestKind::Suite, facts.suite),
        ] {
            if !writer.has_manifest(kind, &found)? {
                return Err(Refused::Unknown { file, found });
            }
        }
        let added = writer.run(&facts, files.all())?;
        if added == Added::New {
            writer.submission(&facts.id, submitter.name(), received)?;
        } else {
            same_files(&writer.run_files(&facts.id)?, &files)?;
        }
        Ok(Accepted { run: facts.id, already: added == Added::Already, standing })
    })
}

/// One run has one set of files, whoever sends it.
fn same_files(stored: &BTreeMap<String, Digest>, files: &Files) -> Result<(), Refused> {
    let differs = files.all().iter().find(|(name, text)| stored.get(*name) != Some(&Digest::of(text)));
    let missing = stored.keys().find(|name| !files.all().contains_key(*name));
    match differs.map(|(name, _)| name).or(missing) {
        None => Ok(()),
        Some(name) => {
            let finding = format!("{LABEL}/{name}: the run is stored already, with another file of this name");
            Err(Refused::Findings { findings: vec![finding] })
        }
    }
}

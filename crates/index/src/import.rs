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

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::bundle::{self, Bundle, BundleError, Files};
use crate::catalog::{Origin, RunFacts};
use crate::correction::{Action, Correction};
use crate::export::{self, Contents, ExportError, Line};
use crate::external::ExternalRun;
use crate::identity::Digest;
use crate::manifest::{Manifest, ManifestError, Spec};
use crate::store::{Added, ManifestKind, Store, StoreError, Writer};
use crate::verify::verify_files;

pub use records::Records;

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
        let mut import = Import { writer, report: Report::default(), problems: Vec::new() };
        import.definitions(records)?;
        let folders = records.bundles(&mut import.problems);
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
        let mut import = Import { writer, report: Report::default(), problems: Vec::new() };
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

struct Import<'a> {
    writer: &'a Writer<'a>,
    report: Report,
    problems: Vec<String>,
}

impl Import<'_> {
    fn definitions(&mut self, records: &Records) -> Result<(), StoreError> {
        for manifest in records.operations(&mut self.problems) {
            self.report.definitions.add(self.writer.manifest(ManifestKind::Operation, &manifest)?);
        }
        for manifest in records.suites(&mut self.problems) {
            self.report.definitions.add(self.writer.manifest(ManifestKind::Suite, &manifest)?);
        }
        Ok(())
    }

    fn finish(self) -> Result<Report, ImportError> {
        if self.problems.is_empty() {
            return Ok(self.report);
        }
        Err(ImportError::Refused { problems: self.problems })
    }

    fn line(&mut self, number: u64, line: Line) -> Result<(), StoreError> {
        let place = format!("line {number}");
        match line {
            Line::Operation { manifest } => {
                if self.valid(&place, &manifest) {
                    self.report.definitions.add(self.writer.manifest(ManifestKind::Operation, &manifest)?);
                }
                Ok(())
            }
            Line::Suite { manifest } => {
                if self.valid(&place, &manifest) {
                    self.report.definitions.add(self.writer.manifest(ManifestKind::Suite, &manifest)?);
                }
                Ok(())
            }
            Line::External { manifest } if self.valid(&place, &manifest) => self.external(&place, &manifest),
            Line::Correction { manifest } if self.valid(&place, &manifest) => self.correction(&place, &manifest),
            Line::Run { id, origin, files } => self.exported(&place, id, &origin, files),
            Line::External { .. } | Line::Correction { .. } | Line::Index { .. } | Line::End { .. } => Ok(()),
        }
    }

    /// Reads a manifest again as strictly as from a file of its own.
    fn valid<S: Spec>(&mut self, place: &str, manifest: &Manifest<S>) -> bool {
        let text = manifest.text().map_err(ManifestError::from);
        let read = text.and_then(|text| Manifest::<S>::parse(text.as_bytes()));
        read.map_err(|error| self.problems.push(format!("{place}: {error}"))).is_ok()
    }

    fn exported(
        &mut self,
        place: &str,
        id: Digest,
        origin: &Origin,
        files: BTreeMap<String, Contents>,
    ) -> Result<(), StoreError> {
        let contents = files.into_iter().map(|(name, contents)| Some((name, contents.into_bytes()?)));
        let label = PathBuf::from(format!("{place}: run {}", id.short()));
        let Some(contents) = contents.collect::<Option<BTreeMap<_, _>>>() else {
            self.problems.push(format!("{}: a file of digits has others", label.display()));
            return Ok(());
        };
        if contents.get(bundle::RUN).map(|text| Digest::of(text)) != Some(id) {
            self.problems.push(format!("{}: is not the run in its files", label.display()));
            return Ok(());
        }
        self.files(&label, &Files::new(contents), &[], origin)
    }

    fn bundle(&mut self, folder: &Path) -> Result<(), StoreError> {
        match bundle::read(folder) {
            Ok((files, altered)) => self.files(folder, &files, &altered, &Origin::Records),
            Err(error) => {
                self.problems.push(error.with_cause());
                Ok(())
            }
        }
    }

    /// Adds a bundle that may be stored already. Only what is new is verified: the same files were when they came.
    fn files(
        &mut self,
        label: &Path,
        files: &Files,
        altered: &[BundleError],
        origin: &Origin,
    ) -> Result<(), StoreError> {
        // The digest of the file is the identity of the run.
        let run = files.all().get(bundle::RUN).map(|text| Digest::of(text));
        if let Some(run) = run.filter(|_| altered.is_empty()) {
            let here = files.all().iter().map(|(name, text)| (name.clone(), Digest::of(text))).collect();
            let stored = self.writer.run_files(&run)?;
            if stored == here {
                self.report.runs.add(Added::Already);
                return self.came(&run, origin);
            }
            if !stored.is_empty() {
                self.problems.push(format!("{}: run {run} is stored with other files beside it", label.display()));
                return Ok(());
            }
        }
        let (verification, bundle) = verify_files(label, files, altered);
        self.problems.extend(verification.findings.iter().cloned());
        let Some(bundle) = bundle.filter(|_| verification.findings.is_empty()) else { return Ok(()) };
        match RunFacts::of(&bundle, origin.clone()) {
            Ok(facts) => {
                self.definitions_of(&bundle)?;
                self.report.runs.add(self.writer.run(&facts, files.all())?);
                self.came(&facts.id, origin)
            }
            Err(error) => {
                self.problems.push(format!("{}: {error}", label.display()));
                Ok(())
            }
        }
    }

    fn came(&self, run: &Digest, origin: &Origin) -> Result<(), StoreError> {
        match origin {
            Origin::Records => self.writer.committed(run).map(drop),
            Origin::Submission { submitter, received } => self.writer.submission(run, submitter, received).map(drop),
        }
    }

    /// A bundle brings its operation and suite where `records/` does not list them.
    fn definitions_of(&mut self, bundle: &Bundle) -> Result<(), StoreError> {
        let run = &bundle.run.spec;
        if !self.writer.has_manifest(ManifestKind::Operation, &run.operation)? {
            self.report.definitions.add(self.writer.manifest(ManifestKind::Operation, &bundle.operation)?);
        }
        if !self.writer.has_manifest(ManifestKind::Suite, &run.suite)? {
            self.report.definitions.add(self.writer.manifest(ManifestKind::Suite, &bundle.suite)?);
        }
        Ok(())
    }

    /// Stores a submission anew; one that is in `records/` too is counted there.
    fn submission(&mut self, submission: Submission) -> Result<(), StoreError> {
        let Submission { run, submitter, received, files } = submission;
        let label = PathBuf::from(format!("submission {}", run.short()));
        let before = self.report.runs;
        self.files(&label, &Files::new(files), &[], &Origin::Submission { submitter, received })?;
        self.report.runs = before;
        self.report.submissions += 1;
        Ok(())
    }

    fn externals(&mut self, records: &Records) -> Result<(), StoreError> {
        for (place, manifest) in records.externals(&mut self.problems) {
            self.external(&place, &manifest)?;
        }
        Ok(())
    }

    fn external(&mut self, place: &str, manifest: &Manifest<ExternalRun>) -> Result<(), StoreError> {
        if !self.writer.has_manifest(ManifestKind::Operation, &manifest.spec.operation)? {
            self.problems.push(format!("{place}: spec.operation: no operation {}", manifest.spec.operation));
            return Ok(());
        }
        self.report.externals.add(self.writer.manifest(ManifestKind::External, manifest)?);
        Ok(())
    }

    fn corrections(&mut self, records: &Records) -> Result<(), StoreError> {
        for (place, manifest) in records.corrections(&mut self.problems) {
            self.correction(&place, &manifest)?;
        }
        Ok(())
    }

    fn correction(&mut self, place: &str, manifest: &Manifest<Correction>) -> Result<(), StoreError> {
        for (field, digest) in named(manifest) {
            let run = self.writer.has_run(&digest)?;
            if !run && !self.writer.has_manifest(ManifestKind::External, &digest)? {
                self.problems.push(format!("{place}: spec.{field}: no run {digest}"));
            }
        }
        self.report.corrections.add(self.writer.manifest(ManifestKind::Correction, manifest)?);
        Ok(())
    }
}

/// The runs that a correction names, and in which field.
fn named(correction: &Manifest<Correction>) -> Vec<(&'static str, Digest)> {
    let Correction { target, action, .. } = &correction.spec;
    let by = match action {
        Action::Supersede { by } => Some(("action.by", *by)),
        Action::Retract => None,
    };
    std::iter::once(("target", *target)).chain(by).collect()
}

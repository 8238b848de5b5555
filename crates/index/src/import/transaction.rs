//! What is added inside the one transaction of an import, and everything that is wrong with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{ImportError, Records, Report, Submission};
use crate::bundle::{self, Bundle, BundleError, Files};
use crate::catalog::{Origin, RunFacts};
use crate::correction::{Action, Correction};
use crate::export::{Contents, Line};
use crate::external::ExternalRun;
use crate::identity::Digest;
use crate::manifest::{Manifest, ManifestError, Spec};
use crate::store::{Added, ManifestKind, StoreError, Writer};
use crate::verify::verify_files;

/// An import under way.
pub(super) struct Import<'a> {
    writer: &'a Writer<'a>,
    report: Report,
    problems: Vec<String>,
}

impl<'a> Import<'a> {
    pub(super) fn new(writer: &'a Writer<'a>) -> Self {
        Self { writer, report: Report::default(), problems: Vec::new() }
    }

    /// Folders of bundles, in the order of their names.
    pub(super) fn bundles(&mut self, records: &Records) -> Vec<PathBuf> {
        records.bundles(&mut self.problems)
    }

    pub(super) fn definitions(&mut self, records: &Records) -> Result<(), StoreError> {
        for manifest in records.operations(&mut self.problems) {
            self.report.definitions.add(self.writer.manifest(ManifestKind::Operation, &manifest)?);
        }
        for manifest in records.suites(&mut self.problems) {
            self.report.definitions.add(self.writer.manifest(ManifestKind::Suite, &manifest)?);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Report, ImportError> {
        if self.problems.is_empty() {
            return Ok(self.report);
        }
        Err(ImportError::Refused { problems: self.problems })
    }

    pub(super) fn line(&mut self, number: u64, line: Line) -> Result<(), StoreError> {
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

    pub(super) fn bundle(&mut self, folder: &Path) -> Result<(), StoreError> {
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
        match RunFacts::of_files(&bundle, files, origin.clone()) {
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
    pub(super) fn submission(&mut self, submission: Submission) -> Result<(), StoreError> {
        let Submission { run, submitter, received, files } = submission;
        let label = PathBuf::from(format!("submission {}", run.short()));
        let before = self.report.runs;
        self.files(&label, &Files::new(files), &[], &Origin::Submission { submitter, received })?;
        self.report.runs = before;
        self.report.submissions += 1;
        Ok(())
    }

    pub(super) fn externals(&mut self, records: &Records) -> Result<(), StoreError> {
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

    pub(super) fn corrections(&mut self, records: &Records) -> Result<(), StoreError> {
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

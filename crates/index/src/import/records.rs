//! A folder of records, and what stands in it.

use std::fs;
use std::path::{Path, PathBuf};

use super::ImportError;
use crate::correction::Correction;
use crate::external::ExternalRun;
use crate::identity::Digest;
use crate::manifest::{Manifest, Spec};
use crate::operation::Operation;
use crate::suite::Suite;

/// What every folder of records has.
const OPERATIONS: &str = "operations";

/// Of one file that is no bundle.
const MOST_BYTES: u64 = 64 << 20;

/// A folder laid out as `records/` of this project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records(PathBuf);

impl Records {
    /// The folder at `path`.
    ///
    /// # Errors
    /// When it has no folder of operations.
    pub fn at(path: &Path) -> Result<Self, ImportError> {
        if path.join(OPERATIONS).is_dir() {
            return Ok(Self(path.to_owned()));
        }
        Err(ImportError::NotRecords { path: path.to_owned(), missing: OPERATIONS })
    }

    /// The nearest `records` folder of `start` or of a folder above it.
    pub fn above(start: &Path) -> Option<Self> {
        start.ancestors().find_map(|folder| Self::at(&folder.join("records")).ok())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where corrections are.
    pub fn corrections_folder(&self) -> PathBuf {
        self.0.join("corrections")
    }

    /// Where figures of others are.
    pub fn external_folder(&self) -> PathBuf {
        self.0.join("external")
    }

    /// Folders of bundles, in the order of their names.
    pub(crate) fn bundles(&self, problems: &mut Vec<String>) -> Vec<PathBuf> {
        entries(&self.0.join("runs"), problems)
    }

    /// The operations with their identities.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn identified_operations(&self) -> Result<Vec<(Digest, Manifest<Operation>)>, ImportError> {
        let mut problems = Vec::new();
        let identified = |manifest: Manifest<Operation>| Some((manifest.digest().ok()?, manifest));
        let operations = self.operations(&mut problems).into_iter().filter_map(identified).collect();
        if problems.is_empty() { Ok(operations) } else { Err(ImportError::Refused { problems }) }
    }

    pub(super) fn operations(&self, problems: &mut Vec<String>) -> Vec<Manifest<Operation>> {
        let read = each_file::<Operation>(&self.0.join(OPERATIONS), "json", problems);
        read.into_iter().map(|(_, manifest)| manifest).collect()
    }

    pub(super) fn suites(&self, problems: &mut Vec<String>) -> Vec<Manifest<Suite>> {
        let read = each_file::<Suite>(&self.0.join("suites"), "json", problems);
        read.into_iter().map(|(_, manifest)| manifest).collect()
    }

    pub(crate) fn corrections(&self, problems: &mut Vec<String>) -> Vec<(String, Manifest<Correction>)> {
        each_file(&self.corrections_folder(), "json", problems)
    }

    pub(crate) fn externals(&self, problems: &mut Vec<String>) -> Vec<(String, Manifest<ExternalRun>)> {
        let mut manifests = Vec::new();
        for path in entries(&self.external_folder(), problems) {
            let Some(text) = text(&path, "jsonl", problems) else { continue };
            let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
            for (index, line) in lines {
                parse(&format!("{}:{}", path.display(), index + 1), line, problems, &mut manifests);
            }
        }
        manifests
    }
}

fn each_file<S: Spec>(folder: &Path, extension: &str, problems: &mut Vec<String>) -> Vec<(String, Manifest<S>)> {
    let mut manifests = Vec::new();
    for path in entries(folder, problems) {
        if let Some(text) = text(&path, extension, problems) {
            parse(&path.display().to_string(), &text, problems, &mut manifests);
        }
    }
    manifests
}

fn parse<S: Spec>(place: &str, text: &str, problems: &mut Vec<String>, manifests: &mut Vec<(String, Manifest<S>)>) {
    match Manifest::parse(text.as_bytes()) {
        Ok(manifest) => manifests.push((place.to_owned(), manifest)),
        Err(error) => problems.push(format!("{place}: {error}")),
    }
}

/// What a folder holds but for names that begin with a dot, in order; nothing where it is not there.
fn entries(folder: &Path, problems: &mut Vec<String>) -> Vec<PathBuf> {
    if !folder.exists() {
        return Vec::new();
    }
    let mut cannot = |error: &std::io::Error| problems.push(format!("{}: cannot be read: {error}", folder.display()));
    let entries = match fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => {
            cannot(&error);
            return Vec::new();
        }
    };
    let hidden = |path: &PathBuf| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).filter(|path| !hidden(path)).collect();
    paths.sort();
    paths
}

/// The text of a file of this kind.
fn text(path: &Path, extension: &str, problems: &mut Vec<String>) -> Option<String> {
    let mut wrong = |why: String| {
        problems.push(format!("{}: {why}", path.display()));
        None
    };
    if path.extension().is_none_or(|found| found != extension) {
        return wrong(format!("is no .{extension} file, as all others in its folder are"));
    }
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => wrong("is no regular file".to_owned()),
        Ok(metadata) if metadata.len() > MOST_BYTES => wrong(format!("is larger than {MOST_BYTES} bytes")),
        Ok(_) => fs::read_to_string(path).or_else(|error| wrong(format!("cannot be read: {error}")).ok_or(())).ok(),
        Err(error) => wrong(format!("cannot be read: {error}")),
    }
}

//! The whole index as JSON lines: a heading, one line for everything that is stored, and a last line with a checksum.
//!
//! | line | holds |
//! |---|---|
//! | first | `format` |
//! | `operation`, `suite`, `external`, `correction` | the manifest that holds for an identity |
//! | `run` | identity, how it came, and every file of the bundle |
//! | `end` | number of lines and SHA-256 of the bytes before |
//!
//! Equal contents give equal bytes, whatever the order in which they came. Tokens are left out.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::catalog::Origin;
use crate::correction::Correction;
use crate::external::ExternalRun;
use crate::identity::Digest;
use crate::manifest::{Manifest, Spec, shown};
use crate::operation::Operation;
use crate::store::{Store, StoreError};
use crate::suite::Suite;

/// Names this layout; a reader refuses others.
pub const FORMAT: &str = "kernelproof.index/1";

/// Longest line: a bundle of the largest size, escaped.
const MOST_LINE_BYTES: u64 = 512 << 20;

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Line {
    Index { format: String },
    Operation { manifest: Box<Manifest<Operation>> },
    Suite { manifest: Box<Manifest<Suite>> },
    Run { id: Digest, origin: Origin, files: BTreeMap<String, Contents> },
    External { manifest: Box<Manifest<ExternalRun>> },
    Correction { manifest: Box<Manifest<Correction>> },
    End { lines: u64, sha256: Digest },
}

/// Contents of a file: text, or digits where it is none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Contents {
    Text(String),
    Bytes { hex: String },
}

impl Contents {
    fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes { hex: error.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect() },
        }
    }

    pub(crate) fn into_bytes(self) -> Option<Vec<u8>> {
        let hex = match self {
            Self::Text(text) => return Some(text.into_bytes()),
            Self::Bytes { hex } => hex,
        };
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
    }
}

/// Why there is no export, or what was given is none.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be written or read.
    #[error("the export cannot be written or read")]
    Io(#[from] io::Error),
    /// A line that no export has.
    #[error("line {number}: {why}")]
    Line {
        /// Its number, from 1.
        number: u64,
        /// What is wrong.
        why: String,
    },
}

/// Writes the whole index to `to`. `progress` is told how many runs are done, and of how many.
///
/// # Errors
/// When the store cannot be read or `to` cannot be written.
pub fn export(store: &Store, to: &mut dyn Write, progress: &mut dyn FnMut(usize, usize)) -> Result<(), ExportError> {
    let mut writer = Lines { to, hash: Sha256::new(), lines: 0 };
    let facts = store.facts()?;
    writer.line(&Line::Index { format: FORMAT.to_owned() })?;
    for manifest in holding(facts.operations) {
        writer.line(&Line::Operation { manifest })?;
    }
    for manifest in holding(facts.suites) {
        writer.line(&Line::Suite { manifest })?;
    }
    let runs: BTreeMap<Digest, Origin> = facts.runs.into_iter().map(|run| (run.id, run.origin)).collect();
    progress(0, runs.len());
    for (index, (id, origin)) in runs.iter().enumerate() {
        let files = store.bundle_files(id)?;
        let files = files.into_iter().map(|(name, bytes)| (name, Contents::of(bytes))).collect();
        writer.line(&Line::Run { id: *id, origin: origin.clone(), files })?;
        progress(index + 1, runs.len());
    }
    for manifest in holding(facts.externals) {
        writer.line(&Line::External { manifest })?;
    }
    for manifest in holding(facts.corrections) {
        writer.line(&Line::Correction { manifest })?;
    }
    let (lines, sha256) = writer.state();
    writer.line(&Line::End { lines, sha256 })?;
    writer.to.flush()?;
    Ok(())
}

/// The last one said of each identity, by identity.
fn holding<S: Spec>(manifests: Vec<(Digest, Manifest<S>)>) -> impl Iterator<Item = Box<Manifest<S>>> {
    manifests.into_iter().collect::<BTreeMap<_, _>>().into_values().map(Box::new)
}

struct Lines<'a> {
    to: &'a mut dyn Write,
    hash: Sha256,
    lines: u64,
}

impl Lines<'_> {
    fn line(&mut self, line: &Line) -> Result<(), ExportError> {
        let mut text = serde_json::to_vec(line).map_err(io::Error::from)?;
        text.push(b'\n');
        self.hash.update(&text);
        self.lines += 1;
        self.to.write_all(&text)?;
        Ok(())
    }

    fn state(&self) -> (u64, Digest) {
        (self.lines, Digest::from(self.hash.clone()))
    }
}

/// Reads an export line by line. The last line is demanded, and must agree with all others.
pub(crate) fn read(
    from: &mut dyn BufRead,
    mut each: impl FnMut(u64, Line) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let (mut hash, mut number) = (Sha256::new(), 0);
    loop {
        number += 1;
        let wrong = |why: String| ExportError::Line { number, why: shown(&why) };
        let mut text = Vec::new();
        io::Read::take(&mut *from, MOST_LINE_BYTES).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') {
            return Err(wrong("the export ends before its last line".to_owned()));
        }
        let line: Line = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        match line {
            Line::Index { format } if number == 1 && format == FORMAT => {}
            Line::Index { format } => return Err(wrong(format!("found the format {format:?}, expected {FORMAT:?}"))),
            _ if number == 1 => return Err(wrong(format!("expected the format {FORMAT:?}"))),
            Line::End { lines, sha256 } => {
                let found = Digest::from(hash);
                if (lines, sha256) != (number - 1, found) {
                    let found = format!("found {} lines with {found}", number - 1);
                    return Err(wrong(format!("{found}, expected {lines} with {sha256}")));
                }
                let more = from.fill_buf()?.is_empty();
                return if more { Ok(()) } else { Err(wrong("more follows after the last line".to_owned())) };
            }
            line => each(number, line)?,
        }
        hash.update(&text);
    }
}

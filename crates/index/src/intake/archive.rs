//! Archives: tar files of one bundle, read in memory with limits on everything.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Component;

use tar::{Archive, Builder, EntryType, Header};

use crate::bundle::files::plain_name;
use crate::bundle::{Files, RUN, SUMS};
use crate::manifest::shown;

/// Largest archive: a run of 10^6 samples needs 12 MB.
pub const MOST_ARCHIVE_BYTES: usize = 16 << 20;

/// More files than any bundle has.
const MOST_FILES: usize = 64;

/// Values that a submitted run may have. 10^6 samples fit; an archive full of `[0,0,0,…` would otherwise need fifty times
/// its size in memory.
const MOST_VALUES: usize = 2_500_000;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// Larger than the limit.
    #[error("{what}: found {found}, expected at most {most}")]
    TooLarge {
        /// What is.
        what: String,
        /// Its size.
        found: u64,
        /// The limit.
        most: u64,
    },
    /// An entry that no bundle has.
    #[error("entry {name:?}: {why}")]
    Entry {
        /// Its name, shortened.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// Not a tar file, or a part of one.
    #[error("is no whole tar archive: {0}")]
    Broken(io::Error),
}

/// The files of an archive by name, [`SUMS`] among them. Entries may be in one folder, whatever its name.
///
/// # Errors
/// For everything but regular files with plain names, for too many or too large ones, and for half an archive.
pub(super) fn unpack(archive: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, ArchiveError> {
    limit("the archive's bytes", archive.len(), MOST_ARCHIVE_BYTES)?;
    whole(archive)?;
    let mut files = BTreeMap::new();
    let mut folder = None;
    for entry in Archive::new(archive).entries().map_err(ArchiveError::Broken)? {
        let mut entry = entry.map_err(ArchiveError::Broken)?;
        let path = entry.path().map_err(ArchiveError::Broken)?.into_owned();
        let refuse = |why: &str| ArchiveError::Entry { name: shown(&path.to_string_lossy()), why: why.to_owned() };
        match entry.header().entry_type() {
            EntryType::Regular => {}
            EntryType::Directory => continue,
            _ => return Err(refuse("is no regular file")),
        }
        let parts: Vec<&str> = path
            .components()
            // `tar -C folder .` names its files so.
            .filter(|part| *part != Component::CurDir)
            .map(|part| match part {
                Component::Normal(name) => name.to_str().ok_or_else(|| refuse("is not UTF-8")),
                _ => Err(refuse("leads out of the archive")),
            })
            .collect::<Result<_, _>>()?;
        let (inside, name) = match parts.as_slice() {
            [name] => ("", *name),
            [folder, name] => (*folder, *name),
            _ => return Err(refuse("is in a folder of a folder")),
        };
        if folder.get_or_insert_with(|| inside.to_owned()).as_str() != inside {
            return Err(refuse("is in another folder than the entries before it"));
        }
        if name != SUMS {
            plain_name(name).map_err(refuse)?;
        }
        // The size that the header names is a claim; what is read is bounded by the archive itself.
        let claimed = usize::try_from(entry.size()).unwrap_or(usize::MAX);
        limit(&format!("bytes of {name}"), claimed, archive.len())?;
        let mut contents = Vec::new();
        entry.by_ref().take(claimed as u64).read_to_end(&mut contents).map_err(ArchiveError::Broken)?;
        if contents.len() != claimed {
            return Err(refuse("is shorter than its header says"));
        }
        if files.insert(name.to_owned(), contents).is_some() {
            return Err(refuse("is there twice"));
        }
        limit("files in the archive", files.len(), MOST_FILES)?;
    }
    Ok(files)
}

/// A tar file ends with two blocks of zeros; half of one does not.
fn whole(archive: &[u8]) -> Result<(), ArchiveError> {
    const BLOCK: usize = 512;
    let broken = |why: &str| ArchiveError::Broken(io::Error::new(io::ErrorKind::InvalidData, why.to_owned()));
    if archive.is_empty() || !archive.len().is_multiple_of(BLOCK) {
        return Err(broken("its size is no multiple of 512 bytes"));
    }
    let end = archive.len().checked_sub(2 * BLOCK).and_then(|start| archive.get(start..));
    match end {
        Some(end) if end.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err(broken("it does not end with two empty blocks")),
    }
}

fn limit(what: &str, found: usize, most: usize) -> Result<(), ArchiveError> {
    if found <= most {
        return Ok(());
    }
    Err(ArchiveError::TooLarge { what: what.to_owned(), found: found as u64, most: most as u64 })
}

/// Bounds the memory that reading the run takes, before it is read.
pub(super) fn require_few_values(files: &Files) -> Result<(), ArchiveError> {
    let separators = |text: &Vec<u8>| text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    for (name, text) in files.all() {
        // Only the run may be long.
        let most = if name == RUN { MOST_VALUES } else { MOST_VALUES / 25 };
        if name.ends_with(".json") {
            limit(&format!("values of {name}"), separators(text), most)?;
        }
    }
    Ok(())
}

/// The archive of a bundle: what [`super::submit`] takes. The same files give the same bytes.
///
/// # Errors
/// When it is larger than what any server of this version takes.
pub fn pack(files: &Files) -> Result<Vec<u8>, ArchiveError> {
    let mut builder = Builder::new(Vec::new());
    let sums = files.sums().into_bytes();
    let all = files.all().iter().map(|(name, text)| (name.as_str(), text)).chain([(SUMS, &sums)]);
    for (name, text) in all {
        let mut header = Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        builder.append_data(&mut header, name, text.as_slice()).map_err(ArchiveError::Broken)?;
    }
    let archive = builder.into_inner().map_err(ArchiveError::Broken)?;
    limit("the archive's bytes", archive.len(), MOST_ARCHIVE_BYTES)?;
    Ok(archive)
}

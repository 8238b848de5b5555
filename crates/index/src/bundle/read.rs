//! Reading a folder that anyone may have made: nothing is followed, nothing is large, nothing is skipped.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::path::Path;

use super::error::BundleError;
use super::files::{Files, SUMS, parse_sums, plain_name};
use crate::identity::Digest;

/// More files than any bundle has.
const MOST_FILES: usize = 64;

/// Of one file: a run with 10^6 samples needs 12 MB.
const MOST_FILE_BYTES: u64 = 64 << 20;

/// Of all files together.
const MOST_BYTES: u64 = 128 << 20;

/// The files of a bundle and every way in which they are not those of [`SUMS`]; none for a bundle as it was written.
///
/// # Errors
/// When the folder is no bundle, or holds what no bundle may: links, folders, devices, odd names, too much.
pub fn read(folder: &Path) -> Result<(Files, Vec<BundleError>), BundleError> {
    unpacked(folder, contents(folder)?)
}

/// As [`read`], of contents that are in memory already, [`SUMS`] among them; `folder` is what messages call it.
///
/// # Errors
/// As [`read`]: when it is no bundle, or holds what no bundle may.
pub fn unpacked(
    folder: &Path,
    mut contents: BTreeMap<String, Vec<u8>>,
) -> Result<(Files, Vec<BundleError>), BundleError> {
    for name in contents.keys().filter(|name| *name != SUMS) {
        plain_name(name).map_err(|why| BundleError::refused(folder.join(name), why))?;
    }
    let path = folder.join(SUMS);
    let sums = contents
        .remove(SUMS)
        .ok_or_else(|| BundleError::refused(folder, format!("is no bundle of a run: it has no {SUMS}")))?;
    let text = str::from_utf8(&sums).map_err(|_| BundleError::refused(&path, "is not UTF-8"))?;
    let sums = parse_sums(text).map_err(|why| BundleError::refused(&path, why))?;
    let findings = altered(folder, &contents, &sums);
    Ok((Files::in_folder(folder, contents), findings))
}

fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, BundleError> {
    let mut contents = BTreeMap::new();
    let mut left = MOST_BYTES;
    for entry in fs::read_dir(folder).map_err(BundleError::reading(folder))? {
        let path = entry.map_err(BundleError::reading(folder))?.path();
        if contents.len() == MOST_FILES {
            return Err(BundleError::refused(folder, format!("holds more than {MOST_FILES} files")));
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name != SUMS {
            plain_name(&name).map_err(|why| BundleError::refused(&path, why))?;
        }
        let text = read_file(&path, left.min(MOST_FILE_BYTES))?;
        left -= text.len() as u64;
        contents.insert(name, text);
    }
    Ok(contents)
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, BundleError> {
    let before = fs::symlink_metadata(path).map_err(BundleError::reading(path))?;
    if !before.is_file() {
        let what = if before.is_symlink() { "is a link" } else { "is no regular file" };
        return Err(BundleError::refused(path, format!("{what}; a bundle holds regular files only")));
    }
    let too_large = || BundleError::refused(path, format!("is larger than {limit} bytes, which is the limit"));
    if before.len() > limit {
        return Err(too_large());
    }
    let file = open_same(path, &before).map_err(BundleError::reading(path))?;
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text).map_err(BundleError::reading(path))?;
    if text.len() as u64 > limit { Err(too_large()) } else { Ok(text) }
}

/// Opens the file that was looked at, not one that took its name since.
fn open_same(path: &Path, before: &Metadata) -> io::Result<File> {
    let file = File::open(path)?;
    if same_file(before, &file.metadata()?) {
        Ok(file)
    } else {
        Err(io::Error::other("it changed while it was opened"))
    }
}

#[cfg(unix)]
fn same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn same_file(one: &Metadata, other: &Metadata) -> bool {
    one.file_type() == other.file_type()
}

fn altered(folder: &Path, contents: &BTreeMap<String, Vec<u8>>, sums: &BTreeMap<String, Digest>) -> Vec<BundleError> {
    let refuse = |name: &String, why: String| BundleError::refused(folder.join(name), why);
    let unlisted = contents.keys().filter(|name| !sums.contains_key(*name));
    let unlisted = unlisted.map(|name| refuse(name, format!("is not listed in {SUMS}")));
    let listed = sums.iter().filter_map(|(name, expected)| match contents.get(name) {
        None => Some(refuse(name, "is missing".to_owned())),
        Some(text) if Digest::of(text) != *expected => {
            let found = Digest::of(text);
            Some(refuse(name, format!("was altered: found {found}, expected {expected}")))
        }
        Some(_) => None,
    });
    unlisted.chain(listed).collect()
}

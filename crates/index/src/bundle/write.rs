//! Writing a bundle: a folder under another name, on disk, then renamed. Whoever looks sees all of it or nothing.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::error::BundleError;
use super::files::{Files, SUMS};
use super::{Bundle, read};

/// Names of folders that are being written. A reader of `records/runs` skips what begins with a dot.
const PARTIAL: &str = ".partial-";

/// A partial folder of this age whose writer holds no lock any more was left by a process that was killed. Between making
/// a folder and locking it a writer needs microseconds.
const ABANDONED: Duration = Duration::from_secs(60);

/// What became of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is in this new folder.
    New(PathBuf),
    /// The very same run was in this folder already; nothing was changed.
    Already(PathBuf),
}

impl Written {
    /// Its folder.
    pub fn folder(&self) -> &Path {
        match self {
            Self::New(folder) | Self::Already(folder) => folder,
        }
    }
}

/// Writes a bundle into a folder of its own under `parent`, which is made if need be.
///
/// # Errors
/// When a file cannot be written: then nothing is left. When another run has its name.
pub fn write(bundle: &Bundle, parent: &Path) -> Result<Written, BundleError> {
    write_with(bundle, parent, &mut |file, text| file.write_all(text))
}

/// As [`write`], with what puts bytes into a file.
fn write_with(
    bundle: &Bundle,
    parent: &Path,
    fill: &mut dyn FnMut(&mut File, &[u8]) -> io::Result<()>,
) -> Result<Written, BundleError> {
    let named = |source| BundleError::Manifest { file: parent.to_owned(), source };
    let target = parent.join(bundle.name().map_err(named)?);
    let files = bundle.files().map_err(|source| BundleError::Manifest { file: target.clone(), source })?;
    readable(bundle, &files, &target)?;
    fs::create_dir_all(parent).map_err(BundleError::writing(parent))?;
    sweep(parent);
    let cannot = || BundleError::writing(&target);
    let partial = partial_folder(parent).map_err(cannot())?;
    // Held until the folder has its name: it tells others that somebody is at work.
    let lock = File::open(partial.path()).map_err(cannot())?;
    // Where the file system has no locks, nobody gets one to sweep with either.
    drop(lock.lock_shared());
    let sums = files.sums().into_bytes();
    for (name, text) in files.all().iter().map(|(name, text)| (name.as_str(), text)).chain([(SUMS, &sums)]) {
        let path = target.join(name);
        write_file(&partial.path().join(name), text, fill).map_err(BundleError::writing(path))?;
    }
    lock.sync_all().map_err(cannot())?;
    match fs::rename(partial.path(), &target) {
        Ok(()) => drop(partial.keep()),
        Err(_) if target.is_dir() => return same(&files, &target),
        Err(source) => return Err(cannot()(source)),
    }
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(BundleError::writing(parent))?;
    Ok(Written::New(target))
}

/// Nothing is stored that would not be read as the same again.
fn readable(bundle: &Bundle, files: &Files, target: &Path) -> Result<(), BundleError> {
    if Bundle::parse(files)? == *bundle {
        return Ok(());
    }
    Err(BundleError::refused(target, "would be read back as another run; nothing was written"))
}

/// A new folder with the permissions of any other.
fn partial_folder(parent: &Path) -> io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PARTIAL);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    // The same error without the temporary name, which nobody asked for.
    let plain = |error: io::Error| error.raw_os_error().map_or(error, io::Error::from_raw_os_error);
    builder.tempdir_in(parent).map_err(plain)
}

fn write_file(path: &Path, text: &[u8], fill: &mut dyn FnMut(&mut File, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    fill(&mut file, text)?;
    file.sync_all()
}

/// The same run twice is no error; another one under its name is.
fn same(files: &Files, target: &Path) -> Result<Written, BundleError> {
    let (found, findings) = read(target)?;
    if findings.is_empty() && found.all() == files.all() {
        return Ok(Written::Already(target.to_owned()));
    }
    Err(BundleError::refused(target, "is there already and holds something else; it was left as it is"))
}

/// Removes what writers that were killed left behind. Failing to is no reason not to write.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    let partial = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(PARTIAL))
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(partial) {
        if abandoned(&path).unwrap_or(false) {
            drop(fs::remove_dir_all(&path));
        }
    }
}

fn abandoned(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
    Ok(metadata.is_dir() && age >= ABANDONED && File::open(path)?.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::example;

    /// A disk that has room for `room` bytes.
    fn full_disk(room: usize) -> impl FnMut(&mut File, &[u8]) -> io::Result<()> {
        let mut left = room;
        move |file, text| {
            let fits = text.len().min(left);
            left -= fits;
            file.write_all(&text[..fits])?;
            if fits == text.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }
    }

    #[test]
    fn a_full_disk_leaves_nothing_behind() {
        let bundle = example::bundle();
        let files = bundle.files().expect("it is plain data");
        let needed = files.all().values().map(Vec::len).sum::<usize>() + files.sums().len();
        let parent = tempfile::tempdir().expect("a temporary folder");
        let entries = || fs::read_dir(parent.path()).expect("it is a folder").count();
        for room in (0..needed).step_by(needed / 50) {
            let error = write_with(&bundle, parent.path(), &mut full_disk(room)).expect_err("the disk is full");
            let BundleError::Io { file, what: "written", source } = error else { panic!("{error}") };
            assert_eq!(source.kind(), io::ErrorKind::StorageFull);
            assert!(file.starts_with(parent.path().join(bundle.name().expect("it has a name"))), "{}", file.display());
            assert_eq!(entries(), 0, "with room for {room} bytes");
        }
        write_with(&bundle, parent.path(), &mut full_disk(needed)).expect("there is room");
        assert_eq!(entries(), 1);
    }
}

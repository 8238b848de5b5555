//! The one place that prints: results to stdout, everything else to stderr.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::args::JsonTo;

/// The reader of stdout went away (`kernelproof cases | head -1`): nothing is wrong, and nobody is left to tell.
#[derive(Debug, thiserror::Error)]
#[error("stdout was closed")]
pub(crate) struct Closed;

/// Prints a result, with a line end.
///
/// # Errors
/// [`Closed`] when nobody reads stdout any more.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Closed.into()),
        other => other.context("stdout cannot be written"),
    }
}

/// Tells the user something that is no result. A closed stderr is ignored.
pub(crate) fn note(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

/// Prints `value` as JSON to where `--json` says, and `text` to stdout unless the JSON went there.
///
/// # Errors
/// When stdout or the file cannot be written.
pub(crate) fn result<T: Serialize>(json: Option<&JsonTo>, value: &T, text: &str) -> anyhow::Result<()> {
    match json {
        Some(JsonTo::Stdout) => print(&to_json(value)?),
        Some(JsonTo::File(path)) => {
            save_json(path, value)?;
            print(text)
        }
        None => print(text),
    }
}

/// Writes `value` as JSON to `path`, all or nothing.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn save_json<T: Serialize>(path: &Path, value: &T) -> anyhow::Result<()> {
    let mut text = to_json(value)?;
    text.push('\n');
    save(path, text.as_bytes())
}

/// Writes `bytes` to `path`, all or nothing.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn save(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace(path, |file| file.write_all(bytes))
}

/// Fills a new file beside `path` and moves it there once it is on disk: readers see the old file or the whole new
/// one, and a failure leaves nothing behind.
///
/// # Errors
/// Names `path` and what the operating system said.
pub(crate) fn replace(path: &Path, fill: impl FnOnce(&mut std::fs::File) -> std::io::Result<()>) -> anyhow::Result<()> {
    let shown = path.display().to_string();
    let cannot = || format!("{shown}: cannot be written");
    // Behind a link, the file that it names is replaced and not the link.
    let target = if path.exists() { std::fs::canonicalize(path).with_context(cannot)? } else { path.to_owned() };
    let path = target.as_path();
    if path.is_dir() {
        anyhow::bail!("{shown}: is a folder, expected the name of a file");
    }
    // Replacing a device or a pipe by a file would break it for everyone.
    if path.exists() && !path.is_file() {
        anyhow::bail!("{shown}: is not a regular file");
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        anyhow::bail!("{shown}: cannot be written, there is no folder {}", folder.display());
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".kernelproof-");
    // As any other new file: what the user's umask leaves.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut temporary = builder.tempfile_in(folder).map_err(without_path).with_context(cannot)?;
    fill(temporary.as_file_mut()).with_context(cannot)?;
    temporary.as_file().sync_all().with_context(cannot)?;
    temporary.persist(path).map_err(|error| error.error).with_context(cannot)?;
    Ok(())
}

/// The same error without the temporary name, which nobody asked for.
fn without_path(error: std::io::Error) -> std::io::Error {
    error.raw_os_error().map_or(error, std::io::Error::from_raw_os_error)
}

fn to_json<T: Serialize>(value: &T) -> anyhow::Result<String> {
    serde_json::to_string_pretty(value).context("the result cannot be written as JSON")
}

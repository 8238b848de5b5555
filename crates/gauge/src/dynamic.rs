//! Libraries that may or may not be on this machine.

use std::ffi::OsString;

use libloading::Library;

use crate::error::Error;

/// Loads the first of `names`, or the file that the environment variable `variable` names.
///
/// # Errors
/// [`Error::Missing`] with all that was tried.
///
/// # Safety
/// As [`Library::new`]: whatever is found under these names must be safe to initialise, which holds for NVIDIA's libraries.
pub(crate) unsafe fn load(library: &'static str, variable: &str, names: &[&str]) -> Result<Library, Error> {
    let named = std::env::var_os(variable);
    let candidates: Vec<OsString> = match named {
        Some(path) => vec![path],
        None => names.iter().map(OsString::from).collect(),
    };
    for candidate in &candidates {
        // SAFETY: the caller answers for the names; who sets the variable answers for the file.
        if let Ok(found) = unsafe { Library::new(candidate) } {
            return Ok(found);
        }
    }
    let tried: Vec<String> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
    Err(Error::Missing { library, looked_for: tried.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_for_is_named() {
        // SAFETY: there is no such library.
        let error = unsafe { load("CUPTI", "KERNELPROOF_NO_SUCH_VARIABLE", &["libno-such.so.1", "libno-such.so"]) };
        let message = error.expect_err("there is none").to_string();
        assert_eq!(message, "no CUPTI: none of libno-such.so.1, libno-such.so could be loaded");
    }
}

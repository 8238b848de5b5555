//! For tests of this crate and of those that render what it holds: bundles that nobody measured, consistent in themselves.

pub mod example;
pub mod generate;

#[cfg(test)]
use std::path::PathBuf;

/// The folder of committed records.
#[cfg(test)]
pub(crate) fn records() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../records")
}

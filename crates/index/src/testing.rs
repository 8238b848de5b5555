//! For tests of this crate.

#[path = "../tests/bundles/example.rs"]
pub(crate) mod example;

use std::path::PathBuf;

/// The folder of committed records.
pub(crate) fn records() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../records")
}

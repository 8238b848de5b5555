//! The lock file: what the committed cubins were made from, and with.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cubin::Resources;

/// `crates/cuda/cubins/cubins.lock`.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Lock {
    /// SHA-256 of the sources of the kernels that are made of tiles, and of their rows in the table.
    pub(crate) source: String,
    /// SHA-256 of the kernels that are PTX.
    #[serde(default)]
    pub(crate) ptx: String,
    /// Version of the crate that the kernels are written with.
    pub(crate) cutile: String,
    /// Version of the assemblers.
    pub(crate) tileiras: String,
    /// By architecture, then by row.
    pub(crate) cubins: BTreeMap<String, BTreeMap<String, Entry>>,
}

/// One cubin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// SHA-256 of the cubin.
    pub(crate) sha256: String,
    /// Its size.
    pub(crate) bytes: usize,
    #[serde(flatten)]
    pub(crate) resources: Resources,
}

impl Lock {
    /// Reads the file; empty when there is none yet.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        if !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path)?;
        toml::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = format!("# Written by `cargo xtask kernels`.\n{}", toml::to_string(self)?);
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

//! The lock file: what the committed cubins were made from, and with.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::cubin::Resources;

/// `crates/cuda/cubins/cubins.lock`: what was made for each architecture. Each says for itself what it was made from, since they
/// need not be compiled together.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Lock(pub(crate) BTreeMap<String, Made>);

/// The cubins of one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Made {
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// By row.
    pub(crate) cubins: BTreeMap<String, Entry>,
}

/// What cubins are made from, and with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// SHA-256 of the sources of the kernels that are made of tiles, and of their rows in the table.
    pub(crate) source: String,
    /// SHA-256 of the kernels that are PTX.
    pub(crate) ptx: String,
    /// Version of the crate that the kernels are written with.
    pub(crate) cutile: String,
    /// Version of the assemblers.
    pub(crate) tileiras: String,
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

    /// What differs in `made` from what is here; of architectures that were not made nothing is said.
    pub(crate) fn differences(&self, made: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (arch, made) in &made.0 {
            let Some(committed) = self.0.get(arch) else {
                differences.push(format!("{arch} is not committed"));
                continue;
            };
            let (one, other) = (&committed.origin, &made.origin);
            let heads = [
                ("source", &one.source, &other.source),
                ("ptx", &one.ptx, &other.ptx),
                ("cutile", &one.cutile, &other.cutile),
                ("tileiras", &one.tileiras, &other.tileiras),
            ];
            let unlike = heads.into_iter().filter(|(_, committed, made)| committed != made);
            differences.extend(
                unlike.map(|(what, committed, made)| format!("{what} of {arch}: committed {committed}, made {made}")),
            );
            for (row, entry) in &made.cubins {
                match committed.cubins.get(row) {
                    None => differences.push(format!("{row} for {arch} is not committed")),
                    Some(known) if known != entry => differences.push(format!("{row} for {arch} differs")),
                    Some(_) => {}
                }
            }
        }
        differences
    }

    /// Writes the file.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = format!("# Written by `cargo xtask kernels`.\n{}", toml::to_string(self)?);
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(source: &str, bytes: usize) -> Made {
        let resources = Resources { registers: 64, stack_frame: 0 };
        let entry = Entry { sha256: "1f".to_owned(), bytes, resources };
        let [source, ptx, cutile, tileiras] = [source, "p", "0.5.0", "13.5"].map(str::to_owned);
        Made { origin: Origin { source, ptx, cutile, tileiras }, cubins: [("prep".to_owned(), entry)].into() }
    }

    fn lock(archs: &[(&str, Made)]) -> Lock {
        Lock(archs.iter().map(|(arch, made)| ((*arch).to_owned(), made.clone())).collect())
    }

    #[test]
    fn each_architecture_is_held_to_its_own_sources() {
        let committed = lock(&[("sm_80", made("old", 7)), ("sm_90", made("new", 7))]);
        assert_eq!(committed.differences(&lock(&[("sm_90", made("new", 7))])), Vec::<String>::new());
        let stale = committed.differences(&lock(&[("sm_80", made("new", 7)), ("sm_90", made("new", 7))]));
        assert_eq!(stale, ["source of sm_80: committed old, made new"]);
        assert_eq!(committed.differences(&lock(&[("sm_90", made("new", 8))])), ["prep for sm_90 differs"]);
        assert_eq!(committed.differences(&lock(&[("sm_89", made("new", 7))])), ["sm_89 is not committed"]);
    }

    #[test]
    fn a_lock_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (path, one) = (folder.path().join("cubins.lock"), lock(&[("sm_90", made("new", 7))]));
        assert_eq!(Lock::read(&path).expect("no file is no error"), Lock::default());
        one.write(&path).expect("the folder is writable");
        assert_eq!(Lock::read(&path).expect("readable"), one);
    }
}

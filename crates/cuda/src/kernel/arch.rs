//! Architectures that cubins are made for.

use std::fmt;

use serde::Serialize;

/// GPU architectures that cubins are made for. A cubin runs on later minor revisions of its major version too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "&'static str")]
pub enum Arch {
    /// A100.
    Sm80,
    /// RTX 30, A10, A40.
    Sm86,
    /// RTX 40, L4, L40.
    Sm89,
    /// H100, H200.
    Sm90,
    /// B200.
    Sm100,
    /// B300.
    Sm103,
    /// RTX 50.
    Sm120,
}

impl Arch {
    /// All of them, oldest first.
    pub const ALL: [Self; 7] = [Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm90, Self::Sm100, Self::Sm103, Self::Sm120];

    /// Compute capability.
    pub fn capability(self) -> (u32, u32) {
        match self {
            Self::Sm80 => (8, 0),
            Self::Sm86 => (8, 6),
            Self::Sm89 => (8, 9),
            Self::Sm90 => (9, 0),
            Self::Sm100 => (10, 0),
            Self::Sm103 => (10, 3),
            Self::Sm120 => (12, 0),
        }
    }

    /// The architecture whose cubins a device of this compute capability runs, if any.
    pub fn for_capability(major: u32, minor: u32) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|arch| {
            let (has_major, has_minor) = arch.capability();
            has_major == major && has_minor <= minor
        })
    }

    /// `sm_90`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm86 => "sm_86",
            Self::Sm89 => "sm_89",
            Self::Sm90 => "sm_90",
            Self::Sm100 => "sm_100",
            Self::Sm103 => "sm_103",
            Self::Sm120 => "sm_120",
        }
    }

    /// Whether tiles of 128 x 256 and clusters of two thread blocks fit: GPUs with 228 KiB of shared memory.
    pub fn has_large_tiles(self) -> bool {
        matches!(self, Self::Sm90 | Self::Sm100 | Self::Sm103)
    }
}

impl From<Arch> for &'static str {
    fn from(arch: Arch) -> Self {
        arch.name()
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

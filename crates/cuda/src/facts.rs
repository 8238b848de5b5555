//! What a plan needs to know of a GPU. Pure: plans for GPUs that are not there are made from the same numbers.

use serde::Serialize;

use crate::kernel::Arch;

/// A GPU, as far as plans depend on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// The driver's name for it.
    pub name: String,
    /// Whose cubins it runs.
    pub arch: Arch,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Second-level cache, in bytes.
    pub l2_bytes: u64,
}

impl Facts {
    /// Names that [`Facts::named`] knows.
    pub const NAMES: [&'static str; 7] = ["a100", "h100", "h200", "b200", "l4", "rtx4090", "rtx5090"];

    /// A well-known GPU by its short name, from the vendor's data sheets (H200: as read from the device).
    pub fn named(name: &str) -> Option<Self> {
        let (full, arch, multiprocessors, l2_mib) = match name {
            "a100" => ("NVIDIA A100", Arch::Sm80, 108, 40),
            "h100" => ("NVIDIA H100", Arch::Sm90, 132, 50),
            "h200" => ("NVIDIA H200", Arch::Sm90, 132, 60),
            "b200" => ("NVIDIA B200", Arch::Sm100, 148, 126),
            "l4" => ("NVIDIA L4", Arch::Sm89, 58, 48),
            "rtx4090" => ("NVIDIA GeForce RTX 4090", Arch::Sm89, 128, 72),
            "rtx5090" => ("NVIDIA GeForce RTX 5090", Arch::Sm120, 170, 96),
            _ => return None,
        };
        Some(Self { name: full.to_owned(), arch, multiprocessors, l2_bytes: l2_mib << 20 })
    }
}

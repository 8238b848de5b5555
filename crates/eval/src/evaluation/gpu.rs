//! The GPU that computed: what it is, and what it said of itself while it did.

use serde::{Deserialize, Serialize};

/// One GPU and the software under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's name for it.
    pub name: String,
    /// `sha256:…` of its UUID: the same for the same board, and no serial number.
    pub board: String,
    /// Version of the driver, where the management library says.
    pub driver: Option<String>,
    /// CUDA version that the driver implements.
    pub cuda: String,
    /// Compute capability.
    pub capability: String,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Second-level cache.
    pub l2_bytes: u64,
    /// Device memory, where the management library says.
    pub memory_bytes: Option<u64>,
    /// Highest clock of the multiprocessors, in MHz.
    pub highest_sm_mhz: Option<u32>,
    /// Highest clock of the memory, in MHz.
    pub highest_memory_mhz: Option<u32>,
    /// Power that it may draw, in mW.
    pub power_limit_mw: Option<u32>,
    /// Power that its maker allows, in mW.
    pub default_power_limit_mw: Option<u32>,
    /// Whether the driver stays loaded while nobody uses the GPU.
    pub persistence: Option<bool>,
    /// `default`, `exclusive-process`, …
    pub compute_mode: Option<String>,
    /// Whether memory errors are corrected.
    pub ecc: Option<bool>,
}

/// What a GPU said of itself at one moment. What it did not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuReading {
    /// Clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory_mhz: Option<u32>,
    /// Power drawn, in mW.
    pub power_mw: Option<u32>,
    /// Temperature of the chip, in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Why its clocks are below the highest, in the words of [`GpuReading::HOLDS_BACK`] and others; `None` where it does not
    /// say.
    pub clock_reasons: Option<Vec<String>>,
}

impl GpuReading {
    /// Reasons that make a run no record: something outside the implementation slowed the GPU. Being idle, or a clock that
    /// somebody set, are none.
    pub const HOLDS_BACK: [&'static str; 5] =
        ["power-cap", "thermal-slowdown", "hardware-slowdown", "hardware-thermal-slowdown", "power-brake"];

    /// Whether one of [`GpuReading::HOLDS_BACK`] was named.
    pub fn held_back(&self) -> bool {
        let reasons = self.clock_reasons.iter().flatten();
        reasons.into_iter().any(|reason| Self::HOLDS_BACK.contains(&reason.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_and_power_hold_back_and_idleness_does_not() {
        let reading =
            |reason: &str| GpuReading { clock_reasons: Some(vec![reason.to_owned()]), ..GpuReading::default() };
        assert!(GpuReading::HOLDS_BACK.iter().all(|reason| reading(reason).held_back()));
        assert!(!reading("idle").held_back() && !reading("clocks-set").held_back());
        assert!(!GpuReading::default().held_back());
    }
}

//! What a GPU says of itself, through the driver's management library (NVML), which is loaded at run time.

use std::ffi::OsStr;

use kernelproof_eval::evaluation::{Gpu as Facts, GpuReading};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, ComputeMode, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use qkv_rope_cuda::{Gpu, driver_version};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, driver};

const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// Reads one GPU. Where the library is missing, all readings are empty.
#[derive(Debug)]
pub struct Monitor {
    library: Option<Nvml>,
    uuid: String,
    facts: Facts,
}

impl Monitor {
    /// A monitor of `gpu`.
    ///
    /// # Errors
    /// When the driver does not say what the GPU is. A missing management library is no error.
    pub fn new(gpu: &Gpu) -> Result<Self, Error> {
        let uuid = gpu.context().uuid().map_err(driver("reading the device's UUID"))?;
        let bytes: [u8; 16] = uuid.bytes.map(|byte| byte as u8);
        let uuid = dashed(bytes);
        let library = NAMES.iter().find_map(|name| Nvml::builder().lib_path(OsStr::new(name)).init().ok());
        let (major, minor) = gpu.context().compute_capability().map_err(driver("reading its capability"))?;
        let facts = gpu.facts();
        let mut facts = Facts {
            name: facts.name.clone(),
            board: digest(bytes),
            driver: library.as_ref().and_then(|library| library.sys_driver_version().ok()),
            cuda: driver_version()?,
            capability: format!("{major}.{minor}"),
            multiprocessors: facts.multiprocessors,
            l2_bytes: facts.l2_bytes,
            memory_bytes: None,
            highest_sm_mhz: None,
            highest_memory_mhz: None,
            power_limit_mw: None,
            default_power_limit_mw: None,
            persistence: None,
            compute_mode: None,
            ecc: None,
        };
        if let Some(device) = library.as_ref().and_then(|library| library.device_by_uuid(uuid.as_str()).ok()) {
            complete(&mut facts, &device);
        }
        Ok(Self { library, uuid, facts })
    }

    /// What does not change.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What changes, now.
    pub fn read(&self) -> GpuReading {
        let device = self.library.as_ref().and_then(|library| library.device_by_uuid(self.uuid.as_str()).ok());
        device.map_or_else(GpuReading::default, |device| GpuReading {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            memory_mhz: device.clock_info(Clock::Memory).ok(),
            power_mw: device.power_usage().ok(),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            clock_reasons: device.current_throttle_reasons().ok().map(names),
        })
    }
}

fn complete(facts: &mut Facts, device: &Device<'_>) {
    facts.memory_bytes = device.memory_info().ok().map(|memory| memory.total);
    facts.highest_sm_mhz = device.max_clock_info(Clock::SM).ok();
    facts.highest_memory_mhz = device.max_clock_info(Clock::Memory).ok();
    facts.power_limit_mw = device.enforced_power_limit().ok();
    facts.default_power_limit_mw = device.power_management_limit_default().ok();
    facts.persistence = device.is_in_persistent_mode().ok();
    facts.compute_mode = device.compute_mode().ok().map(|mode| {
        let name = match mode {
            ComputeMode::Default => "default",
            ComputeMode::ExclusiveThread => "exclusive-thread",
            ComputeMode::Prohibited => "prohibited",
            ComputeMode::ExclusiveProcess => "exclusive-process",
        };
        name.to_owned()
    });
    facts.ecc = device.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled);
}

fn names(reasons: ThrottleReasons) -> Vec<String> {
    let all = [
        (ThrottleReasons::GPU_IDLE, "idle"),
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "clocks-set"),
        (ThrottleReasons::SW_POWER_CAP, "power-cap"),
        (ThrottleReasons::HW_SLOWDOWN, "hardware-slowdown"),
        (ThrottleReasons::SYNC_BOOST, "sync-boost"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal-slowdown"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hardware-thermal-slowdown"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power-brake"),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, "display-clock"),
    ];
    all.into_iter().filter(|&(reason, _)| reasons.contains(reason)).map(|(_, name)| name.to_owned()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The UUID as the management library writes it.
fn dashed(bytes: [u8; 16]) -> String {
    let text = hex(&bytes);
    format!("GPU-{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// The same board gives the same digest, and nobody reads a serial number from it.
fn digest(bytes: [u8; 16]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_library_does() {
        let bytes = std::array::from_fn(|index| index as u8);
        assert_eq!(dashed(bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(digest(bytes).len(), "sha256:".len() + 64);
    }

    #[test]
    fn every_reason_that_holds_back_has_its_name() {
        let all = names(ThrottleReasons::all());
        assert!(GpuReading::HOLDS_BACK.iter().all(|reason| all.contains(&(*reason).to_owned())), "{all:?}");
        assert_eq!(names(ThrottleReasons::GPU_IDLE), ["idle"]);
    }
}

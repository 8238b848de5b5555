//! Facts about this machine and this build, kept beside every measurement.

use qkv_rope_op::{Dims, Problem, Tensor};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Assumed when the operating system does not say: more than most desktop parts have.
const FALLBACK_LAST_LEVEL_BYTES: usize = 32 << 20;

/// The machine that a measurement ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's own name.
    pub(crate) cpu: String,
    /// Hardware threads that this process may use.
    pub(crate) threads_available: usize,
    /// Fastest instruction set that the CPU backend found.
    pub(crate) isa: String,
    /// Last-level cache, as the operating system says or 32 MiB.
    pub(crate) last_level_cache_bytes: usize,
    /// Physical memory.
    pub(crate) memory_bytes: u64,
    /// Operating system and its version.
    pub(crate) os: String,
    /// Kernel version.
    pub(crate) kernel: String,
}

/// The build that took a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Build {
    /// Version of this program.
    pub(crate) version: String,
    /// Commit that it was built from, or `unknown`.
    pub(crate) commit: String,
    /// Compiler.
    pub(crate) rustc: String,
    /// `release` or `debug`.
    pub(crate) profile: String,
    /// Processor architecture and operating system built for.
    pub(crate) target: String,
}

impl Machine {
    /// Asks the operating system.
    pub(crate) fn here() -> Self {
        let mut system = sysinfo::System::new();
        system.refresh_cpu_all();
        system.refresh_memory();
        let unknown = || "unknown".to_owned();
        Self {
            cpu: system.cpus().first().map_or_else(unknown, |cpu| cpu.brand().trim().to_owned()),
            threads_available: threads_available(),
            isa: qkv_rope_cpu::Isa::detect().to_string(),
            last_level_cache_bytes: last_level_cache_bytes().unwrap_or(FALLBACK_LAST_LEVEL_BYTES),
            memory_bytes: system.total_memory(),
            os: sysinfo::System::long_os_version().unwrap_or_else(unknown),
            kernel: sysinfo::System::kernel_version().unwrap_or_else(unknown),
        }
    }
}

impl Build {
    /// This program.
    pub(crate) fn this() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("KERNELPROOF_COMMIT").to_owned(),
            rustc: env!("KERNELPROOF_RUSTC").to_owned(),
            profile: env!("KERNELPROOF_PROFILE").to_owned(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        }
    }
}

/// Hardware threads that this process may use; 1 when the operating system does not say.
pub(crate) fn threads_available() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Bytes of all inputs.
pub(crate) fn input_bytes(dims: Dims) -> u128 {
    Tensor::INPUTS.into_iter().map(|tensor| tensor_bytes(dims, tensor)).sum()
}

/// Bytes of the outputs that a problem asks for.
pub(crate) fn output_bytes(problem: &Problem) -> u128 {
    let wanted = Tensor::OUTPUTS.into_iter().filter(|&tensor| problem.outputs.get(tensor).is_some());
    wanted.map(|tensor| tensor_bytes(problem.dims, tensor)).sum()
}

fn tensor_bytes(dims: Dims, tensor: Tensor) -> u128 {
    let elems: u128 = dims.shape(tensor).iter().map(|&extent| extent as u128).product();
    elems * size_of::<f32>() as u128
}

/// Refuses what this machine cannot hold, before the operating system ends the process for trying.
///
/// # Errors
/// When `bytes` are more than this machine's memory.
pub(crate) fn require_memory(what: &str, bytes: u128) -> Result<(), Failure> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    let found = system.total_memory();
    if bytes > u128::from(found) {
        return Err(Failure::unavailable(format!("{what} need {bytes} bytes, this machine has {found}")));
    }
    Ok(())
}

/// The largest cache of the first processor, from Linux's sysfs.
fn last_level_cache_bytes() -> Option<usize> {
    let caches = std::fs::read_dir("/sys/devices/system/cpu/cpu0/cache").ok()?;
    let sizes = caches.filter_map(|cache| std::fs::read_to_string(cache.ok()?.path().join("size")).ok());
    sizes.filter_map(|size| parse_size(size.trim())).max()
}

/// `32768K` in bytes.
fn parse_size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
impl Machine {
    /// A machine that does not exist, for tests of what reads records.
    pub(crate) fn example() -> Self {
        Self {
            cpu: "Example CPU".to_owned(),
            threads_available: 2,
            isa: "avx512".to_owned(),
            last_level_cache_bytes: 32 << 20,
            memory_bytes: 16 << 30,
            os: "Linux".to_owned(),
            kernel: "6.1".to_owned(),
        }
    }
}

#[cfg(test)]
impl Build {
    /// A build that does not exist, for tests of what reads records.
    pub(crate) fn example() -> Self {
        let text = str::to_owned;
        let (version, commit, rustc) = (text("0.1.0"), text("0123456789ab"), text("rustc 1.95.0"));
        Self { version, commit, rustc, profile: text("release"), target: text("x86_64-linux") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_are_read_with_their_unit() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("1M"), Some(1 << 20));
        assert_eq!(parse_size("12Q"), None);
        assert_eq!(parse_size(""), None);
    }

    #[test]
    fn this_machine_has_a_processor() {
        let machine = Machine::here();
        assert!(machine.threads_available >= 1 && machine.memory_bytes > 0);
    }
}

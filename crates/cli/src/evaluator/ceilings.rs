//! What the device can do at most: as measured here and now, and as its maker says.

use std::num::NonZeroUsize;

use kernelproof_eval::bandwidth::Buffers;
use kernelproof_eval::evaluation::{Ceiling, Origin, Resource};
use kernelproof_eval::measure::{Contestant as _, MonotonicClock};
use kernelproof_gauge::{Stopwatch, TimerChoice};
use qkv_rope_cpu::Isa;
use qkv_rope_op::Precision;

use super::Resources;
use crate::device::unavailable;
use crate::machine::Machine;
use crate::peak::PeakLoop;

/// Samples of each figure; the best counts, because a ceiling is not a typical value.
const SAMPLES: usize = 7;

/// Buffers are this many times the last-level cache, so that at most an eighth of a pass is served from it.
const CACHES: usize = 8;

/// All ceilings that are known of where something runs.
///
/// # Errors
/// When the device is not there, or cannot be measured.
pub(crate) fn of(resources: &Resources) -> anyhow::Result<Vec<Ceiling>> {
    let (name, mut known) = match resources.gpu() {
        None => (Machine::here().cpu, measured(resources.threads)?),
        Some(ordinal) => {
            // By events: a ceiling is one long activity, and needs no records.
            let stopwatch = Stopwatch::open(ordinal, TimerChoice::Events).map_err(unavailable)?;
            let measured = kernelproof_gauge::measured(&stopwatch).map_err(unavailable)?;
            (stopwatch.gpu().facts().name.clone(), measured)
        }
    };
    known.extend(stated(&name, resources.threads));
    Ok(known)
}

/// Ceilings of this machine's processor with `threads` threads: a loop of multiply-adds on registers, reading a buffer, and
/// copying one.
///
/// # Errors
/// When threads cannot be started.
pub(crate) fn measured(threads: NonZeroUsize) -> anyhow::Result<Vec<Ceiling>> {
    let clock = MonotonicClock::default();
    let isa = Isa::detect();
    let mut peak = PeakLoop::new(isa, threads, &clock)?;
    let mut fma = 0_f64;
    for _ in 0..SAMPLES {
        let time_ns = peak.run_once(&clock).map_err(|reason| anyhow::anyhow!(reason))?;
        fma = fma.max(peak.flops() as f64 / time_ns.max(1) as f64);
    }
    let mut buffers = Buffers::new(CACHES * Machine::here().last_level_cache_bytes, threads.get());
    let best = |rates: &mut dyn FnMut() -> f64| (0..SAMPLES).map(|_| rates()).fold(0.0, f64::max);
    let read = best(&mut || buffers.read(&clock).bytes_per_ns());
    let copy = best(&mut || buffers.copy(&clock).bytes_per_ns());
    let ceiling = |resource, precision, per_ns, source: String| Ceiling {
        resource,
        origin: Origin::Measured,
        precision,
        per_ns,
        source: format!("{source}, {threads} threads, best of {SAMPLES}"),
    };
    Ok(vec![
        ceiling(Resource::Arithmetic, Some(Precision::Ieee), fma, format!("multiply-adds on registers, {isa}")),
        ceiling(Resource::Bandwidth, None, read, "reading a buffer".to_owned()),
        ceiling(Resource::Bandwidth, None, copy, "copying a buffer, bytes both ways".to_owned()),
    ])
}

/// Raises ceilings to what the same loop reached at another moment.
pub(crate) fn raise(ceilings: &mut [Ceiling], again: &[Ceiling]) {
    for ceiling in ceilings {
        let same = again.iter().filter(|other| other.origin == ceiling.origin && other.source == ceiling.source);
        ceiling.per_ns = same.map(|other| other.per_ns).fold(ceiling.per_ns, f64::max);
    }
}

/// A device that its maker describes. Hypervisors often hide which one it is; then there is no such row.
struct Datasheet {
    /// What the operating system calls it.
    name: &'static str,
    /// f32 operations per ns: of one core at its highest clock, or of the whole device.
    ieee_per_ns: f64,
    /// Whether that is of one core.
    per_core: bool,
    /// One 11-bit term per operand on tensor cores, of the whole device.
    fast_per_ns: Option<f64>,
    bytes_per_ns: f64,
    source: &'static str,
}

const DATASHEETS: [Datasheet; 2] = [
    // 2 units of 256 bits with fused multiply-add, 3.7 GHz; 12 channels of DDR5-4800.
    Datasheet {
        name: "AMD EPYC 9654",
        ieee_per_ns: 32.0 * 3.7,
        per_core: true,
        fast_per_ns: None,
        bytes_per_ns: 460.8,
        source: "AMD EPYC 9654 product page: 3.7 GHz boost, 460.8 GB/s per socket; 32 flop a cycle and core (Zen 4)",
    },
    Datasheet {
        name: "NVIDIA H200",
        ieee_per_ns: 67_000.0,
        per_core: false,
        fast_per_ns: Some(989_000.0),
        bytes_per_ns: 4800.0,
        source: "NVIDIA H200 datasheet (SXM, dense): 67 TFLOP/s FP32, 989 TFLOP/s FP16, 4.8 TB/s",
    },
];

/// Ceilings that the maker of `device` states, for `threads` cores where it states them per core.
pub(crate) fn stated(device: &str, threads: NonZeroUsize) -> Vec<Ceiling> {
    let Some(sheet) = DATASHEETS.iter().find(|sheet| device.starts_with(sheet.name)) else { return Vec::new() };
    let ceiling = |resource, precision, per_ns| Ceiling {
        resource,
        origin: Origin::Datasheet,
        precision,
        per_ns,
        source: sheet.source.to_owned(),
    };
    let cores = if sheet.per_core { threads.get() as f64 } else { 1.0 };
    let mut ceilings = vec![
        ceiling(Resource::Arithmetic, Some(Precision::Ieee), sheet.ieee_per_ns * cores),
        ceiling(Resource::Bandwidth, None, sheet.bytes_per_ns),
    ];
    if let Some(fast) = sheet.fast_per_ns {
        ceilings.push(ceiling(Resource::Arithmetic, Some(Precision::Fast), fast));
        // Three products for one.
        ceilings.push(ceiling(Resource::Arithmetic, Some(Precision::Split), fast / 3.0));
    }
    ceilings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasheets_are_found_by_the_name_that_the_system_gives() {
        let two = NonZeroUsize::new(2).expect("not zero");
        let epyc = stated("AMD EPYC 9654 96-Core Processor", two);
        assert!((epyc[0].per_ns - 236.8).abs() < 1e-9);
        let fast = stated("NVIDIA H200", two).into_iter().find(|ceiling| ceiling.precision == Some(Precision::Fast));
        assert_eq!(fast.map(|ceiling| ceiling.per_ns), Some(989_000.0));
        assert_eq!(stated("AMD EPYC", two), Vec::new());
    }

    #[test]
    fn measured_ceilings_are_positive() {
        let ceilings = measured(NonZeroUsize::MIN).expect("one thread starts");
        assert!(ceilings.iter().all(|ceiling| ceiling.per_ns > 0.0 && ceiling.origin == Origin::Measured));
    }

    #[test]
    fn ceilings_are_raised_and_never_lowered() {
        let mut stated = stated("NVIDIA H200", NonZeroUsize::MIN);
        let again: Vec<Ceiling> = stated
            .iter()
            .enumerate()
            .map(|(index, ceiling)| Ceiling { per_ns: ceiling.per_ns * [2.0, 0.5][index % 2], ..ceiling.clone() })
            .collect();
        let (arithmetic, bandwidth) = (stated[0].clone(), stated[1].clone());
        raise(&mut stated[..1], &again[..1]);
        raise(&mut stated[1..2], &again[1..2]);
        assert_eq!((stated[0].per_ns, stated[1].per_ns), (2.0 * arithmetic.per_ns, bandwidth.per_ns));
    }
}

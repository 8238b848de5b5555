//! What an evaluation says of its rules and of the machine.

use std::collections::BTreeMap;

use kernelproof_eval::evaluation::{Environment, Evaluator, ProtocolFacts};
use kernelproof_eval::judge::{Layout, Rules};
use kernelproof_gauge::Monitor;
use sha2::{Digest as _, Sha256};

use super::{Candidate, Settings, score};
use crate::machine::{Build, Machine};

pub(super) fn protocol(settings: &Settings, candidate: &Candidate, flush_bytes: usize) -> ProtocolFacts {
    let Rules { check_rounds, warmup_calls, timed_calls, quick, public_seed, secret_seed } = settings.rules;
    let handshake_ns = candidate.handshake_ns();
    ProtocolFacts {
        version: Rules::VERSION.to_owned(),
        quick,
        timer: candidate.timer().to_owned(),
        check_rounds,
        warmup_calls,
        timed_calls,
        statistic: "median".to_owned(),
        flush_bytes,
        offset_bytes: Layout::OFFSET_BYTES,
        public_seed,
        secret_seed,
        call_limit_ns: u64::try_from(settings.limits.call_limit.as_nanos()).unwrap_or(u64::MAX),
        memory_limit_bytes: (!handshake_ns.is_empty()).then_some(settings.limits.memory_bytes),
        handshake_ns,
        evaluator: evaluator(if settings.limits.gpu().is_some() { "cuda" } else { "cpu" }),
    }
}

fn evaluator(device: &str) -> Evaluator {
    let Build { version, commit, rustc, profile, .. } = Build::this();
    Evaluator { version, commit, rustc, profile, mutation_score: score::last(device) }
}

pub(super) fn environment(machine: &Machine, monitor: Option<&Monitor>) -> Environment {
    let gpu = monitor.map(|monitor| monitor.facts().clone());
    Environment {
        device: gpu.as_ref().map_or_else(|| machine.cpu.clone(), |gpu| gpu.name.clone()),
        cpu: machine.cpu.clone(),
        threads_available: machine.threads_available,
        last_level_cache_bytes: machine.last_level_cache_bytes,
        memory_bytes: machine.memory_bytes,
        os: machine.os.clone(),
        kernel: machine.kernel.clone(),
        target: Build::this().target,
        clock_policy: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        virtualisation: hypervisor(),
        gpu,
    }
}

fn line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The maker of the virtual machine, as its firmware says; `yes` where only the processor says that there is one.
fn hypervisor() -> Option<String> {
    let flags = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let virtual_machine = flags.lines().any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    virtual_machine.then(|| line("/sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "yes".to_owned()))
}

/// Digest of the program that is running.
pub(super) fn own_binary() -> BTreeMap<String, String> {
    let bytes = std::env::current_exe().and_then(std::fs::read);
    let digest = bytes.map(|bytes| Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    digest.map(|digest| ("kernelproof".to_owned(), format!("sha256:{digest}"))).into_iter().collect()
}

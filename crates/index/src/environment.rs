//! Environments: the machine and the software that a run met.

use std::collections::BTreeMap;

use kernelproof_eval::evaluation::{self, Evaluation};
use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::manifest::{Invalid, Spec};

/// Where a run took place. Nothing in it names the machine's owner, host or folders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// What computed, by its own name.
    pub device: String,
    /// The processor's own name.
    pub cpu: String,
    /// Threads that the implementation was given.
    pub threads: u64,
    /// Hardware threads that the process could use.
    pub threads_available: u64,
    /// Last-level cache of the processor.
    pub last_level_cache_bytes: u64,
    /// Physical memory.
    pub memory_bytes: u64,
    /// Operating system and its version.
    pub os: String,
    /// Version of its kernel.
    pub kernel: String,
    /// Architecture and operating system that the evaluator was built for.
    pub target: String,
    /// Versions of what the implementation ran inside, by name.
    pub software: BTreeMap<String, String>,
    /// What was done about clocks and power, where the operating system says.
    pub clock_policy: Option<String>,
    /// Hypervisor or container, where one is known.
    pub virtualisation: Option<String>,
    /// The GPU, where one computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<evaluation::Gpu>,
}

impl From<&Evaluation> for Environment {
    fn from(evaluation: &Evaluation) -> Self {
        let evaluation::Environment { device, cpu, os, kernel, target, .. } = evaluation.environment.clone();
        let facts = &evaluation.environment;
        // No usize is wider than 64 bits.
        let wide = |value: usize| value as u64;
        Self {
            device,
            cpu,
            threads: wide(evaluation.implementation.threads),
            threads_available: wide(facts.threads_available),
            last_level_cache_bytes: wide(facts.last_level_cache_bytes),
            memory_bytes: facts.memory_bytes,
            os,
            kernel,
            target,
            software: evaluation.implementation.runtime.clone(),
            clock_policy: facts.clock_policy.clone(),
            virtualisation: facts.virtualisation.clone(),
            gpu: facts.gpu.clone(),
        }
    }
}

impl Spec for Environment {
    const KIND: &'static str = "Environment";

    fn validate(&self) -> Result<(), Invalid> {
        let Self { device, cpu, os, kernel, target, gpu, .. } = self;
        if let Some(gpu) = gpu {
            let is_digest = gpu.board.parse::<Digest>().is_ok();
            Invalid::unless(is_digest, "gpu.board", format!("{:?}", gpu.board), "a digest")?;
        }
        let texts = [("device", device), ("cpu", cpu), ("os", os), ("kernel", kernel), ("target", target)];
        texts.into_iter().try_for_each(|(field, text)| Invalid::unless_text(field, text))?;
        for (field, threads) in [("threads", self.threads), ("threads_available", self.threads_available)] {
            Invalid::unless(threads > 0, field, threads, "at least 1")?;
        }
        Ok(())
    }
}

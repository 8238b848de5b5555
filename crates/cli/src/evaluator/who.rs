//! From what the user names to something that can be judged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kernelproof_eval::evaluation::{Implementation, Source};
use kernelproof_eval::judge::{InProcess, Subject};
use qkv_rope_cpu::{CpuBackend, Isa};
use qkv_rope_op::Backend as _;

use super::{Resources, Settings};
use crate::candidate::Solution;
#[cfg(target_os = "linux")]
use crate::candidate::{External, Limits};
use crate::device;
#[cfg(not(target_os = "linux"))]
use crate::failure::Failure;
use crate::machine::Build;

/// An implementation by name or by file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// This program's CPU backend.
    Cpu(Isa),
    /// A solution file.
    Solution(PathBuf),
    /// The contents of one.
    Text(Vec<u8>),
}

/// Reads `cpu-avx2`, or the name of a file that ends in `.json`.
pub(crate) fn parse_who(text: &str) -> Result<Who, String> {
    let isa = text.strip_prefix("cpu-").and_then(|isa| isa.parse::<Isa>().ok());
    match isa {
        Some(isa) => Ok(Who::Cpu(isa)),
        None if text.ends_with(".json") => Ok(Who::Solution(text.into())),
        None => Err("expected cpu-avx512, cpu-avx2, cpu-portable or a solution's file, FILE.json".to_owned()),
    }
}

/// An implementation ready to be judged.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// Runs in this process.
    Cpu(CpuBackend),
    /// Runs in a process of its own.
    #[cfg(target_os = "linux")]
    External(Box<External>),
}

impl Candidate {
    /// Opens the implementation.
    ///
    /// # Errors
    /// When the machine lacks what it needs, or the file is no solution.
    pub(crate) fn open(who: &Who, resources: &Resources) -> anyhow::Result<Self> {
        match who {
            Who::Cpu(isa) => Ok(Self::Cpu(device::cpu(Some(*isa), resources.threads)?)),
            Who::Solution(path) => Self::solution(Solution::read(path)?, resources),
            Who::Text(text) => Self::solution(Solution::parse(text)?, resources),
        }
    }

    /// Starts the process of a solution.
    ///
    /// # Errors
    /// When there is no Python or no PyTorch.
    #[cfg(target_os = "linux")]
    pub(crate) fn solution(solution: Solution, resources: &Resources) -> anyhow::Result<Self> {
        let limits = Limits {
            python: resources.python.clone(),
            threads: resources.threads,
            call: resources.call_limit,
            memory_bytes: resources.memory_bytes,
        };
        Ok(Self::External(Box::new(External::start(solution, limits)?)))
    }

    /// Solutions share memory with this process in a way that only Linux has.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn solution(_: Solution, _: &Resources) -> anyhow::Result<Self> {
        Err(Failure::unavailable("solutions run on Linux only").into())
    }

    /// What the judge sees.
    pub(crate) fn subject(&mut self) -> Box<dyn Subject + '_> {
        match self {
            Self::Cpu(backend) => Box::new(InProcess::new(backend)),
            #[cfg(target_os = "linux")]
            Self::External(external) => Box::new(&mut **external),
        }
    }

    /// The file that it came in, where it did.
    pub(crate) fn solution_file(&self) -> Option<Vec<u8>> {
        match self {
            Self::Cpu(_) => None,
            #[cfg(target_os = "linux")]
            Self::External(external) => Some(external.solution().file.clone()),
        }
    }

    /// Who reads the clock.
    pub(crate) fn timer(&self) -> &'static str {
        match self {
            Self::Cpu(_) => "monotonic clock around the call, in one process",
            #[cfg(target_os = "linux")]
            Self::External(_) => "monotonic clock of the parent, from letting the stopped worker go to its answer",
        }
    }

    /// Times of calls that do nothing, where the clock is in another process.
    pub(crate) fn handshake_ns(&self) -> Vec<u64> {
        match self {
            Self::Cpu(_) => Vec::new(),
            #[cfg(target_os = "linux")]
            Self::External(external) => external.handshake_ns().to_vec(),
        }
    }

    /// What is known of it.
    pub(crate) fn implementation(&self, settings: &Settings) -> Implementation {
        let (precision, threads) = (settings.mode.precision(), settings.limits.threads.get());
        let blank = Implementation {
            name: String::new(),
            author: None,
            languages: Vec::new(),
            source: Source::default(),
            licence: None,
            install: None,
            entry_point: String::new(),
            device: "cpu".to_owned(),
            precision,
            threads,
            build_flags: Vec::new(),
            binaries: BTreeMap::new(),
            runtime: BTreeMap::new(),
        };
        match self {
            Self::Cpu(backend) => built_in(backend, blank),
            #[cfg(target_os = "linux")]
            Self::External(external) => from_file(external, blank),
        }
    }
}

fn built_in(backend: &CpuBackend, blank: Implementation) -> Implementation {
    let build = Build::this();
    let owned = str::to_owned;
    Implementation {
        name: backend.name(),
        author: Some(owned(env!("CARGO_PKG_AUTHORS"))),
        languages: vec![owned("rust")],
        source: Source { commit: Some(build.commit), ..Source::default() },
        licence: Some(owned(env!("CARGO_PKG_LICENSE"))),
        install: Some(owned("cargo build --release --bin kernelproof")),
        entry_point: owned("qkv_rope_cpu::CpuBackend"),
        build_flags: vec![format!("profile {}", build.profile)],
        binaries: super::facts::own_binary(),
        runtime: [(owned("rustc"), build.rustc)].into(),
        ..blank
    }
}

#[cfg(target_os = "linux")]
fn from_file(external: &External, blank: Implementation) -> Implementation {
    let solution = external.solution();
    let options = &solution.spec.compile_options;
    Implementation {
        name: solution.name.clone(),
        author: Some(solution.author.clone()),
        languages: solution.spec.languages.clone(),
        source: Source { digest: Some(solution.digest.clone()), ..Source::default() },
        install: (!solution.spec.dependencies.is_empty()).then(|| solution.spec.dependencies.join(", ")),
        entry_point: solution.spec.entry_point.clone(),
        build_flags: options.cflags.iter().chain(&options.cuda_cflags).chain(&options.ld_flags).cloned().collect(),
        runtime: external.runtime().clone(),
        ..blank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_files_are_told_apart() {
        assert_eq!(parse_who("cpu-avx2"), Ok(Who::Cpu(Isa::Avx2)));
        assert_eq!(parse_who("cpu-portable"), Ok(Who::Cpu(Isa::Portable)));
        assert_eq!(parse_who("a/b.json"), Ok(Who::Solution("a/b.json".into())));
        assert!(parse_who("cpu-neon").is_err() && parse_who("kernel.py").is_err());
    }
}

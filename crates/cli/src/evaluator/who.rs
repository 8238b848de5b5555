//! From what the user names to something that can be judged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use kernelproof_eval::evaluation::{Implementation, Source};
use kernelproof_eval::judge::{InProcess, Subject};
use kernelproof_gauge::{CudaSubject, Monitor, Stopwatch, TimerChoice};
use qkv_rope_cpu::{CpuBackend, Isa};
use qkv_rope_op::Backend as _;

use super::{Resources, Settings};
use crate::args::{Device, PrecisionArg};
use crate::candidate::Solution;
#[cfg(target_os = "linux")]
use crate::candidate::{External, GpuClock, Limits};
use crate::device::{self, unavailable};
use crate::failure::Failure;
use crate::machine::Build;

/// An implementation by name or by file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// This program's CPU backend.
    Cpu(Isa),
    /// This program's CUDA backend in one of its modes.
    Cuda(CudaMode),
    /// A solution file.
    Solution(PathBuf),
    /// The contents of one.
    Text(Vec<u8>),
}

/// How the CUDA backend rounds operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CudaMode {
    Fast,
    Split,
}

impl CudaMode {
    fn name(self) -> &'static str {
        match self {
            Self::Fast => "cuda-fast",
            Self::Split => "cuda-split",
        }
    }

    /// As the command line gives it.
    pub(crate) fn precision(self) -> PrecisionArg {
        match self {
            Self::Fast => PrecisionArg::Fast,
            Self::Split => PrecisionArg::Split,
        }
    }
}

impl Who {
    /// The precision that it computes in and no other, where that is so.
    pub(crate) fn precision(&self) -> Option<PrecisionArg> {
        match self {
            Self::Cuda(mode) => Some(mode.precision()),
            // The others say themselves what they cannot run.
            _ => None,
        }
    }

    /// The device that it runs on when the user names `asked` or none.
    ///
    /// # Errors
    /// When it does not run there.
    pub(crate) fn device(&self, asked: Option<Device>) -> Result<Device, Failure> {
        let (name, device) = match (self, asked) {
            (Self::Cpu(_), None | Some(Device::Cpu)) => return Ok(Device::Cpu),
            (Self::Cuda(_), None) => return Ok(Device::Cuda(0)),
            (Self::Cuda(_), Some(gpu @ Device::Cuda(_))) => return Ok(gpu),
            (Self::Solution(_) | Self::Text(_), asked) => return Ok(asked.unwrap_or_default()),
            (Self::Cpu(isa), Some(Device::Cuda(_))) => (format!("cpu-{isa}"), "a GPU"),
            (Self::Cuda(mode), Some(Device::Cpu)) => (mode.name().to_owned(), "the CPU"),
        };
        Err(Failure::input(format!("{name} does not run on {device}")))
    }
}

/// Reads `cpu-avx2`, `cuda-fast`, or the name of a file that ends in `.json`.
pub(crate) fn parse_who(text: &str) -> Result<Who, String> {
    let isa = text.strip_prefix("cpu-").and_then(|isa| isa.parse::<Isa>().ok());
    let cuda = [CudaMode::Fast, CudaMode::Split].into_iter().find(|mode| mode.name() == text);
    match isa.map(Who::Cpu).or(cuda.map(Who::Cuda)) {
        Some(who) => Ok(who),
        None if text.ends_with(".json") => Ok(Who::Solution(text.into())),
        None => {
            Err("expected cpu-avx512, cpu-avx2, cpu-portable, cuda-fast, cuda-split or a solution's file, FILE.json"
                .to_owned())
        }
    }
}

/// An implementation ready to be judged.
#[derive(Debug)]
pub(crate) enum Candidate {
    /// Runs in this process.
    Cpu(CpuBackend),
    /// Runs in this process, on a GPU.
    Cuda(Box<OnGpu>),
    /// Runs in a process of its own.
    #[cfg(target_os = "linux")]
    External(Box<External>, Option<Rc<Monitor>>),
}

/// The CUDA backend, what times it, and what watches its GPU.
#[derive(Debug)]
pub(crate) struct OnGpu {
    mode: CudaMode,
    stopwatch: Stopwatch,
    monitor: Rc<Monitor>,
}

impl Candidate {
    /// Opens the implementation.
    ///
    /// # Errors
    /// When the machine lacks what it needs, or the file is no solution.
    pub(crate) fn open(who: &Who, resources: &Resources) -> anyhow::Result<Self> {
        match who {
            Who::Cpu(isa) => Ok(Self::Cpu(device::cpu(Some(*isa), resources.threads)?)),
            Who::Cuda(mode) => {
                let ordinal = resources.gpu().unwrap_or_default();
                let stopwatch = Stopwatch::open(ordinal, TimerChoice::Best).map_err(unavailable)?;
                let monitor = Rc::new(Monitor::new(stopwatch.gpu()).map_err(unavailable)?);
                Ok(Self::Cuda(Box::new(OnGpu { mode: *mode, stopwatch, monitor })))
            }
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
            gpu: resources.gpu(),
        };
        // Closed again before the worker opens it: this process needs its name only.
        let gpu = resources.gpu().map(qkv_rope_cuda::Gpu::open).transpose().map_err(qkv_rope_op::Error::from)?;
        let monitor = gpu.map(|gpu| Monitor::new(&gpu)).transpose().map_err(unavailable)?;
        Ok(Self::External(Box::new(External::start(solution, limits)?), monitor.map(Rc::new)))
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
            Self::Cuda(on_gpu) => Box::new(CudaSubject::new(&on_gpu.stopwatch)),
            #[cfg(target_os = "linux")]
            Self::External(external, _) => Box::new(&mut **external),
        }
    }

    /// The file that it came in, where it did.
    pub(crate) fn solution_file(&self) -> Option<Vec<u8>> {
        match self {
            Self::Cpu(_) | Self::Cuda(_) => None,
            #[cfg(target_os = "linux")]
            Self::External(external, _) => Some(external.solution().file.clone()),
        }
    }

    /// Who reads the clock.
    pub(crate) fn timer(&self) -> &'static str {
        match self {
            Self::Cpu(_) => "monotonic clock around the call, in one process",
            Self::Cuda(on_gpu) => on_gpu.stopwatch.timer(),
            #[cfg(target_os = "linux")]
            Self::External(external, _) if external.gpu_clock().is_some() => {
                external.gpu_clock().map_or(Stopwatch::EVENTS, GpuClock::timer)
            }
            #[cfg(target_os = "linux")]
            Self::External(..) => "monotonic clock of the parent, from letting the stopped worker go to its answer",
        }
    }

    /// Times of calls that do nothing, where the clock is in another process.
    pub(crate) fn handshake_ns(&self) -> Vec<u64> {
        match self {
            Self::Cpu(_) | Self::Cuda(_) => Vec::new(),
            #[cfg(target_os = "linux")]
            Self::External(external, _) => external.handshake_ns().to_vec(),
        }
    }

    /// What watches its GPU, where it runs on one.
    pub(crate) fn monitor(&self) -> Option<Rc<Monitor>> {
        match self {
            Self::Cpu(_) => None,
            Self::Cuda(on_gpu) => Some(on_gpu.monitor.clone()),
            #[cfg(target_os = "linux")]
            Self::External(_, monitor) => monitor.clone(),
        }
    }

    /// Bytes that are written before each call to empty the caches of its GPU; `None` where it runs on the CPU.
    pub(crate) fn gpu_flush_bytes(&self) -> Option<usize> {
        match self {
            Self::Cpu(_) => None,
            Self::Cuda(on_gpu) => Some(on_gpu.stopwatch.flush_bytes()),
            #[cfg(target_os = "linux")]
            Self::External(external, _) => external.gpu_clock().map(|clock| clock.flush_bytes),
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
            device: if self.monitor().is_some() { "cuda" } else { "cpu" }.to_owned(),
            precision,
            threads,
            build_flags: Vec::new(),
            binaries: BTreeMap::new(),
            runtime: BTreeMap::new(),
        };
        match self {
            Self::Cpu(backend) => built_in(backend.name(), "qkv_rope_cpu::CpuBackend", blank),
            Self::Cuda(on_gpu) => {
                let cubins = on_gpu.stopwatch.gpu().facts().arch;
                let mut implementation = built_in(on_gpu.mode.name().to_owned(), "qkv_rope_cuda::Executor", blank);
                implementation.runtime.insert("cubins".to_owned(), cubins.to_string());
                implementation
            }
            #[cfg(target_os = "linux")]
            Self::External(external, _) => from_file(external, blank),
        }
    }
}

fn built_in(name: String, entry_point: &str, blank: Implementation) -> Implementation {
    let build = Build::this();
    let owned = str::to_owned;
    Implementation {
        name,
        author: Some(owned(env!("CARGO_PKG_AUTHORS"))),
        languages: vec![owned("rust")],
        source: Source { commit: Some(build.commit), ..Source::default() },
        licence: Some(owned(env!("CARGO_PKG_LICENSE"))),
        install: Some(owned("cargo build --release --bin kernelproof")),
        entry_point: owned(entry_point),
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
        licence: solution.license.clone(),
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
        assert_eq!(parse_who("cuda-split"), Ok(Who::Cuda(CudaMode::Split)));
        assert_eq!(parse_who("cpu-portable"), Ok(Who::Cpu(Isa::Portable)));
        assert_eq!(parse_who("a/b.json"), Ok(Who::Solution("a/b.json".into())));
        assert!(parse_who("cpu-neon").is_err() && parse_who("kernel.py").is_err());
    }
}

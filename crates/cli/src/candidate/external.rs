//! A solution in a Python process of its own.
//!
//! The clock, the inputs, the poison, the reference and the comparison are in this process. The other one is stopped whenever
//! it is not its turn, so it cannot work ahead while inputs are placed, nor finish late while outputs are read. It is
//! no security sandbox: see the decision record on trust.

mod on_gpu;

pub(crate) use on_gpu::GpuClock;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kernelproof_eval::evaluation::Status;
use kernelproof_eval::judge::{Extent, Fault, Layout, Mixture, Places, Subject};
use kernelproof_eval::measure::Clock;
use qkv_rope_op::{Pairing, Problem, Tensor};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shared::Shared;
use super::solution::Solution;
use crate::failure::Failure;
use crate::python::{HELLO_LIMIT, Script, Worker, WorkerError};

/// Threads that were stopped wake on one core, and on a busy machine stay there: a call took ten times as long. Bound
/// threads wake each on its own.
const BOUND: (&str, &str) = ("OMP_PROC_BIND", "true");

const SCRIPT: Script = Script {
    label: "solution",
    file: "solution_worker.py",
    text: include_str!("../../python/solution_worker.py"),
    modules: &[("gpu_clock.py", include_str!("../../python/gpu_clock.py"))],
    environment: &[BOUND],
};

/// What runs on after a call is let run this long before its outputs are looked at again.
const SETTLE: Duration = Duration::from_millis(300);

/// The same on a GPU, where the first product of another thread loads libraries.
const SETTLE_ON_GPU: Duration = Duration::from_secs(3);

/// Calls that do nothing, to know what the way to the other process and back takes.
const HANDSHAKES: usize = 20;

/// What a solution may use.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) python: Option<PathBuf>,
    pub(crate) threads: NonZeroUsize,
    /// Longest that a call may take.
    pub(crate) call: Duration,
    /// Memory beyond what PyTorch has after its import.
    pub(crate) memory_bytes: u64,
    /// The NVIDIA GPU that it runs on; `None` on the CPU.
    pub(crate) gpu: Option<usize>,
}

/// A solution, and the process that runs it.
#[derive(Debug)]
pub(crate) struct External {
    solution: Solution,
    limits: Limits,
    running: Running,
    ended: bool,
    loaded: bool,
    memory: Option<Shared>,
    handshake_ns: Vec<u64>,
    /// What the last call made the GPU do.
    activities: Option<Vec<String>>,
    /// Places of inputs that the worker keeps, by slot.
    kept: Vec<Option<Places>>,
    /// Where the room of the outputs begins in the block.
    outputs_from: usize,
}

#[derive(Debug)]
struct Running {
    worker: Worker,
    runtime: BTreeMap<String, String>,
    gpu: Option<GpuClock>,
    folder: tempfile::TempDir,
}

#[derive(Debug, Deserialize)]
struct Hello {
    torch: String,
    python: String,
    threads: usize,
    gpu: Option<GpuClock>,
}

#[derive(Debug, Deserialize)]
struct End {
    replaced: Vec<String>,
}

impl Running {
    fn start(limits: &Limits) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("kernelproof-").tempdir().context("no temporary folder")?;
        let threads = limits.threads.get();
        let mut worker = Worker::start(SCRIPT, limits.python.as_deref(), threads, folder.path())?;
        let request =
            json!({"do": "hello", "threads": threads, "memory_bytes": limits.memory_bytes, "device": limits.gpu});
        let hello: Hello = worker.ask(&request, HELLO_LIMIT).map_err(Failure::from)?;
        if hello.threads != threads {
            let message = format!("PyTorch uses {} threads where {threads} were asked for", hello.threads);
            return Err(Failure::unavailable(message).into());
        }
        let runtime = [("python", hello.python), ("torch", hello.torch), (BOUND.0, BOUND.1.to_owned())];
        let mut runtime: BTreeMap<String, String> = runtime.map(|(name, version)| (name.to_owned(), version)).into();
        if let Some(gpu) = &hello.gpu {
            runtime.insert("cuda".to_owned(), gpu.cuda.clone());
            runtime.extend(gpu.triton.clone().map(|version| ("triton".to_owned(), version)));
        }
        Ok(Self { worker, runtime, gpu: hello.gpu, folder })
    }

    fn solution_folder(&self) -> PathBuf {
        self.folder.path().join("solution")
    }
}

impl External {
    /// Starts the process; the solution is loaded when the first problem is begun.
    ///
    /// # Errors
    /// When there is no Python or no PyTorch.
    pub(crate) fn start(solution: Solution, limits: Limits) -> anyhow::Result<Self> {
        let mut running = Running::start(&limits)?;
        let handshake_ns = handshakes(&mut running.worker).map_err(Failure::from)?;
        Ok(Self {
            solution,
            limits,
            running,
            ended: false,
            loaded: false,
            memory: None,
            handshake_ns,
            activities: None,
            kept: Vec::new(),
            outputs_from: 0,
        })
    }

    /// Its file.
    pub(crate) fn solution(&self) -> &Solution {
        &self.solution
    }

    /// Versions of what it runs inside.
    pub(crate) fn runtime(&self) -> &BTreeMap<String, String> {
        &self.running.runtime
    }

    /// How its calls are timed, where it runs on a GPU.
    pub(crate) fn gpu_clock(&self) -> Option<&GpuClock> {
        self.running.gpu.as_ref()
    }

    /// Times of calls that do nothing.
    pub(crate) fn handshake_ns(&self) -> &[u64] {
        &self.handshake_ns
    }

    fn load(&mut self) -> Result<(), Fault> {
        let folder = self.running.solution_folder();
        let unpacked = std::fs::create_dir_all(&folder).and_then(|()| self.solution.unpack(&folder));
        unpacked.map_err(|error| inconclusive(format!("sources cannot be written: {error}")))?;
        let spec = &self.solution.spec;
        let options = self.solution.is_compiled().then(|| {
            let options = &spec.compile_options;
            let (cflags, cuda_cflags) = (&options.cflags, &options.cuda_cflags);
            json!({"sources": self.solution.units(), "cflags": cflags, "cuda_cflags": cuda_cflags, "ld_flags": options.ld_flags})
        });
        let request = json!({
            "do": "load", "folder": folder, "entry": spec.entry_point, "compile": options,
            "destination_passing": spec.destination_passing_style,
        });
        let _: Value = self.ask(&request, HELLO_LIMIT.max(self.limits.call))?;
        self.loaded = true;
        Ok(())
    }

    fn ask<Answer: serde::de::DeserializeOwned>(&mut self, request: &Value, limit: Duration) -> Result<Answer, Fault> {
        self.running.worker.thaw();
        let answer = self.running.worker.ask(request, limit);
        self.running.worker.freeze();
        answer.map_err(|error| self.fault(error))
    }

    fn fault(&mut self, error: WorkerError) -> Fault {
        let detail = without_folders(&error.to_string());
        let status = match &error {
            WorkerError::Ended(said) if ran_out(said) => Status::OutOfMemory,
            WorkerError::Ended(_) => Status::Crashed,
            WorkerError::Silent(_) => Status::TimedOut,
            WorkerError::NoTorch { .. } => Status::Unsupported,
            WorkerError::Nonsense(_) => Status::Tampering,
            WorkerError::Said { kind, .. } => match kind.as_deref() {
                Some("memory") => Status::OutOfMemory,
                Some("compile") => Status::CompileError,
                Some("missing") => Status::Unsupported,
                Some("shape") => Status::WrongShape,
                Some("dtype") => Status::WrongDtype,
                _ => Status::CallFailed,
            },
        };
        // After most errors of the device, a process can do nothing more with it.
        let lost = detail.contains("CUDA error") || detail.contains("answered 7");
        self.ended |= !matches!(error, WorkerError::Said { .. }) || (self.limits.gpu.is_some() && lost);
        Fault { status, detail }
    }
}

/// The text as others may read it: of absolute paths the last name is left, because folders are private and say nothing.
fn without_folders(text: &str) -> String {
    let ends = |letter: char| letter.is_whitespace() || "'\"‘’:,;()[]<>".contains(letter);
    let mut shown = String::new();
    for token in text.split_inclusive(ends) {
        match token.rsplit_once('/') {
            Some((_, name)) if token.starts_with('/') && token.trim_end() != "/" => shown.push_str(name),
            _ => shown.push_str(token),
        }
    }
    shown
}

fn ran_out(said: &str) -> bool {
    ["MemoryError", "bad_alloc", "allocate memory"].iter().any(|sign| said.contains(sign))
}

fn handshakes(worker: &mut Worker) -> Result<Vec<u64>, WorkerError> {
    let nothing = json!({"do": "nothing"});
    let times = (0..HANDSHAKES).map(|_| {
        worker.freeze();
        worker.ask_timed::<Value>(&nothing, HELLO_LIMIT, Worker::thaw).map(|(_, time_ns)| time_ns)
    });
    times.collect()
}

fn inconclusive(detail: String) -> Fault {
    Fault { status: Status::Inconclusive, detail }
}

impl Subject for External {
    fn begin(&mut self, problem: &Problem, layout: &Layout) -> Result<(), Fault> {
        let unsupported = |detail: String| Err(Fault { status: Status::Unsupported, detail });
        if problem.pairing != Pairing::HalfSplit {
            return unsupported("solutions compute the half-split style".to_owned());
        }
        if let (None, Some(why)) = (self.limits.gpu, self.solution.needs_gpu()) {
            return unsupported(why);
        }
        if self.ended {
            self.running.worker.kill();
            self.running = Running::start(&self.limits).map_err(|error| inconclusive(format!("{error:#}")))?;
            (self.ended, self.loaded) = (false, false);
        }
        if !self.loaded {
            self.load()?;
        }
        self.memory = None;
        let memory = Shared::new(layout.len_elems());
        let memory = memory.map_err(|error| inconclusive(format!("no shared memory: {error}")))?;
        let (path, bytes) = (memory.path(), memory.len_bytes());
        self.memory = Some(memory);
        self.outputs_from = layout.slots()[Tensor::INPUTS.len()].start;
        let outputs_from = self.outputs_from * size_of::<f32>();
        let request = json!({
            "do": "case", "path": path, "bytes": bytes, "sizes": problem.dims, "outputs_from": outputs_from,
        });
        let _: Value = self.ask(&request, self.limits.call)?;
        Ok(())
    }

    fn point(&mut self, places: &Places) -> Result<(), Fault> {
        let starts = places.spans().map(|span| span.start * size_of::<f32>());
        let _: Value = self.ask(&json!({"do": "at", "starts": starts}), self.limits.call)?;
        Ok(())
    }

    fn memory(&mut self) -> &mut [f32] {
        self.memory.as_mut().map_or(&mut [], Shared::elems)
    }

    fn stage(&mut self, _: &Places) -> Result<(), Fault> {
        self.on_gpu(&json!({"do": "stage", "guard": Places::GUARD, "poison": Places::POISON}))
    }

    fn call(&mut self, _: &Places, _: &dyn Clock) -> Result<u64, Fault> {
        if self.limits.gpu.is_some() {
            return self.call_on_gpu();
        }
        let worker = &mut self.running.worker;
        let answer = worker.ask_timed::<Value>(&json!({"do": "call"}), self.limits.call, Worker::thaw);
        worker.freeze();
        answer.map(|(_, time_ns)| time_ns).map_err(|error| self.fault(error))
    }

    fn is_remote(&self) -> bool {
        self.limits.gpu.is_some()
    }

    fn keep(&mut self, slot: usize, places: &Places) -> Result<(), Fault> {
        self.keep_on_gpu(slot, places)
    }

    fn compose(&mut self, places: &Places, mixture: &Mixture) -> Result<(), Fault> {
        self.compose_on_gpu(places, mixture)
    }

    fn collect(&mut self, places: &Places, extent: Extent) -> Result<(), Fault> {
        self.fetch(places, extent)
    }

    fn activities(&self) -> Option<Vec<String>> {
        self.activities.clone()
    }

    fn settle(&mut self) {
        self.running.worker.thaw();
        std::thread::sleep(if self.limits.gpu.is_some() { SETTLE_ON_GPU } else { SETTLE });
        self.running.worker.freeze();
        // A worker that cannot answer has been dealt with where it failed first.
        drop(self.on_gpu(&json!({"do": "settle"})));
    }

    fn end(&mut self) -> Result<(), Fault> {
        let end: End = self.ask(&json!({"do": "end"}), self.limits.call)?;
        if end.replaced.is_empty() {
            return Ok(());
        }
        let detail = format!("the solution replaced {}", end.replaced.join(", "));
        Err(Fault { status: Status::Tampering, detail })
    }
}

impl Drop for External {
    fn drop(&mut self) {
        self.running.worker.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_left_out_of_what_a_solution_says() {
        let said = "ended\n  File \"/home/me/venv/lib/torch/nn.py\", line 3, in f: /var/a/k.cpp:8: a/b and/or 1 / 2";
        let shown = "ended\n  File \"nn.py\", line 3, in f: k.cpp:8: a/b and/or 1 / 2";
        assert_eq!(without_folders(said), shown);
    }
}

//! A solution in a Python process of its own.
//!
//! The clock, the inputs, the poison, the reference and the comparison are in this process. The other one is stopped whenever
//! it is not its turn, so it cannot work ahead while inputs are placed, nor finish late while outputs are read. It is
//! no security sandbox: see the decision record on trust.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kernelproof_eval::evaluation::Status;
use kernelproof_eval::judge::{Extent, Fault, Layout, Mixture, Places, Run, Subject};
use kernelproof_eval::measure::Clock;
use kernelproof_gauge::Stopwatch;
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

/// How a worker times calls on its GPU.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct GpuClock {
    timer: Timer,
    /// Bytes that it zeroes before each call.
    pub(crate) flush_bytes: usize,
    /// CUDA version of its PyTorch.
    cuda: String,
    triton: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Timer {
    Cupti,
    Events,
}

impl GpuClock {
    /// The name of the timer, as protocols give it.
    pub(crate) fn timer(&self) -> &'static str {
        match self.timer {
            Timer::Cupti => Stopwatch::CUPTI,
            Timer::Events => Stopwatch::EVENTS,
        }
    }
}

/// A call on a GPU.
#[derive(Debug, Deserialize)]
struct OnGpu {
    time_ns: u64,
    activities: Option<Vec<String>>,
    /// Whether something ran on when the stream of the call had ended.
    late: bool,
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

    /// One of the steps that only a GPU needs.
    fn on_gpu(&mut self, step: &Value) -> Result<(), Fault> {
        if self.limits.gpu.is_none() {
            return Ok(());
        }
        let _: Value = self.ask(step, self.limits.call)?;
        Ok(())
    }

    /// The device's clock gives the time; the one here holds it to what is possible.
    fn call_on_gpu(&mut self) -> Result<u64, Fault> {
        let worker = &mut self.running.worker;
        let answer = worker.ask_timed::<OnGpu>(&json!({"do": "call"}), self.limits.call, Worker::thaw);
        worker.freeze();
        let (OnGpu { time_ns, activities, late }, wall_ns) = answer.map_err(|error| self.fault(error))?;
        self.activities = activities;
        if time_ns > wall_ns {
            let detail = format!("said that a call took {time_ns} ns, which took {wall_ns} ns here");
            return Err(Fault { status: Status::Tampering, detail });
        }
        if late {
            let detail = "work on another stream went on after the stream of the call had ended".to_owned();
            return Err(Fault { status: Status::LateOutput, detail });
        }
        Ok(time_ns)
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
        self.on_gpu(&json!({"do": "keep", "slot": slot}))?;
        self.kept.resize((slot + 1).max(self.kept.len()), None);
        self.kept[slot] = Some(*places);
        Ok(())
    }

    fn compose(&mut self, places: &Places, mixture: &Mixture) -> Result<(), Fault> {
        let byte = |places: &Places, run: &Run| (places.spans()[run.input].start + run.elems.start) * size_of::<f32>();
        let copy = |run: Run| {
            let kept = self.kept.get(run.slot)?.as_ref()?;
            Some([run.slot, byte(kept, &run), byte(places, &run), run.elems.len() * size_of::<f32>()])
        };
        let Some(copies) = mixture.runs().into_iter().map(copy).collect::<Option<Vec<_>>>() else {
            return Err(inconclusive("a set that was not kept is asked for".to_owned()));
        };
        self.on_gpu(&json!({"do": "compose", "copies": copies, "guard": Places::GUARD, "poison": Places::POISON}))
    }

    fn collect(&mut self, places: &Places, extent: Extent) -> Result<(), Fault> {
        let outputs = self.outputs_from;
        let elems = match extent {
            Extent::All => [0, usize::MAX],
            Extent::Outputs => [outputs, usize::MAX],
            Extent::One(tensor) => {
                let watched = places.watched(tensor);
                [watched.start, watched.end]
            }
        };
        // A number that every JSON reader has exactly; the worker takes it for the end of the block.
        let bytes = elems.map(|elem| elem.saturating_mul(size_of::<f32>()).min(1 << 52));
        self.on_gpu(&json!({"do": "fetch", "bytes": bytes}))
    }

    fn activities(&self) -> Option<Vec<String>> {
        self.activities.clone()
    }

    fn settle(&mut self) {
        self.running.worker.thaw();
        std::thread::sleep(SETTLE);
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

    /// What is found of a call on a GPU when a worker, here a shell script, answers as given.
    fn on_gpu(answer: &str) -> Result<u64, Fault> {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let python = folder.path().join("python");
        let hello = r#"{"torch":"2","python":"3","threads":1,"gpu":{"timer":"cupti","flush_bytes":7,"cuda":"13.0"}}"#;
        let script = format!(
            "#!/bin/sh\nwhile read line; do case \"$line\" in\n*hello*) echo '{hello}';;\n*\\\"call\\\"*) sleep 0.01; \
             echo '{answer}';;\n*) echo '{{}}';;\nesac; done\n"
        );
        std::fs::write(&python, script).expect("the folder is writable");
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
        let text = br#"{"name": "a", "author": "b", "sources": [{"path": "k.py", "content": ""}],
            "spec": {"languages": ["triton"], "entry_point": "k.py::run"}}"#;
        let limits = Limits {
            python: Some(python),
            threads: NonZeroUsize::MIN,
            call: Duration::from_secs(20),
            memory_bytes: 1 << 30,
            gpu: Some(0),
        };
        let solution = Solution::parse(text).expect("it is a solution");
        let mut external = External::start(solution, limits).expect("a shell is there");
        assert_eq!(external.gpu_clock().map(|clock| (clock.timer(), clock.flush_bytes)), Some((Stopwatch::CUPTI, 7)));
        let problem = Problem::new(qkv_rope_op::Dims::new(1, 2, 4, 2, 1, 4).expect("valid"));
        external.begin(&problem, &Layout::new(problem.dims))?;
        external.on_gpu(&json!({"do": "stage"}))?;
        let time_ns = external.call_on_gpu()?;
        external.on_gpu(&json!({"do": "fetch"}))?;
        assert_eq!(external.activities(), Some(vec!["k".to_owned()]));
        Ok(time_ns)
    }

    #[test]
    fn the_device_gives_the_time_and_the_clock_here_holds_it_to_what_is_possible() {
        assert_eq!(on_gpu(r#"{"time_ns": 5000, "activities": ["k"], "late": false}"#), Ok(5000));
        let longer = on_gpu(r#"{"time_ns": 90000000000, "activities": ["k"], "late": false}"#);
        assert_eq!(longer.expect_err("it cannot be").status, Status::Tampering);
        let late = on_gpu(r#"{"time_ns": 5000, "activities": ["k"], "late": true}"#);
        assert_eq!(late.expect_err("it is not joined").status, Status::LateOutput);
        let nonsense = on_gpu("{}");
        assert_eq!(nonsense.expect_err("it says no time").status, Status::Tampering);
    }
}

//! PyTorch in eager mode, in a Python process of its own.

use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use kernelproof_eval::measure::{Clock, Contestant, Reason};
use qkv_rope_op::{OwnedInputs, OwnedOutputs, Tensor};
use serde::Deserialize;
use serde_json::json;

use super::{Entrant, InputSets};
use crate::failure::Failure;
use crate::python::{HELLO_LIMIT, Script, Worker};

const SCRIPT: Script = Script {
    label: "pytorch",
    file: "pytorch_worker.py",
    text: include_str!("../../python/pytorch_worker.py"),
    modules: &[],
    environment: &[],
};

/// Beyond what any call needs on a machine that works: 60 s, and as if it did one GFLOP/s.
fn run_limit(flops: u128) -> Duration {
    Duration::from_secs(60 + u64::try_from(flops / 1_000_000_000).unwrap_or(u64::MAX / 2))
}

/// A running worker that has loaded PyTorch.
#[derive(Debug)]
pub(crate) struct PyTorch {
    worker: Worker,
    version: String,
    threads: usize,
    folder: tempfile::TempDir,
}

#[derive(Debug, Deserialize)]
struct Hello {
    torch: String,
    threads: usize,
}

#[derive(Debug, Deserialize)]
struct Ran {
    ns: u64,
}

impl PyTorch {
    /// Starts the interpreter and imports PyTorch.
    ///
    /// # Errors
    /// When there is no Python or no PyTorch, with how to install it.
    pub(crate) fn start(python: Option<&Path>, threads: usize) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("kernelproof-").tempdir().context("no temporary folder")?;
        let mut worker = Worker::start(SCRIPT, python, threads, folder.path())?;
        let hello: Hello =
            worker.ask(&json!({"do": "hello", "threads": threads}), HELLO_LIMIT).map_err(Failure::from)?;
        if hello.threads != threads {
            let message = format!("PyTorch uses {} threads where {threads} were asked for", hello.threads);
            return Err(Failure::unavailable(message).into());
        }
        Ok(Self { worker, version: hello.torch, threads, folder })
    }

    /// Hands the inputs of a case over and gives the contestant for it.
    ///
    /// # Errors
    /// When the inputs cannot be written or PyTorch cannot hold them.
    pub(crate) fn load<'a>(&'a mut self, inputs: &'a InputSets) -> anyhow::Result<Loaded<'a>> {
        let mut sets = Vec::new();
        for (index, set) in inputs.all().iter().enumerate() {
            let path = self.input_path(index);
            let elems = write_raw(&path, set).with_context(|| format!("{}: cannot be written", path.display()))?;
            sets.push(json!({"path": path, "elems": elems}));
        }
        let style = inputs.problem.pairing;
        let request = json!({"do": "load", "sizes": inputs.problem.dims, "style": style, "sets": sets});
        let _: serde_json::Value = self.worker.ask(&request, HELLO_LIMIT).map_err(Failure::from)?;
        // The worker has copies; hundreds of megabytes need not lie around, least of all after a kill.
        for index in 0..inputs.all().len() {
            drop(std::fs::remove_file(self.input_path(index)));
        }
        let limit = run_limit(qkv_rope_op::Cost::of(&inputs.problem).flops);
        Ok(Loaded { pytorch: self, inputs, set: 0, limit })
    }

    fn input_path(&self, set: usize) -> PathBuf {
        self.folder.path().join(format!("inputs-{set}.f32"))
    }

    fn output_path(&self) -> PathBuf {
        self.folder.path().join("outputs.f32")
    }
}

/// PyTorch with the inputs of a case.
#[derive(Debug)]
pub(crate) struct Loaded<'a> {
    pytorch: &'a mut PyTorch,
    inputs: &'a InputSets,
    set: usize,
    limit: Duration,
}

impl Loaded<'_> {
    fn run(&mut self, set: usize) -> anyhow::Result<u64> {
        let ran: Ran = self.ask(&json!({"do": "run", "set": set}))?;
        Ok(ran.ns)
    }

    fn ask<Answer: serde::de::DeserializeOwned>(&mut self, request: &serde_json::Value) -> Result<Answer, Failure> {
        Ok(self.pytorch.worker.ask(request, self.limit)?)
    }
}

impl Contestant for Loaded<'_> {
    fn name(&self) -> String {
        "pytorch".to_owned()
    }

    fn prepare(&mut self, round: u64) -> Result<(), Reason> {
        self.set = self.inputs.index_of(round);
        Ok(())
    }

    fn run_once(&mut self, _: &dyn Clock) -> Result<u64, Reason> {
        Ok(self.run(self.set)?)
    }
}

impl Entrant for Loaded<'_> {
    fn version(&self) -> Option<String> {
        Some(self.pytorch.version.clone())
    }

    fn threads(&self) -> usize {
        self.pytorch.threads
    }

    fn timer(&self) -> String {
        "time.perf_counter_ns around the call, in the Python process".to_owned()
    }

    fn outputs(&mut self) -> anyhow::Result<OwnedOutputs> {
        self.run(0)?;
        let path = self.pytorch.output_path();
        let _: serde_json::Value = self.ask(&json!({"do": "save", "path": path}))?;
        let bytes = std::fs::read(&path).with_context(|| format!("{}: cannot be read", path.display()))?;
        drop(std::fs::remove_file(&path));
        let mut outputs = OwnedOutputs::poisoned(&self.inputs.problem, 0);
        let (mut values, _) = bytes.as_chunks::<4>();
        for tensor in Tensor::OUTPUTS {
            let Some(target) = outputs.tensor_mut(tensor) else { continue };
            let (part, rest) = values
                .split_at_checked(target.len())
                .ok_or_else(|| Failure::unavailable(format!("PyTorch returned too few elements of {tensor}")))?;
            target.iter_mut().zip(part).for_each(|(target, &bytes)| *target = f32::from_le_bytes(bytes));
            values = rest;
        }
        Ok(outputs)
    }
}

/// Writes the nine inputs one after the other and returns how many elements that were.
fn write_raw(path: &Path, inputs: &OwnedInputs) -> std::io::Result<usize> {
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(path)?);
    let mut elems = 0;
    for values in Tensor::INPUTS.into_iter().filter_map(|tensor| inputs.tensor(tensor)) {
        elems += values.len();
        if cfg!(target_endian = "little") {
            file.write_all(bytemuck::cast_slice(values))?;
        } else {
            values.iter().try_for_each(|value| file.write_all(&value.to_le_bytes()))?;
        }
    }
    file.flush()?;
    Ok(elems)
}

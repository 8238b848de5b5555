//! `run`: gradients from a file, gradients to a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use qkv_rope_op::{OwnedOutputs, Problem, Requested, Tensor, Write};
use serde::Serialize;

use crate::args::{DeviceArgs, JsonTo, ModeArgs};
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::output;
use crate::tensors::{self, Named, Stored, TensorFile};

const AFTER_HELP: &str = "\
Examples:
  kernelproof run in.safetensors -o out.safetensors
  kernelproof run in.safetensors -o out.safetensors --outputs grad_hidden_states --threads 4
  kernelproof run in.safetensors -o out.safetensors --device cuda --precision split
  kernelproof run gptj.safetensors -o out.safetensors --style interleaved

IN holds f32 tensors:
  grad_query                   [B,H,S,D]
  grad_key, grad_value         [B,K,S,D]
  cos, sin                     [B,S,R], [1,S,R] or [S,R]
  hidden_states                [B,S,E]              for the gradients of weights
  q_weight                     [H*D,E]              for grad_hidden_states
  k_weight, v_weight           [K*D,E]              for grad_hidden_states

OUT gets:
  grad_hidden_states           [B,S,E]
  grad_q_weight                [H*D,E]
  grad_k_weight, grad_v_weight [K*D,E]

All sizes are read from the shapes. R smaller than D rotates only the first R elements of each head. OUT appears \
whole or not at all. IN is mapped into memory, and copied only where its data is not aligned to 4 bytes: \
do not shorten it while the command runs.";

/// Compute the gradients of hidden states and weights for the tensors of a file
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    /// A safetensors file with the inputs
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The safetensors file to write
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Outputs to compute, separated by commas; what is left out costs nothing
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    outputs: Vec<OutputName>,
    /// Ignore tensors of other names in IN instead of refusing them
    #[arg(long)]
    allow_extra: bool,
    /// Print a JSON summary instead of a sentence
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputName {
    All,
    #[value(name = "grad_hidden_states")]
    Hidden,
    #[value(name = "grad_q_weight")]
    Query,
    #[value(name = "grad_k_weight")]
    Key,
    #[value(name = "grad_v_weight")]
    Value,
}

/// What was done, as data.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    input: &'a Path,
    output: &'a Path,
    backend: String,
    problem: Problem,
    /// Time of the computation alone, without reading and writing files.
    compute_ns: u64,
}

/// Runs the command.
pub(crate) fn execute(args: &RunArgs) -> anyhow::Result<Exit> {
    refuse_same_file(&args.input, &args.output)?;
    let file = TensorFile::open(&args.input)?;
    if !args.allow_extra {
        refuse_extra(&file)?;
    }
    let stored = load(&file)?;
    let outputs = requested(&args.outputs);
    let dims = tensors::dims_of(&file, outputs)?;
    let problem = Problem { outputs, ..args.mode.on(args.device.device).problem(dims) };
    // A few bytes of header can ask for any amount of output; it is then refused here and not by the kernel.
    machine::require_memory(&format!("outputs of {dims}"), machine::output_bytes(&problem))?;
    let backend = args.device.open()?;
    backend.plan(&problem)?;
    let mut session = backend.session(&problem)?;
    let inputs = tensors::inputs_of(&stored, dims)?;
    let mut results = OwnedOutputs::poisoned(&problem, 0);
    let start = Instant::now();
    session.backward(&inputs, &mut results.views())?;
    let compute_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    save(&args.output, &problem, &results)?;
    let summary = Summary { input: &args.input, output: &args.output, backend: backend.name(), problem, compute_ns };
    tell(args, &summary)?;
    Ok(Exit::Success)
}

/// A file that were both read and replaced would lose the inputs.
fn refuse_same_file(input: &Path, output: &Path) -> anyhow::Result<()> {
    let input_exists = std::fs::exists(input).with_context(|| input.display().to_string())?;
    let same = input_exists && output.exists() && same_file::is_same_file(input, output)?;
    if same {
        let message = format!("{}: is the input too, and would be overwritten", output.display());
        return Err(Failure::input(message).help("choose another name for -o").into());
    }
    Ok(())
}

fn refuse_extra(file: &TensorFile) -> Result<(), Failure> {
    let known = |name: &str| Tensor::INPUTS.iter().any(|tensor| tensor.name() == name);
    let extra: Vec<&str> = file.names().filter(|name| !known(name)).collect();
    if extra.is_empty() {
        return Ok(());
    }
    let expected = Tensor::INPUTS.map(Tensor::name).join(", ");
    let message = format!("{}: found {}, expected only {expected}", file.path().display(), extra.join(", "));
    Err(Failure::input(message).help("rename the tensors, or pass --allow-extra to ignore them"))
}

fn load(file: &TensorFile) -> anyhow::Result<Vec<(Tensor, Stored<'_>)>> {
    let mut stored = Vec::new();
    for tensor in Tensor::INPUTS {
        stored.extend(file.tensor(tensor)?.map(|values| (tensor, values)));
    }
    Ok(stored)
}

fn requested(names: &[OutputName]) -> Requested {
    let write = |name| (names.contains(&name) || names.contains(&OutputName::All)).then_some(Write::Overwrite);
    Requested {
        grad_hidden: write(OutputName::Hidden),
        grad_q_weight: write(OutputName::Query),
        grad_k_weight: write(OutputName::Key),
        grad_v_weight: write(OutputName::Value),
    }
}

fn save(path: &Path, problem: &Problem, results: &OwnedOutputs) -> anyhow::Result<()> {
    let shapes = Tensor::OUTPUTS.map(|tensor| (tensor, problem.dims.shape(tensor)));
    let named: Vec<Named<'_>> = shapes
        .iter()
        .filter_map(|(tensor, shape)| Some(Named { tensor: *tensor, shape, data: results.tensor(*tensor)? }))
        .collect();
    tensors::write(path, &named)
}

fn tell(args: &RunArgs, summary: &Summary<'_>) -> anyhow::Result<()> {
    let outputs = Tensor::OUTPUTS.into_iter().filter(|&tensor| summary.problem.outputs.get(tensor).is_some());
    let names: Vec<&str> = outputs.map(Tensor::name).collect();
    let text = format!(
        "{}: {} for {} by {} in {:.3} ms",
        args.output.display(),
        names.join(", "),
        summary.problem.dims,
        summary.backend,
        summary.compute_ns as f64 / 1e6
    );
    output::result(args.json.then_some(&JsonTo::Stdout), summary, &text)
}

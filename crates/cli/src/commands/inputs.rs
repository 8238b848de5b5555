//! `inputs`: a file with seeded inputs, for `run` and for other programs.

use std::path::{Path, PathBuf};

use clap::Args;
use qkv_rope_op::{Case, Dims, OwnedInputs, Recipe, Tensor};
use serde::Serialize;

use crate::args::{JsonTo, Workload, parse_case, parse_dims};
use crate::failure::{Exit, Failure};
use crate::machine;
use crate::output;
use crate::tensors::{self, Named};

const AFTER_HELP: &str = "\
Examples:
  kernelproof inputs --case s1024b2 -o in.safetensors
  kernelproof inputs --dims B=1,S=77,E=512,H=8,K=2,D=64,R=32 --recipe spread --seed 7 -o in.safetensors

Recipes:
  benchmark   normal numbers, cos and sin of independent angles
  exact       small powers of two whose sums are exact in f32
  huge        magnitudes near 1e30 and 1e5
  tiny        magnitudes near 1e-30 and 1e-8
  spread      token magnitudes over 10 decades
  positive    nothing cancels, so a biased rounding shows
  non-finite  benchmark numbers with a few NaN and infinities planted

The same recipe, seed and sizes give the same bytes on every machine.";

/// Write a safetensors file with seeded inputs
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct InputsArgs {
    #[command(flatten)]
    sizes: SizesArg,
    /// What kind of numbers
    #[arg(long, value_name = "RECIPE", value_parser = str::parse::<Recipe>, default_value_t)]
    recipe: Recipe,
    /// Seed of the numbers
    #[arg(long, value_name = "N", default_value_t = 200)]
    seed: u64,
    /// The safetensors file to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Print a JSON summary instead of a sentence
    #[arg(long)]
    json: bool,
}

/// One problem's sizes.
#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
struct SizesArg {
    /// A case of the suite by name or id
    #[arg(long, value_name = "NAME", value_parser = parse_case)]
    case: Option<Case>,
    /// Other sizes, as B=2,S=128,E=512,H=8,K=2,D=64 (K defaults to H, R to D)
    #[arg(long, value_name = "SIZES", value_parser = parse_dims)]
    dims: Option<Dims>,
}

impl SizesArg {
    fn workload(self) -> Result<Workload, Failure> {
        let case = self.case.map(Workload::case);
        case.or_else(|| self.dims.map(Workload::sizes)).ok_or_else(|| Failure::input("no sizes given"))
    }
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    output: &'a Path,
    name: &'a str,
    dims: Dims,
    recipe: Recipe,
    seed: u64,
    bytes: u64,
}

/// Runs the command.
pub(crate) fn execute(args: &InputsArgs) -> anyhow::Result<Exit> {
    let workload = args.sizes.workload()?;
    machine::require_memory(&format!("inputs of {}", workload.dims), machine::input_bytes(workload.dims))?;
    let inputs = OwnedInputs::generate(workload.dims, args.recipe, args.seed);
    let shapes = Tensor::INPUTS.map(|tensor| (tensor, workload.dims.shape(tensor)));
    let named: Vec<Named<'_>> = shapes
        .iter()
        .filter_map(|(tensor, shape)| Some(Named { tensor: *tensor, shape, data: inputs.tensor(*tensor)? }))
        .collect();
    tensors::write(&args.output, &named)?;
    let bytes = named.iter().map(|tensor| size_of_val(tensor.data) as u64).sum();
    let (name, dims, output, recipe, seed) = (&workload.name, workload.dims, &args.output, args.recipe, args.seed);
    let summary = Summary { output, name, dims, recipe, seed, bytes };
    let text = format!("{}: {recipe} inputs for {dims}, seed {seed}, {bytes} bytes", output.display());
    output::result(args.json.then_some(&JsonTo::Stdout), &summary, &text)?;
    Ok(Exit::Success)
}

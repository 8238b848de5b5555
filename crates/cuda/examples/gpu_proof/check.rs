//! Every output against f64: the suite, the kinds of input that have traps, and random problems.

use std::sync::Arc;

use anyhow::Result;
use kernelproof_eval::check::{CheckOptions, Depth, check, silent};
use qkv_rope_cuda::{CudaBackend, Gpu};
use qkv_rope_op::{Dims, OwnedInputs, Pairing, Precision, Problem, Recipe, Requested, SUITE, Tensor, Write};
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::json;

use crate::emit;

const MODES: [Precision; 2] = [Precision::Fast, Precision::Split];
const SEED: u64 = 200;

/// The suite in both modes, each recipe, and `random` random problems; returns how many failed.
pub(crate) fn all(gpu: &Arc<Gpu>, random: usize) -> Result<usize> {
    let mut failed = 0;
    for precision in MODES {
        for case in SUITE {
            let depth = if case.dims().tokens() <= 1024 { Depth::Full } else { Depth::Sampled { seed: SEED } };
            failed += one(gpu, &case.name(), with(case.dims(), precision), Recipe::Benchmark, depth)?;
        }
        for recipe in Recipe::ALL {
            let dims = Dims::new(2, 293, 1536, 24, 4, 96)?;
            failed += one(gpu, "recipe", with(dims, precision), recipe, Depth::Full)?;
        }
        let long = Dims::new(1, 8192, 1536, 24, 4, 96)?;
        for recipe in [Recipe::Positive, Recipe::Spread] {
            failed += one(gpu, "long", with(long, precision), recipe, Depth::Sampled { seed: SEED })?;
        }
        let longest = Dims::new(8, 8192, 512, 4, 2, 64)?;
        failed += one(gpu, "longest", with(longest, precision), Recipe::Benchmark, Depth::Sampled { seed: SEED })?;
        failed += one(gpu, "longest", with(longest, precision), Recipe::Positive, Depth::Sampled { seed: SEED })?;
    }
    Ok(failed + outliers(gpu)? + self::random(gpu, random)?)
}

/// One element, or one token, far larger than what a sample of the tensor shows. Within a token magnitudes may differ by
/// 10^6: beyond that `split` loses accuracy in the smaller ones, which share the token's power of two.
pub(crate) fn outliers(gpu: &Arc<Gpu>) -> Result<usize> {
    let dims = Dims::new(2, 293, 1536, 24, 4, 96)?;
    let places = [
        (Tensor::QWeight, 12_345..12_346, 4096.0),
        (Tensor::VWeight, 100_000..100_001, 1e6),
        (Tensor::HiddenStates, 3 * 1536..4 * 1536, 1e5),
        (Tensor::GradKey, 97 * 96..98 * 96, 1e5),
    ];
    let mut failed = 0;
    for precision in MODES {
        for (tensor, range, factor) in places.clone() {
            let mut inputs = OwnedInputs::generate(dims, Recipe::Benchmark, SEED);
            let elements = inputs.tensor_mut(tensor).and_then(|elements| elements.get_mut(range));
            elements.into_iter().flatten().for_each(|element| *element *= factor);
            let name = format!("outlier in {tensor}");
            failed += compare(gpu, &name, with(dims, precision), &inputs, Recipe::Benchmark, Depth::Full)?;
        }
    }
    Ok(failed)
}

/// Tensors of more than 2^31 elements, and more batches than a grid dimension has room for.
pub(crate) fn large(gpu: &Arc<Gpu>) -> Result<usize> {
    let mut failed = 0;
    for precision in MODES {
        for dims in [Dims::new(70_000, 1, 64, 2, 1, 64)?, Dims::new(4, 1 << 18, 64, 8, 1, 256)?] {
            failed += one(gpu, "large", with(dims, precision), Recipe::Benchmark, Depth::Sampled { seed: SEED })?;
        }
    }
    Ok(failed)
}

/// A handful of small problems, for tools that slow everything down.
pub(crate) fn small(gpu: &Arc<Gpu>) -> Result<usize> {
    random(gpu, 12)
}

fn with(dims: Dims, precision: Precision) -> Problem {
    Problem { precision, ..Problem::new(dims) }
}

fn random(gpu: &Arc<Gpu>, count: usize) -> Result<usize> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut failed = 0;
    let mut done = 0;
    while done < count {
        let Some(dims) = draw_dims(&mut rng) else { continue };
        let pairing = if rng.random_ratio(1, 3) { Pairing::Interleaved } else { Pairing::HalfSplit };
        let precision = MODES[done % 2];
        let problem = Problem { dims, pairing, precision, outputs: draw_outputs(&mut rng) };
        let recipe = Recipe::ALL[rng.random_range(0..Recipe::ALL.len())];
        failed += one(gpu, "random", problem, recipe, Depth::Full)?;
        done += 1;
    }
    Ok(failed)
}

fn draw_dims(rng: &mut impl Rng) -> Option<Dims> {
    let batch = [0, 1, 1, 2, 3, 5][rng.random_range(0..6)];
    let seq = if rng.random_ratio(1, 3) { rng.random_range(100..700) } else { rng.random_range(0..70) };
    let hidden =
        [rng.random_range(1..130), rng.random_range(200..600), 8 * rng.random_range(1..60)][rng.random_range(0..3)];
    let (heads, kv_heads) = (rng.random_range(1..7), rng.random_range(1..5));
    let head_dim =
        if rng.random() { [2, 64, 80, 96, 128, 256][rng.random_range(0..6)] } else { 2 * rng.random_range(1..70) };
    let rotary_dim = if rng.random_ratio(2, 3) { head_dim } else { 2 * rng.random_range(0..=head_dim / 2) };
    Dims::new(batch, seq, hidden, heads, kv_heads, head_dim).and_then(|dims| dims.with_rotary_dim(rotary_dim)).ok()
}

fn draw_outputs(rng: &mut impl Rng) -> Requested {
    let mut draw = || match rng.random_range(0..8) {
        0 => None,
        1 | 2 => Some(Write::Accumulate),
        _ => Some(Write::Overwrite),
    };
    let drawn = Requested { grad_hidden: draw(), grad_q_weight: draw(), grad_k_weight: draw(), grad_v_weight: draw() };
    if drawn.grad_hidden.is_none() && !drawn.any_weight() { Requested::all(Write::Overwrite) } else { drawn }
}

fn one(gpu: &Arc<Gpu>, name: &str, problem: Problem, recipe: Recipe, depth: Depth) -> Result<usize> {
    let inputs = OwnedInputs::generate(problem.dims, recipe, SEED);
    compare(gpu, name, problem, &inputs, recipe, depth)
}

fn compare(
    gpu: &Arc<Gpu>,
    name: &str,
    problem: Problem,
    inputs: &OwnedInputs,
    recipe: Recipe,
    depth: Depth,
) -> Result<usize> {
    let backend = CudaBackend::on(gpu);
    let options = CheckOptions { depth, exact: recipe == Recipe::Exact, start_seed: 7 };
    let report = check(&backend, &problem, &inputs.views(), options, &silent)?;
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    let biases: Vec<f64> = report.agreements.iter().map(|agreement| agreement.bias).collect();
    emit(&json!({
        "check": name,
        "problem": problem,
        "recipe": recipe,
        "depth": depth,
        "normwise": report.worst_normwise(),
        "bias": biases,
        "failures": failures,
    }));
    Ok(usize::from(!report.passed()))
}

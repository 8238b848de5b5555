//! The checked rounds: fresh inputs, outputs against the f64 reference.

use qkv_rope_op::{OwnedInputs, OwnedOutputs, Recipe, Tensor};
use rand::RngExt as _;

use super::subject::{Extent, Fault};
use super::turn::{Source, Turns};
use super::{Bench, Rules, go_on};
use crate::check::{Agreement, Depth, Expected, Failure, silent};
use crate::evaluation::{Round, Status};

/// Seeds below this are exact in every JSON reader.
const SEEDS: u64 = 1 << 53;

/// Rounds in which inputs on a device are held against what they were; elsewhere they are in all.
const ROUNDS_WITH_INPUTS: u32 = 3;

/// Checks all rounds; stops at the first that fails, which is then the last in `done`.
pub(super) fn check(
    turns: &mut Turns<'_>,
    rules: &Rules,
    bench: &mut Bench<'_>,
    done: &mut Vec<Round>,
) -> Result<(), Fault> {
    for index in 0..rules.check_rounds {
        let seed = if index == 0 { rules.public_seed } else { turns.rng.random_range(0..SEEDS) };
        let full = index == 0 && !rules.quick;
        let depth = if full { Depth::Full } else { Depth::Sampled { seed: turns.rng.random_range(0..SEEDS) } };
        let inputs = OwnedInputs::generate(turns.problem.dims, Recipe::Benchmark, seed);
        // Carrying inputs back takes long; changing them is a habit that shows soon.
        let extent = if index < ROUNDS_WITH_INPUTS { Extent::All } else { Extent::Outputs };
        let (_, mut failures) = turns.call(Source::Given(&inputs), bench, extent)?;
        go_on(bench)?;
        let agreements = compare(turns, &inputs, depth, &mut failures)?;
        let mut round = Round { seed, depth, agreements, repeatable: None, failures };
        let failed = !round.failures.is_empty();
        if failed {
            let fault = turns.fault(&round.failures, Status::WrongValues);
            done.push(round);
            return Err(fault);
        }
        if index == 0 {
            round.repeatable = Some(repeats(turns, &inputs, bench)?);
            go_on(bench)?;
        }
        done.push(round);
    }
    Ok(())
}

/// Compares the outputs of the last call with the reference of `inputs`.
pub(super) fn compare(
    turns: &Turns<'_>,
    inputs: &OwnedInputs,
    depth: Depth,
    failures: &mut Vec<Failure>,
) -> Result<Vec<Agreement>, Fault> {
    let bounds = crate::check::Bounds::of(turns.problem.precision);
    let expected = Expected::new(&turns.problem, &inputs.views(), depth, &silent)?;
    let agreements = expected.agreements(&turns.outputs, None, &silent);
    failures.extend(agreements.iter().flat_map(|agreement| agreement.failures(&bounds, false)));
    Ok(agreements)
}

/// Whether a second call on the same inputs, elsewhere in memory, gives the same bits.
fn repeats(turns: &mut Turns<'_>, inputs: &OwnedInputs, bench: &mut Bench<'_>) -> Result<bool, Fault> {
    let first = turns.outputs.clone();
    let (_, failures) = turns.call(Source::Given(inputs), bench, Extent::Outputs)?;
    if !failures.is_empty() {
        return Err(turns.fault(&failures, Status::WrongValues));
    }
    Ok(Tensor::OUTPUTS.into_iter().all(|tensor| bits(&first, tensor).eq(bits(&turns.outputs, tensor))))
}

fn bits(outputs: &OwnedOutputs, tensor: Tensor) -> impl Iterator<Item = u32> {
    outputs.tensor(tensor).unwrap_or_default().iter().map(|value| value.to_bits())
}

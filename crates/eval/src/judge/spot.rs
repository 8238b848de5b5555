//! A look at every timed call: all elements written, and a few of each output compared with the reference. One dot
//! product for each, so that it costs nothing beside the call.

use qkv_rope_op::reference::Reference;
use qkv_rope_op::{OwnedInputs, OwnedOutputs, Problem, Tensor};
use rand::{Rng, RngExt as _};
use rayon::prelude::*;

use super::subject::Extent;
use crate::check::Bounds;

/// Rows of each output that are looked at in one call.
const ROWS: usize = 2;
/// Elements of each such row.
const COLUMNS: usize = 8;
/// Magnitudes are taken after the rotation, where the two products of an element may have cancelled.
const CANCELLED: f64 = 4.0;

/// The first thing wrong with the outputs, in words.
///
/// # Panics
/// When the inputs lack a tensor.
pub(super) fn look(
    problem: &Problem,
    inputs: &OwnedInputs,
    outputs: &OwnedOutputs,
    extent: Extent,
    rng: &mut impl Rng,
) -> Result<(), String> {
    unwritten(outputs, extent)?;
    let (views, columns) = (inputs.views(), problem.dims.hidden());
    let reference = Reference::of_u(problem, &views).map_err(|error| error.to_string())?;
    let bounds = Bounds::of(problem.precision);
    let mut chosen = Vec::new();
    for tensor in Tensor::OUTPUTS.into_iter().filter(|tensor| extent.has(*tensor)) {
        let Some(found) = outputs.tensor(tensor).filter(|found| !found.is_empty()) else { continue };
        for _ in 0..ROWS {
            let row = rng.random_range(0..found.len() / columns);
            let places: [usize; COLUMNS] = std::array::from_fn(|_| rng.random_range(0..columns));
            chosen.push((tensor, &found[row * columns..][..columns], row, places));
        }
    }
    let wrong = chosen.par_iter().find_map_first(|(tensor, found, row, places)| {
        let left = left_row(&reference, problem, *tensor, *row);
        places.iter().find_map(|&column| {
            let (expected, magnitude) = element(&left, &right_column(problem, inputs, *tensor, column));
            let found = f64::from(found[column]);
            let within = (found - expected).abs() <= CANCELLED * bounds.componentwise * magnitude;
            (!within).then(|| format!("{tensor}: {found:e} at row {row}, column {column}, expected {expected:e}"))
        })
    });
    wrong.map_or(Ok(()), Err)
}

fn unwritten(outputs: &OwnedOutputs, extent: Extent) -> Result<(), String> {
    for tensor in Tensor::OUTPUTS.into_iter().filter(|tensor| extent.has(*tensor)) {
        let values = outputs.tensor(tensor).unwrap_or_default();
        let count = values.par_iter().with_min_len(1 << 18).filter(|value| !value.is_finite()).count();
        if count > 0 {
            return Err(format!("{tensor}: {count} elements are not finite or were never written"));
        }
    }
    Ok(())
}

/// The row of U, or of its transpose, that an output's row is made of.
fn left_row(reference: &Reference<'_>, problem: &Problem, tensor: Tensor, row: usize) -> Vec<f64> {
    if tensor == Tensor::GradHiddenStates {
        return reference.u_row(row);
    }
    let first = problem.dims.segments().into_iter().find(|segment| segment.weight_gradient == tensor);
    reference.u_column(row + first.map_or(0, |segment| segment.first_row))
}

/// The column of W or X that it meets.
fn right_column(problem: &Problem, inputs: &OwnedInputs, tensor: Tensor, column: usize) -> Vec<f32> {
    let sources: &[Tensor] = match tensor {
        Tensor::GradHiddenStates => &[Tensor::QWeight, Tensor::KWeight, Tensor::VWeight],
        _ => &[Tensor::HiddenStates],
    };
    let columns = problem.dims.hidden();
    let values = sources
        .iter()
        .flat_map(|&source| inputs.tensor(source).unwrap_or_default().iter().skip(column).step_by(columns).copied());
    values.collect()
}

fn element(left: &[f64], right: &[f32]) -> (f64, f64) {
    let products = left.iter().zip(right).map(|(&left, &right)| left * f64::from(right));
    products.fold((0.0, 0.0), |(sum, magnitude), product| (sum + product, magnitude + product.abs()))
}

#[cfg(test)]
mod tests {
    use qkv_rope_op::reference::backward;
    use qkv_rope_op::{Dims, Recipe};
    use rand::SeedableRng as _;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn right() -> (Problem, OwnedInputs, OwnedOutputs) {
        let problem = Problem::new(Dims::new(2, 9, 20, 4, 2, 8).expect("valid"));
        let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 5);
        let gradients = backward(&problem, &inputs.views()).expect("valid");
        let mut outputs = OwnedOutputs::poisoned(&problem, 0);
        for tensor in Tensor::OUTPUTS {
            let exact = gradients.tensor(tensor).expect("all were asked for");
            let values = outputs.tensor_mut(tensor).expect("all were asked for");
            values.iter_mut().zip(exact).for_each(|(value, &exact)| *value = exact as f32);
        }
        (problem, inputs, outputs)
    }

    #[test]
    fn what_is_right_passes_and_what_is_wrong_does_not() {
        let (problem, inputs, mut outputs) = right();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(look(&problem, &inputs, &outputs, Extent::All, &mut rng), Ok(()));
        let values = outputs.tensor_mut(Tensor::GradKWeight).expect("it is there");
        values.iter_mut().for_each(|value| *value *= 1.001);
        let wrong = look(&problem, &inputs, &outputs, Extent::Outputs, &mut rng).expect_err("wrong");
        assert!(wrong.starts_with("grad_k_weight: "), "{wrong}");
        assert_eq!(look(&problem, &inputs, &outputs, Extent::One(Tensor::GradVWeight), &mut rng), Ok(()));
        outputs.tensor_mut(Tensor::GradQWeight).expect("it is there")[3] = f32::NAN;
        assert!(
            look(&problem, &inputs, &outputs, Extent::All, &mut rng).expect_err("unwritten").contains("1 elements")
        );
    }
}

//! Generated inputs are what their recipes say.

use proptest::prelude::*;
use qkv_rope_op::inputs::{Arranged, Arrangement, Touched, digest};
use qkv_rope_op::reference::{Reference, backward};
use qkv_rope_op::{Dims, OwnedInputs, Pairing, Problem, Recipe, Tensor};

fn dims() -> Dims {
    Dims::new(3, 11, 40, 4, 2, 12).unwrap().with_rotary_dim(8).unwrap()
}

fn values(recipe: Recipe, tensor: Tensor) -> Vec<f32> {
    OwnedInputs::generate(dims(), recipe, 200).tensor(tensor).unwrap().to_vec()
}

fn moments(values: &[f32]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / n;
    let variance = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>() / n;
    (mean, variance.sqrt())
}

/// These bits are part of the contract: records name a seed.
#[test]
fn a_seed_gives_the_same_bits_for_ever() {
    let inputs = OwnedInputs::generate(dims(), Recipe::Benchmark, 200);
    let hex = |tensor| {
        let digest = digest(&inputs.views(), tensor).unwrap();
        digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let digests = Tensor::INPUTS.map(hex).join(" ");
    assert_eq!(digests, "851de73c 6a1f64ce dba02d0c efb09ac7 236d4c36 90ba605b fc78e8ba 228708ee 43a3d788");
}

#[test]
fn contents_do_not_depend_on_other_tensors() {
    let wider = Dims::new(3, 11, 40, 4, 2, 12).unwrap();
    let wide = OwnedInputs::generate(wider, Recipe::Benchmark, 200);
    assert_eq!(wide.tensor(Tensor::GradKey).unwrap(), values(Recipe::Benchmark, Tensor::GradKey));
    assert_eq!(wide.tensor(Tensor::HiddenStates).unwrap(), values(Recipe::Benchmark, Tensor::HiddenStates));
    assert_ne!(wide, OwnedInputs::generate(wider, Recipe::Benchmark, 201));
}

#[test]
fn benchmark_has_the_moments_it_promises() {
    let (mean, deviation) = moments(&values(Recipe::Benchmark, Tensor::GradQuery));
    assert!(mean.abs() < 0.08 && (deviation - 1.0).abs() < 0.06, "{mean} {deviation}");
    let (mean, deviation) = moments(&values(Recipe::Benchmark, Tensor::QWeight));
    assert!(mean.abs() < 0.02 && (deviation * 40f64.sqrt() - 1.0).abs() < 0.06, "{mean} {deviation}");
    let (cos, sin) = (values(Recipe::Benchmark, Tensor::Cos), values(Recipe::Benchmark, Tensor::Sin));
    assert!((moments(&cos).0 - (-0.5f64).exp()).abs() < 0.06, "the mean of cos of a normal angle is exp(-1/2)");
    assert!(moments(&sin).0.abs() < 0.1);
    let identity = cos.iter().zip(&sin).filter(|(c, s)| (*c * *c + *s * *s - 1.0).abs() < 1e-3).count();
    assert!(identity < cos.len() / 50, "cos and sin are of independent angles");
}

#[test]
fn magnitudes_are_those_of_the_recipe() {
    let largest = |recipe, tensor| values(recipe, tensor).iter().fold(0f32, |largest, value| largest.max(value.abs()));
    assert!((1e30..1e31).contains(&largest(Recipe::Huge, Tensor::GradQuery)));
    assert!((1e-30..1e-29).contains(&largest(Recipe::Tiny, Tensor::GradQuery)));
    let product = largest(Recipe::Tiny, Tensor::GradQuery) * largest(Recipe::Tiny, Tensor::HiddenStates);
    assert!(product < 30.0 * f32::MIN_POSITIVE, "most products are subnormal");
}

#[test]
fn spread_differs_between_tokens_and_not_within() {
    let (plain, spread) = (values(Recipe::Benchmark, Tensor::GradQuery), values(Recipe::Spread, Tensor::GradQuery));
    let ratio = |batch: usize, head: usize, seq: usize, element: usize| {
        let index = ((batch * 4 + head) * 11 + seq) * 12 + element;
        spread[index] / plain[index]
    };
    let ratios: Vec<f32> = (0..33).map(|token| ratio(token / 11, 0, token % 11, 0)).collect();
    for (token, &expected) in ratios.iter().enumerate() {
        assert_eq!(ratio(token / 11, 3, token % 11, 7), expected);
    }
    let key = OwnedInputs::generate(dims(), Recipe::Spread, 200).tensor(Tensor::GradKey).unwrap().to_vec();
    assert_eq!(key[0] / values(Recipe::Benchmark, Tensor::GradKey)[0], ratios[0], "all gradients of a token");
    let decades =
        ratios.iter().fold(0f32, |a, b| a.max(*b)).log10() - ratios.iter().fold(1e30f32, |a, b| a.min(*b)).log10();
    assert!(decades > 8.0, "{decades}");
}

#[test]
fn positive_gives_positive_u() {
    let inputs = OwnedInputs::generate(dims(), Recipe::Positive, 7);
    for pairing in [Pairing::HalfSplit, Pairing::Interleaved] {
        let problem = Problem { pairing, ..Problem::new(dims()) };
        let reference = Reference::new(&problem, &inputs.views()).unwrap();
        assert!((0..33).all(|token| reference.u_row(token).iter().all(|&u| u >= 0.25)));
    }
    assert!(Tensor::INPUTS.iter().all(|&tensor| inputs.tensor(tensor).unwrap().iter().all(|&value| value > 0.0)));
}

#[test]
fn non_finite_values_touch_their_rows_and_columns_and_no_others() {
    for seed in 0..24 {
        let inputs = OwnedInputs::generate(dims(), Recipe::NonFinite, seed);
        assert_eq!(inputs.planted().len(), 4);
        for pairing in [Pairing::HalfSplit, Pairing::Interleaved] {
            let problem = Problem { pairing, ..Problem::new(dims()) };
            let touched = Touched::by(dims(), pairing, inputs.planted());
            let outputs = backward(&problem, &inputs.views()).unwrap();
            for (index, value) in outputs.tensor(Tensor::GradHiddenStates).unwrap().iter().enumerate() {
                let expected =
                    touched.hidden_rows.contains(&(index / 40)) || touched.hidden_columns.contains(&(index % 40));
                assert_eq!(!value.is_finite(), expected, "{:?} {pairing:?} element {index}", inputs.planted());
            }
            let stacked = dims().segments().map(|segment| outputs.tensor(segment.weight_gradient).unwrap().to_vec());
            for (index, value) in stacked.concat().iter().enumerate() {
                let expected =
                    touched.weight_rows.contains(&(index / 40)) || touched.weight_columns.contains(&(index % 40));
                assert_eq!(!value.is_finite(), expected, "{:?} {pairing:?} element {index}", inputs.planted());
            }
        }
    }
}

#[test]
fn empty_inputs_can_be_generated() {
    for recipe in Recipe::ALL {
        let inputs = OwnedInputs::generate(Dims::new(0, 4, 0, 0, 0, 0).unwrap(), recipe, 1);
        assert!(Tensor::INPUTS.iter().all(|&tensor| inputs.tensor(tensor).unwrap().is_empty()));
        assert!(inputs.planted().is_empty());
    }
}

#[test]
fn arrangements_keep_values_and_change_strides() {
    let owned = OwnedInputs::generate(dims(), Recipe::Benchmark, 5);
    let strides = |arrangement| {
        let arranged = Arranged::new(&owned, arrangement);
        let views = arranged.views();
        (views.grad_query.strides(), views.hidden_states.unwrap().strides(), views.q_weight.unwrap().strides())
    };
    assert_eq!(strides(Arrangement::Offset(1)), ([528, 132, 12, 1], [440, 40, 1], [40, 1]));
    assert_eq!(strides(Arrangement::Transposed), ([528, 12, 48, 1], [40, 120, 1], [40, 1]));
    assert_eq!(strides(Arrangement::Expanded), ([528, 0, 0, 1], [0, 40, 1], [40, 1]));
    let (gradient, hidden, weight) = strides(Arrangement::Padded(3));
    assert_eq!((gradient[2], hidden[1], weight[0]), (15, 43, 43));
    for arrangement in [Arrangement::Offset(1), Arrangement::Transposed, Arrangement::Padded(3)] {
        assert_eq!(Arranged::new(&owned, arrangement).packed(), owned, "{arrangement:?}");
    }
    let expanded = Arranged::new(&owned, Arrangement::Expanded);
    let (first, query) = (owned.views().grad_query, expanded.views().grad_query);
    assert_eq!(query.row(&[2, 3, 10]), first.row(&[2, 0, 0]));
    assert_eq!(expanded.views().cos.row(&[2, 4]), owned.views().cos.row(&[0, 4]));
}

#[test]
fn offset_moves_the_first_element_by_single_floats() {
    let owned = OwnedInputs::generate(dims(), Recipe::Benchmark, 5);
    let bases: Vec<usize> = (0..4)
        .map(|offset| Arranged::new(&owned, Arrangement::Offset(offset)).views().grad_query.as_ptr().addr() % 16)
        .collect();
    let aligned = bases[0];
    assert_eq!(bases, [0, 4, 8, 12].map(|bytes| (aligned + bytes) % 16));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every partial sum of the exact recipe is a multiple of 1/4 below 2^22, so f32 holds it in any order.
    #[test]
    fn exact_inputs_have_exact_sums(seed: u64, batch in 1..3usize, seq in 1..40usize, interleaved: bool) {
        let dims = Dims::new(batch, seq, 30, 3, 2, 8).unwrap().with_rotary_dim(6).unwrap();
        let pairing = if interleaved { Pairing::Interleaved } else { Pairing::HalfSplit };
        let problem = Problem { pairing, ..Problem::new(dims) };
        let inputs = OwnedInputs::generate(dims, Recipe::Exact, seed);
        let reference = Reference::new(&problem, &inputs.views()).unwrap();
        for token in 0..dims.tokens() {
            prop_assert!(reference.u_row(token).iter().all(|u| (u * 2.0).fract() == 0.0 && u.abs() <= 4.0));
        }
        let outputs = backward(&problem, &inputs.views()).unwrap();
        for tensor in Tensor::OUTPUTS {
            prop_assert!(outputs.tensor(tensor).unwrap().iter().all(|value| f64::from(*value as f32) == *value));
        }
    }

    /// The digest is of contents, not of memory.
    #[test]
    fn digests_see_contents_only(seed: u64, index in 0..1000usize) {
        let dims = Dims::new(2, 5, 9, 3, 1, 4).unwrap();
        let mut owned = OwnedInputs::generate(dims, Recipe::Benchmark, seed);
        let arranged = Arranged::new(&owned, Arrangement::Transposed);
        for tensor in Tensor::INPUTS {
            let before = digest(&owned.views(), tensor);
            prop_assert_eq!(before, digest(&arranged.views(), tensor));
            let values = owned.tensor_mut(tensor).unwrap();
            let element = index % values.len();
            values[element] = f32::from_bits(values[element].to_bits() ^ 1);
            prop_assert_ne!(before, digest(&owned.views(), tensor));
        }
    }
}

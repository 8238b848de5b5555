//! The f64 reference against what the mathematics says of it.

use proptest::prelude::*;
use qkv_rope_op::reference::{Gradients, Reference, backward};
use qkv_rope_op::{Dims, OwnedInputs, Pairing, Precision, Problem, Recipe, Requested, Tensor, Write, rounding};

fn pairing() -> impl Strategy<Value = Pairing> {
    prop_oneof![Just(Pairing::HalfSplit), Just(Pairing::Interleaved)]
}

/// Small sizes of every kind: no heads, no tokens, one element, ragged against every tile.
fn dims() -> impl Strategy<Value = Dims> {
    (0..4usize, 0..20usize, 1..60usize, 0..4usize, 0..3usize, 1..6usize).prop_flat_map(|(b, s, e, h, k, half)| {
        (0..=half)
            .prop_map(move |rotary| Dims::new(b, s, e, h, k, 2 * half).unwrap().with_rotary_dim(2 * rotary).unwrap())
    })
}

fn inner(left: impl IntoIterator<Item = f64>, right: &[f32]) -> f64 {
    left.into_iter().zip(right).map(|(left, &right)| left * f64::from(right)).sum()
}

fn weights(gradients: &Gradients, inputs: &OwnedInputs) -> f64 {
    let pairs = [
        (Tensor::GradQWeight, Tensor::QWeight),
        (Tensor::GradKWeight, Tensor::KWeight),
        (Tensor::GradVWeight, Tensor::VWeight),
    ];
    let product =
        |(gradient, weight)| inner(gradients.tensor(gradient).unwrap().iter().copied(), inputs.tensor(weight).unwrap());
    pairs.map(product).iter().sum()
}

fn normwise(found: &[f64], expected: &[f64]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let error = square(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    (error / square(&mut expected.iter().copied())).sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// <g, forward(x)> = <backward(g), x>, for x the hidden states and for x the weights: the backward pass is the exact
    /// transpose of the forward pass, whatever the tables.
    #[test]
    fn backward_is_the_adjoint_of_forward(dims in dims(), pairing in pairing(), seed: u64) {
        let inputs = OwnedInputs::generate(dims, Recipe::Benchmark, seed);
        let problem = Problem { pairing, ..Problem::new(dims) };
        let reference = Reference::new(&problem, &inputs.views()).unwrap();
        let activations = reference.forward();
        let gradients: Vec<f32> = (0..dims.tokens()).flat_map(|token| reference.gradient_row(token)).collect();
        let forward = inner(activations.iter().copied(), &gradients);
        let outputs = backward(&problem, &inputs.views()).unwrap();
        let hidden = inner(
            outputs.tensor(Tensor::GradHiddenStates).unwrap().iter().copied(),
            inputs.tensor(Tensor::HiddenStates).unwrap(),
        );
        let size: f64 = activations.iter().zip(&gradients).map(|(y, &g)| (y * f64::from(g)).abs()).sum();
        let allowed = 1e-12 * size.max(f64::MIN_POSITIVE) * 10.0;
        prop_assert!((forward - hidden).abs() <= allowed, "{forward} {hidden}");
        prop_assert!((forward - weights(&outputs, &inputs)).abs() <= allowed);
    }

    /// The blocked products against three loops.
    #[test]
    fn products_are_sums_over_u(dims in dims(), pairing in pairing(), seed: u64) {
        let inputs = OwnedInputs::generate(dims, Recipe::Benchmark, seed);
        let problem = Problem { pairing, ..Problem::new(dims) };
        let reference = Reference::new(&problem, &inputs.views()).unwrap();
        let outputs = backward(&problem, &inputs.views()).unwrap();
        let stacked: Vec<f32> = [Tensor::QWeight, Tensor::KWeight, Tensor::VWeight]
            .into_iter()
            .flat_map(|weight| inputs.tensor(weight).unwrap().to_vec())
            .collect();
        let u: Vec<Vec<f64>> = (0..dims.tokens()).map(|token| reference.u_row(token)).collect();
        let hidden = inputs.tensor(Tensor::HiddenStates).unwrap();
        let e = dims.hidden();
        for (index, &found) in outputs.tensor(Tensor::GradHiddenStates).unwrap().iter().enumerate() {
            let row = &u[index / e];
            let sum: f64 = row.iter().enumerate().map(|(n, u)| u * f64::from(stacked[n * e + index % e])).sum();
            prop_assert!((sum - found).abs() <= 1e-11);
        }
        let found = reference.grad_weight(&(0..dims.rows()).collect::<Vec<_>>()).values;
        for (index, &found) in found.iter().enumerate() {
            let sum: f64 = u.iter().enumerate().map(|(t, u)| u[index / e] * f64::from(hidden[t * e + index % e])).sum();
            prop_assert!((sum - found).abs() <= 1e-11);
        }
        for row in 0..dims.rows() {
            let column: Vec<f64> = u.iter().map(|u| u[row]).collect();
            prop_assert_eq!(reference.u_column(row), column);
        }
    }

    /// Magnitudes bound what they are the magnitudes of, and are it when nothing cancels.
    #[test]
    fn magnitudes_bound_the_products(dims in dims(), pairing in pairing(), seed: u64) {
        for recipe in [Recipe::Huge, Recipe::Tiny, Recipe::Spread] {
            let inputs = OwnedInputs::generate(dims, recipe, seed);
            let problem = Problem { pairing, ..Problem::new(dims) };
            let reference = Reference::new(&problem, &inputs.views()).unwrap();
            let (tokens, rows): (Vec<_>, Vec<_>) = ((0..dims.tokens()).collect(), (0..dims.rows()).collect());
            let (hidden, weight) = (reference.grad_hidden(&tokens), reference.grad_weight(&rows));
            let values = [hidden.values, weight.values].concat();
            let bounds = [hidden.magnitudes, weight.magnitudes].concat();
            for (value, bound) in values.iter().zip(&bounds) {
                prop_assert!(value.abs() <= bound * 1.001 && bound.is_finite(), "{recipe}: {value:e} {bound:e}");
            }
        }
    }
}

#[test]
fn u_is_what_the_contract_says() {
    let dims = Dims::new(1, 1, 1, 1, 1, 6).unwrap().with_rotary_dim(4).unwrap();
    let gradient: Vec<f32> = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let one = |len| vec![1.0; len];
    let inputs = OwnedInputs::from_vecs(
        dims,
        [
            (Tensor::GradQuery, gradient.clone()),
            (Tensor::GradKey, gradient.clone()),
            (Tensor::GradValue, gradient),
            (Tensor::HiddenStates, one(1)),
            (Tensor::QWeight, one(6)),
            (Tensor::KWeight, one(6)),
            (Tensor::VWeight, one(6)),
            (Tensor::Cos, vec![10.0, 20.0, 30.0, 40.0]),
            (Tensor::Sin, vec![100.0, 200.0, 300.0, 400.0]),
        ],
    );
    let inputs = inputs.unwrap();
    let u = |pairing| {
        let problem = Problem { pairing, ..Problem::new(dims) };
        Reference::new(&problem, &inputs.views()).unwrap().u_row(0)
    };
    // u[0] = 1*10 + 3*300, u[1] = 2*20 + 4*400, u[2] = 3*30 - 1*100, u[3] = 4*40 - 2*200.
    let half_split = [910.0, 1640.0, -10.0, -240.0, 5.0, 6.0];
    assert_eq!(u(Pairing::HalfSplit), [half_split, half_split, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]].concat());
    // u[0] = 1*10 + 2*200, u[1] = 2*20 - 1*100, u[2] = 3*30 + 4*400, u[3] = 4*40 - 3*300.
    let interleaved = [410.0, -60.0, 1690.0, -740.0, 5.0, 6.0];
    assert_eq!(u(Pairing::Interleaved), [interleaved, interleaved, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]].concat());
}

#[test]
fn no_tokens_give_an_empty_grad_hidden_and_zero_weight_gradients() {
    for (batch, seq) in [(0, 5), (3, 0)] {
        let dims = Dims::new(batch, seq, 7, 2, 1, 4).unwrap();
        let inputs = OwnedInputs::generate(dims, Recipe::Benchmark, 1);
        let outputs = backward(&Problem::new(dims), &inputs.views()).unwrap();
        assert_eq!(outputs.grad_hidden, Some(vec![]));
        assert_eq!(outputs.grad_q_weight, Some(vec![0.0; 2 * 4 * 7]));
        assert_eq!(outputs.grad_v_weight, Some(vec![0.0; 4 * 7]));
    }
}

#[test]
fn what_is_not_requested_needs_no_inputs() {
    let dims = Dims::new(1, 3, 5, 2, 1, 4).unwrap();
    let inputs = OwnedInputs::generate(dims, Recipe::Benchmark, 1).without(Tensor::HiddenStates);
    let outputs = Requested { grad_hidden: Some(Write::Overwrite), ..Requested::none() };
    let problem = Problem { outputs, ..Problem::new(dims) };
    let gradients = backward(&problem, &inputs.views()).unwrap();
    assert!(gradients.grad_hidden.is_some() && gradients.grad_q_weight.is_none());
    let error = backward(&Problem::new(dims), &inputs.views()).unwrap_err();
    assert_eq!(error.to_string(), "hidden_states: missing, but grad_q_weight is computed from it");
}

/// The floors that the contract quotes: 2.93e-4 for `fast`, f32-class for `split`, and no bias in either.
#[test]
fn rounded_operands_have_the_error_that_the_contract_quotes() {
    let dims = Dims::new(1, 256, 384, 4, 2, 32).unwrap();
    let inputs = OwnedInputs::generate(dims, Recipe::Benchmark, 200);
    let expected = backward(&Problem::new(dims), &inputs.views()).unwrap();
    for (precision, range) in [(Precision::Fast, 2.7e-4..3.1e-4), (Precision::Split, 5e-8..4e-7)] {
        let problem = Problem { precision, ..Problem::new(dims) };
        let found = rounding::backward(&problem, &inputs.views()).unwrap();
        for tensor in Tensor::OUTPUTS {
            let error = normwise(found.tensor(tensor).unwrap(), expected.tensor(tensor).unwrap());
            assert!(range.contains(&error) && error < precision.normwise_bound(), "{precision:?} {tensor}: {error:e}");
        }
    }
}

//! The one-call form: sizes come from the tensors, and contradictions are named.

use qkv_rope::{Error, Inputs, Pairing, Problem, Tensor};
use qkv_rope_op::{Dims, OwnedInputs, OwnedOutputs, Recipe, reference};

fn problem() -> Problem {
    let dims = Dims::new(2, 9, 40, 3, 1, 12).and_then(|dims| dims.with_rotary_dim(8)).expect("valid sizes");
    Problem { pairing: Pairing::Interleaved, ..Problem::new(dims) }
}

#[test]
fn exact_inputs_give_exact_outputs() {
    let problem = problem();
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Exact, 5);
    let mut outputs = OwnedOutputs::poisoned(&problem, 0);
    qkv_rope::backward(&inputs.views(), &mut outputs.views(), problem.pairing).expect("a valid call");
    let expected = reference::backward(&problem, &inputs.views()).expect("a valid call");
    for tensor in Tensor::OUTPUTS {
        let found = outputs.tensor(tensor).expect("requested").iter().map(|&value| f64::from(value));
        assert!(found.eq(expected.tensor(tensor).expect("requested").iter().copied()), "{tensor}");
    }
}

#[test]
fn a_tensor_that_contradicts_the_others_is_named() {
    let problem = problem();
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Exact, 5);
    let other = OwnedInputs::generate(Dims::new(2, 9, 40, 3, 2, 12).expect("valid sizes"), Recipe::Exact, 5);
    let mixed = Inputs { grad_value: other.views().grad_value, ..inputs.views() };
    let mut outputs = OwnedOutputs::poisoned(&problem, 0);
    let error = qkv_rope::backward(&mixed, &mut outputs.views(), problem.pairing).expect_err("two value heads");
    let expected = Error::Shape { tensor: Tensor::GradValue, found: vec![2, 2, 9, 12], expected: vec![2, 1, 9, 12] };
    assert_eq!(error, expected);
    assert_eq!(error.to_string(), "grad_value: found shape [2, 2, 9, 12], expected [2, 1, 9, 12]");
}

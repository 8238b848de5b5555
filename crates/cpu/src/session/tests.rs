//! Blocks so small that every boundary is crossed: several blocks of tokens, of panels and of terms, ragged at each end.

use proptest::prelude::*;
use qkv_rope_op::{Dims, OwnedInputs, OwnedOutputs, Pairing, Recipe, Requested, Tensor, reference};

use super::*;
use crate::blocking::Blocking;
use crate::isa::Isa;
use crate::threads::Threads;

const TINY: Blocking = Blocking { tokens: 16, terms: 8, task_rows: 8, task_panels: 1, weight_bytes: 1 };

fn requests() -> impl Strategy<Value = Requested> {
    let one = || prop_oneof![Just(None), Just(Some(Write::Overwrite)), Just(Some(Write::Accumulate))];
    (one(), one(), one(), one()).prop_map(|(grad_hidden, grad_q_weight, grad_k_weight, grad_v_weight)| Requested {
        grad_hidden,
        grad_q_weight,
        grad_k_weight,
        grad_v_weight,
    })
}

fn problems() -> impl Strategy<Value = Problem> {
    let sizes = (0usize..4, 0usize..40, 0usize..120, 0usize..4, 0usize..3, 0usize..8, any::<prop::sample::Index>());
    (sizes, requests(), any::<bool>()).prop_map(
        |((batch, seq, hidden, heads, kv, half, rotary), outputs, interleaved)| {
            let dims = Dims::new(batch, seq, hidden, heads, kv, 2 * half).expect("even head size");
            let dims = dims.with_rotary_dim(2 * rotary.index(half + 1)).expect("even and within the head");
            let pairing = if interleaved { Pairing::Interleaved } else { Pairing::HalfSplit };
            Problem { pairing, outputs, ..Problem::new(dims) }
        },
    )
}

fn exact(isa: Isa, problem: Problem, seed: u64) -> Result<(), TestCaseError> {
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Exact, seed);
    let mut outputs = OwnedOutputs::poisoned(&problem, seed);
    let mut start = Vec::new();
    for tensor in Tensor::OUTPUTS {
        // Small integers, so that adding them is exact too.
        if let (Some(values), Some(Write::Accumulate)) = (outputs.tensor_mut(tensor), problem.outputs.get(tensor)) {
            values.iter_mut().for_each(|value| *value = value.round());
        }
        start.push(outputs.tensor(tensor).map(<[f32]>::to_vec));
    }
    let kernel = Kernel::of(isa);
    let layout = Layout::new(TINY, kernel.width, problem.dims, &problem.outputs);
    let pool = Pool::new(Threads::Current).expect("the current pool needs no threads");
    let mut session = CpuSession::new(kernel, layout, &pool, &problem).expect("a small workspace");
    session.backward(&inputs.views(), &mut outputs.views()).expect("a valid call");
    let reference = reference::backward(&problem, &inputs.views()).expect("a valid call");
    for (tensor, start) in Tensor::OUTPUTS.into_iter().zip(start) {
        let (Some(found), Some(expected)) = (outputs.tensor(tensor), reference.tensor(tensor)) else { continue };
        for (index, (&found, &expected)) in found.iter().zip(expected).enumerate() {
            let start = match problem.outputs.get(tensor) {
                Some(Write::Accumulate) => start.as_ref().map_or(0.0, |start| start[index]),
                _ => 0.0,
            };
            prop_assert_eq!(found, expected as f32 + start, "{} at {} with {}", tensor, index, isa);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_boundary_is_exact(problem in problems(), seed in any::<u64>()) {
        for isa in Isa::available() {
            exact(isa, problem, seed)?;
        }
    }
}

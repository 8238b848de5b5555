//! The rules of the operation, on every instruction set of this machine.

use std::num::NonZeroUsize;
use std::sync::Arc;

use kernelproof_eval::check::{CheckOptions, check, silent};
use proptest::prelude::*;
use qkv_rope_cpu::{CpuBackend, CpuOptions, Isa, Threads};
use qkv_rope_op::inputs::{Arranged, Arrangement};
use qkv_rope_op::{
    Backend, Dims, Error, OwnedInputs, OwnedOutputs, Pairing, Precision, Problem, Recipe, Requested, Tensor, Write,
};

fn backend(isa: Isa, threads: usize) -> CpuBackend {
    let threads = Threads::Count(NonZeroUsize::new(threads).expect("some threads"));
    CpuBackend::new(CpuOptions { isa: Some(isa), threads }).expect("an available instruction set")
}

fn backends() -> Vec<CpuBackend> {
    Isa::available().into_iter().map(|isa| backend(isa, 2)).collect()
}

fn dims(batch: usize, seq: usize, hidden: usize, heads: usize, kv: usize, head: usize) -> Dims {
    Dims::new(batch, seq, hidden, heads, kv, head).expect("valid sizes")
}

/// Bits of all outputs of one call.
fn bits(backend: &CpuBackend, problem: &Problem, inputs: &Arranged, offset_elems: usize) -> Vec<Vec<u32>> {
    let mut outputs = OwnedOutputs::poisoned_at(problem, 7, offset_elems);
    let mut session = backend.session(problem).expect("a session");
    session.backward(&inputs.views(), &mut outputs.views()).expect("a valid call");
    let outputs = Tensor::OUTPUTS.into_iter().filter_map(|tensor| outputs.tensor(tensor));
    outputs.map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
}

fn writes() -> impl Strategy<Value = Option<Write>> {
    prop_oneof![1 => Just(None), 3 => Just(Some(Write::Overwrite)), 2 => Just(Some(Write::Accumulate))]
}

fn arrangements() -> impl Strategy<Value = Arrangement> {
    prop_oneof![
        (0usize..17).prop_map(Arrangement::Offset),
        Just(Arrangement::Transposed),
        (1usize..9).prop_map(Arrangement::Padded),
        Just(Arrangement::Expanded),
    ]
}

fn recipes() -> impl Strategy<Value = Recipe> {
    prop::sample::select(Recipe::ALL.to_vec())
}

prop_compose! {
    fn problems()(
        batch in 0usize..4,
        seq in prop_oneof![0usize..70, 500usize..700],
        hidden in 0usize..200,
        heads in 0usize..5,
        kv in 0usize..3,
        half in 0usize..50,
        rotary in any::<prop::sample::Index>(),
        interleaved in any::<bool>(),
        outputs in (writes(), writes(), writes(), writes()),
    ) -> Problem {
        let dims = dims(batch, seq, hidden, heads, kv, 2 * half);
        let dims = dims.with_rotary_dim(2 * rotary.index(half + 1)).expect("even and within the head");
        let (grad_hidden, grad_q_weight, grad_k_weight, grad_v_weight) = outputs;
        let outputs = Requested { grad_hidden, grad_q_weight, grad_k_weight, grad_v_weight };
        let pairing = if interleaved { Pairing::Interleaved } else { Pairing::HalfSplit };
        Problem { pairing, outputs, ..Problem::new(dims) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_problems_agree_with_f64(
        problem in problems(), recipe in recipes(), arrangement in arrangements(), seed in any::<u64>(),
    ) {
        let inputs = Arranged::new(&OwnedInputs::generate(problem.dims, recipe, seed), arrangement);
        for backend in backends() {
            let options = CheckOptions { exact: recipe == Recipe::Exact, start_seed: seed, ..CheckOptions::default() };
            let report = check(&backend, &problem, &inputs.views(), options, &silent).expect("a session");
            prop_assert!(report.passed(), "{} on {:?} {recipe}: {:?}", report.backend, problem, report.failures);
        }
    }

    #[test]
    fn bits_depend_on_neither_threads_nor_alignment(problem in problems(), offset in 0usize..17, seed in any::<u64>()) {
        let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, seed);
        let dense = Arranged::new(&inputs, Arrangement::Offset(0));
        let shifted = Arranged::new(&inputs, Arrangement::Offset(offset));
        for isa in Isa::available() {
            let expected = bits(&backend(isa, 1), &problem, &dense, 0);
            for threads in [1, 2, 4] {
                prop_assert!(bits(&backend(isa, threads), &problem, &shifted, offset) == expected, "{isa}, {threads} threads");
            }
        }
    }
}

#[test]
fn a_session_gives_the_same_bits_again_and_again() {
    let problem = Problem::new(dims(1, 700, 130, 3, 1, 24));
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 1);
    for backend in backends() {
        let mut session = backend.session(&problem).expect("a session");
        let mut run = || {
            let mut outputs = OwnedOutputs::poisoned(&problem, 0);
            session.backward(&inputs.views(), &mut outputs.views()).expect("a valid call");
            Tensor::OUTPUTS.map(|tensor| outputs.tensor(tensor).expect("requested").to_vec())
        };
        let first = run();
        assert!((0..5).all(|_| run() == first), "{}", backend.name());
    }
}

/// What an earlier call left in the workspace, NaN even, must not reach the next.
#[test]
fn a_session_forgets_the_call_before() {
    let problem = Problem::new(dims(1, 515, 60, 2, 1, 6));
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 1);
    let poison = OwnedInputs::generate(problem.dims, Recipe::NonFinite, 2);
    for backend in backends() {
        let mut session = backend.session(&problem).expect("a session");
        let mut run = |inputs: &OwnedInputs| {
            let mut outputs = OwnedOutputs::poisoned(&problem, 0);
            session.backward(&inputs.views(), &mut outputs.views()).expect("a valid call");
            Tensor::OUTPUTS.map(|tensor| outputs.tensor(tensor).expect("requested").to_vec())
        };
        let before = run(&inputs);
        run(&poison);
        assert!(run(&inputs) == before, "{}", backend.name());
    }
}

#[test]
fn a_callers_pool_and_concurrent_sessions_are_right() {
    let pool = Arc::new(rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads"));
    let problem = Problem::new(dims(2, 300, 96, 4, 2, 16));
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 1);
    let dense = Arranged::new(&inputs, Arrangement::Offset(0));
    for isa in Isa::available() {
        let expected = bits(&backend(isa, 1), &problem, &dense, 0);
        let shared = CpuBackend::new(CpuOptions { isa: Some(isa), threads: Threads::Pool(pool.clone()) });
        let shared = shared.expect("an available instruction set");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| assert!(bits(&shared, &problem, &dense, 1) == expected, "{isa}"));
            }
        });
        let current = CpuBackend::new(CpuOptions { isa: Some(isa), threads: Threads::Current });
        let current = current.expect("an available instruction set");
        assert!(pool.install(|| bits(&current, &problem, &dense, 2)) == expected, "{isa}");
    }
}

#[test]
fn long_sums_stay_within_the_bound() {
    let problem = Problem::new(dims(1, 65_536, 16, 1, 1, 8));
    for recipe in [Recipe::Benchmark, Recipe::Positive] {
        let inputs = OwnedInputs::generate(problem.dims, recipe, 3);
        for backend in backends() {
            let report =
                check(&backend, &problem, &inputs.views(), CheckOptions::default(), &silent).expect("a session");
            assert!(report.passed(), "{}: {:?}", report.backend, report.failures);
        }
    }
}

#[test]
fn other_precisions_are_refused_with_the_reason() {
    let problem = Problem { precision: Precision::Fast, ..Problem::new(dims(1, 8, 8, 1, 1, 8)) };
    let backend = backend(Isa::Portable, 1);
    let error = backend.session(&problem).err().expect("a refusal");
    let why = "its precision is ieee; split and fast are for tensor cores".to_owned();
    assert_eq!(error, Error::Refused { backend: "cpu-portable".to_owned(), why });
    assert_eq!(backend.plan(&problem).err(), Some(error));
}

#[test]
fn a_wrong_call_writes_nothing() {
    let problem = Problem::new(dims(1, 8, 8, 1, 1, 8));
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 1).without(Tensor::KWeight);
    let mut outputs = OwnedOutputs::poisoned(&problem, 0);
    let backend = backend(Isa::Portable, 1);
    let mut session = backend.session(&problem).expect("a session");
    let error = session.backward(&inputs.views(), &mut outputs.views()).expect_err("no k_weight");
    assert_eq!(error, Error::MissingInput { tensor: Tensor::KWeight, needed_by: Tensor::GradHiddenStates });
    let untouched = |tensor| outputs.tensor(tensor).expect("requested").iter().all(|value| value.is_nan());
    assert!(Tensor::OUTPUTS.into_iter().all(untouched));
}

#[test]
fn a_plan_needs_nothing_of_the_machine_but_says_what_it_would_take() {
    let problem = Problem::new(dims(1, 8192, 1536, 24, 4, 96));
    for backend in backends() {
        let plan = backend.plan(&problem).expect("a plan");
        let kernels: Vec<&str> = plan.steps.iter().map(|step| step.kernel.as_str()).collect();
        assert_eq!(kernels, ["pack W", "un-rotate and pack U", "pack X", "U·W", "Uᵀ·X"]);
        assert_eq!(plan.steps.iter().map(|step| step.flops).sum::<u128>(), plan.cost.flops);
        assert!(plan.workspace_bytes <= 64 << 20, "{}", plan.workspace_bytes);
        assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    }
}

//! What needs a GPU. With the feature `gpu-tests` a missing GPU is a failure; without it these tests say that they did
//! not run.

#[cfg(not(feature = "gpu-tests"))]
#[test]
#[expect(clippy::print_stderr, reason = "says what was left out")]
fn gpu_tests_were_not_run() {
    let why = match qkv_rope_cuda::device_count() {
        Ok(count) => format!("{count} GPU(s) here"),
        Err(error) => error.to_string(),
    };
    eprintln!("not run: the tests on a GPU; ask for them with --features gpu-tests ({why})");
}

#[cfg(not(feature = "gpu-tests"))]
#[test]
fn asking_for_a_gpu_that_is_not_there_is_a_clear_error() {
    let error = qkv_rope_cuda::Gpu::open(1000).expect_err("nobody has a thousand GPUs").to_string();
    let says = error.contains("no NVIDIA driver") && error.contains("libcuda") || error.contains("no GPU 1000");
    assert!(says, "{error}");
}

#[cfg(feature = "gpu-tests")]
mod on_a_gpu {
    use kernelproof_eval::check::{CheckOptions, Depth, check, silent};
    use qkv_rope_cuda::CudaBackend;
    use qkv_rope_op::{Dims, OwnedInputs, Precision, Problem, Recipe, SUITE};

    fn passes(dims: Dims, recipe: Recipe) {
        let backend = CudaBackend::open(0).expect("gpu-tests was asked for");
        for precision in [Precision::Fast, Precision::Split] {
            let problem = Problem { precision, ..Problem::new(dims) };
            let inputs = OwnedInputs::generate(dims, recipe, 3);
            let options = CheckOptions { depth: Depth::Full, exact: recipe == Recipe::Exact, start_seed: 4 };
            let report = check(&backend, &problem, &inputs.views(), options, &silent).unwrap();
            assert!(report.passed(), "{precision:?} {recipe}: {:?}", report.failures);
        }
    }

    #[test]
    fn the_smallest_case_agrees_with_f64_on_every_kind_of_input() {
        for recipe in Recipe::ALL {
            passes(SUITE[0].dims(), recipe);
        }
    }

    #[test]
    fn ragged_sizes_agree_with_f64() {
        passes(Dims::new(3, 37, 101, 3, 1, 10).unwrap(), Recipe::Benchmark);
        passes(Dims::new(1, 1, 1, 1, 1, 2).unwrap(), Recipe::Exact);
        passes(Dims::new(0, 5, 12, 2, 1, 4).unwrap(), Recipe::Benchmark);
    }
}

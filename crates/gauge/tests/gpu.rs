//! On a real GPU: the backend passes the full protocol by both timers, and a graph computes what launches do. Without feature
//! `gpu-tests` only the absence of a GPU is shown.

#[cfg(not(feature = "gpu-tests"))]
#[test]
fn a_machine_without_a_driver_says_what_was_looked_for() {
    use kernelproof_gauge::{Stopwatch, TimerChoice};
    if qkv_rope_cuda::device_count().is_ok() {
        return;
    }
    for choice in [TimerChoice::Best, TimerChoice::Cupti, TimerChoice::Events] {
        let error = Stopwatch::open(0, choice).expect_err("there is no driver").to_string();
        assert!(error.starts_with("no NVIDIA driver: none of"), "{error}");
    }
}

#[cfg(feature = "gpu-tests")]
mod with_a_gpu {
    use std::ops::ControlFlow;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use kernelproof_eval::evaluation::{Status, Telemetry};
    use kernelproof_eval::flush::CacheFlush;
    use kernelproof_eval::judge::{Bench, Rules, judge};
    use kernelproof_eval::measure::{Contestant as _, MonotonicClock};
    use kernelproof_gauge::{CudaContestant, CudaSubject, Launch, Monitor, Stopwatch, TimerChoice};
    use qkv_rope_op::{Dims, OwnedInputs, Precision, Problem, Recipe, Tensor};

    fn problem(precision: Precision) -> Problem {
        Problem { precision, ..Problem::new(Dims::new(2, 128, 1536, 24, 4, 96).expect("valid")) }
    }

    /// Records are of the whole process and its GPU, so what another test does there would be counted.
    static GPU: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        GPU.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn the_backend_passes_by_both_timers_which_agree() {
        let _alone = alone();
        let mut medians = Vec::new();
        for choice in [TimerChoice::Cupti, TimerChoice::Events] {
            let stopwatch = Stopwatch::open(0, choice).expect("a GPU, and CUPTI");
            let mut bench = Bench {
                clock: &MonotonicClock::default(),
                flush: &mut CacheFlush::new(0, 1),
                telemetry: &Telemetry::default,
                least_ns: &|_| 1.0,
                watch: &mut || ControlFlow::Continue(()),
            };
            let rules = Rules::full(200, 5);
            let mut subject = CudaSubject::new(&stopwatch);
            let result =
                judge(&mut subject, problem(Precision::Split), &rules, &mut bench, ("t", "2026-01-01T00:00:00Z"));
            assert_eq!(result.status, Status::Passed, "{:?}", result.detail);
            assert_eq!(result.activities.is_some(), choice == TimerChoice::Cupti);
            medians.push(result.median_ns().expect("it passed"));
        }
        let apart_ns = (medians[0] - medians[1]).abs();
        assert!(apart_ns < 4000_f64.max(0.03 * medians[0]), "{medians:?}");
    }

    #[test]
    fn a_graph_computes_what_launches_do() {
        let _alone = alone();
        let stopwatch = Stopwatch::open(0, TimerChoice::Best).expect("a GPU");
        for precision in [Precision::Fast, Precision::Split] {
            let problem = problem(precision);
            let inputs = [200, 201].map(|seed| OwnedInputs::generate(problem.dims, Recipe::Benchmark, seed));
            let outputs = [Launch::Graph, Launch::Stream].map(|launch| {
                let mut contestant = CudaContestant::new(&stopwatch, problem, &inputs, launch).expect("it fits");
                contestant.prepare(1).expect("there are two sets");
                assert!(contestant.run_once(&MonotonicClock::default()).expect("it runs") > 0);
                contestant.outputs().expect("it runs")
            });
            for tensor in Tensor::OUTPUTS {
                assert_eq!(outputs[0].tensor(tensor), outputs[1].tensor(tensor), "{tensor}");
            }
        }
    }

    #[test]
    fn the_gpu_says_what_it_is() {
        let _alone = alone();
        let stopwatch = Stopwatch::open(0, TimerChoice::Events).expect("a GPU");
        let monitor = Monitor::new(stopwatch.gpu()).expect("a driver");
        assert!(monitor.facts().board.starts_with("sha256:") && monitor.facts().driver.is_some());
        assert!(monitor.read().sm_mhz.is_some_and(|clock_mhz| clock_mhz > 0));
    }
}

use qkv_rope_op::{Problem, SUITE};

use super::*;
use crate::check::Bounds;

fn case(index: usize, time_ns: u64, baseline_ns: Option<f64>) -> CaseResult {
    let problem = Problem::new(SUITE[index].dims());
    CaseResult {
        name: SUITE[index].name(),
        id: Some(SUITE[index].id()),
        problem,
        status: Status::Passed,
        detail: None,
        observed: "2026-01-01T00:00:00Z".to_owned(),
        bounds: Bounds::of(problem.precision),
        rounds: Vec::new(),
        audit: None,
        spot_checked_calls: 60,
        samples_ns: vec![time_ns; 50],
        activities: None,
        telemetry: Vec::new(),
        baseline_ns,
    }
}

fn evaluation(cases: Vec<CaseResult>) -> Evaluation {
    let ceiling = |resource, per_ns| Ceiling {
        resource,
        origin: Origin::Measured,
        precision: None,
        per_ns,
        source: "a loop".to_owned(),
    };
    Evaluation {
        ceilings: vec![ceiling(Resource::Arithmetic, 100.0), ceiling(Resource::Bandwidth, 1.0)],
        cases,
        ..empty()
    }
}

/// An evaluation without cases or ceilings.
fn empty() -> Evaluation {
    let text = r#"{
        "schema": "kernelproof.evaluation/1", "observed": "2026-01-01T00:00:00Z", "command": [], "ceilings": [], "cases": [],
        "baseline": null,
        "implementation": {
            "name": "x", "author": null, "languages": ["rust"], "licence": null, "install": null, "entry_point": "x",
            "source": {"repository": null, "commit": null, "digest": null}, "device": "cpu", "precision": "ieee",
            "threads": 2, "build_flags": [], "binaries": {}, "runtime": {}
        },
        "protocol": {
            "version": "1", "quick": false, "timer": "t", "check_rounds": 10, "warmup_calls": 10, "timed_calls": 50,
            "statistic": "median", "flush_bytes": 1, "offset_bytes": [256, 2048], "public_seed": 200, "secret_seed": 1,
            "call_limit_ns": 1, "memory_limit_bytes": null, "handshake_ns": [],
            "evaluator": {"version": "0", "commit": "c", "rustc": "r", "profile": "release", "mutation_score": null}
        },
        "environment": {
            "device": "d", "cpu": "c", "threads_available": 2, "last_level_cache_bytes": 1, "memory_bytes": 1, "os": "o",
            "kernel": "k", "target": "t", "clock_policy": null, "virtualisation": null
        }
    }"#;
    serde_json::from_str(text).expect("it is an evaluation")
}

#[test]
fn speed_of_light_is_the_larger_of_both_floors() {
    let whole = evaluation(vec![case(0, 100_000_000, None)]);
    let cost = whole.cases[0].cost();
    let light = whole.speed_of_light(cost, Origin::Measured).expect("both ceilings are known");
    assert_eq!(light.bound_by, Resource::Arithmetic);
    assert!((light.time_ns - cost.flops as f64 / 100.0).abs() < 1e-6);
    assert_eq!(whole.speed_of_light(cost, Origin::Datasheet), None, "the two origins are never mixed");
    let share = whole.share_of_light(&whole.cases[0], Origin::Measured).expect("it passed");
    assert!((share - light.time_ns / 1e8).abs() < 1e-12);
}

#[test]
fn the_score_is_a_half_at_the_baseline_and_nothing_for_a_failed_case() {
    let at_baseline = evaluation(vec![case(0, 200_000_000, Some(2e8)), case(1, 900_000_000, Some(9e8))]);
    let aggregates = at_baseline.aggregates(Origin::Measured);
    assert!((aggregates.score.expect("all is known") - 0.5).abs() < 1e-9);
    let mean = aggregates.geometric_mean_ns.expect("all passed");
    assert!((mean - (2e8_f64 * 9e8).sqrt()).abs() < 1.0);
    let mut failed = at_baseline.clone();
    failed.cases[1].status = Status::WrongValues;
    let aggregates = failed.aggregates(Origin::Measured);
    assert!((aggregates.score.expect("all is known") - 0.25).abs() < 1e-9);
    assert_eq!((aggregates.passed, aggregates.geometric_mean_ns), (1, None));
    assert_eq!(evaluation(vec![case(0, 1, None)]).aggregates(Origin::Measured).score, None);
}

#[test]
fn only_a_whole_full_undisturbed_release_run_may_rank() {
    let whole = evaluation((0..SUITE.len()).map(|index| case(index, 1 << 30, None)).collect());
    assert!(whole.may_rank());
    let mut quick = whole.clone();
    quick.protocol.quick = true;
    let mut part = whole.clone();
    part.cases.pop();
    let mut debug = whole.clone();
    debug.protocol.evaluator.profile = "debug".to_owned();
    let mut stolen = whole.clone();
    let ticks = |busy, stolen| Telemetry { busy_ticks: Some(busy), stolen_ticks: Some(stolen), ..Telemetry::default() };
    stolen.cases[3].telemetry = vec![ticks(0, 0), ticks(90, 10)];
    assert_eq!(stolen.cases[3].stolen_share(), Some(0.1));
    let gpu = |reason: &str| {
        let clock_reasons = Some(vec![reason.to_owned()]);
        Telemetry { gpu: Some(GpuReading { clock_reasons, ..GpuReading::default() }), ..ticks(0, 0) }
    };
    let mut hot = whole.clone();
    hot.cases[3].telemetry = vec![gpu("idle"), gpu("thermal-slowdown"), gpu("idle")];
    let mut busy_host = whole.clone();
    busy_host.cases[3].telemetry =
        vec![gpu("idle"), Telemetry { busy_ticks: Some(90), stolen_ticks: Some(10), ..gpu("idle") }];
    assert!(busy_host.may_rank(), "a GPU does not mind what its host loses");
    for refused in [quick, part, debug, stolen, hot] {
        assert!(!refused.may_rank());
    }
}

#[test]
fn an_evaluation_survives_its_file() {
    let whole = evaluation(vec![case(0, 5, Some(1.5))]);
    let text = serde_json::to_string(&whole).expect("it is plain data");
    assert_eq!(serde_json::from_str::<Evaluation>(&text).expect("it is an evaluation"), whole);
}

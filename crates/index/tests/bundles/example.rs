//! An evaluation that nobody made, consistent in itself.

use std::collections::BTreeMap;

use kernelproof_eval::check::{Agreement, Bounds, Depth};
use kernelproof_eval::evaluation::{
    Audit, CaseResult, Ceiling, Environment, Evaluation, Evaluator, Implementation, Origin, ProtocolFacts, Resource,
    Round, SCHEMA, Source, Status, Telemetry,
};
use kernelproof_index::Bundle;
use kernelproof_index::bundle::Attached;
use qkv_rope_op::{Case, Precision, Problem, SUITE, Tensor};

/// Samples of each case.
pub(crate) const TIMED_CALLS: u32 = 5;

pub(crate) fn bundle() -> Bundle {
    Bundle::of(evaluation(), attached()).expect("it is consistent")
}

/// A log and no solution.
pub(crate) fn attached() -> Attached {
    let logs = BTreeMap::from([("evaluation.log".to_owned(), b"2 cases passed\n".to_vec())]);
    Attached { solution: None, logs }
}

/// Two cases that passed.
pub(crate) fn evaluation() -> Evaluation {
    Evaluation {
        schema: SCHEMA.to_owned(),
        observed: "2026-01-02T03:04:05Z".to_owned(),
        command: ["kernelproof", "eval", "cpu-avx2"].map(str::to_owned).to_vec(),
        implementation: implementation(),
        protocol: protocol(),
        environment: environment(),
        ceilings: vec![ceiling(Resource::Arithmetic, 250.0), ceiling(Resource::Bandwidth, 20.0)],
        baseline: Some("pytorch-eager".to_owned()),
        cases: vec![case(SUITE[0]), case(SUITE[9])],
    }
}

fn implementation() -> Implementation {
    Implementation {
        name: "cpu-avx2".to_owned(),
        author: Some("someone".to_owned()),
        languages: vec!["rust".to_owned()],
        source: Source {
            repository: Some("https://example.org/kernels".to_owned()),
            commit: Some("0123456789ab".to_owned()),
            digest: None,
        },
        licence: Some("MIT".to_owned()),
        install: Some("cargo add kernels".to_owned()),
        entry_point: "kernels::run".to_owned(),
        device: "cpu".to_owned(),
        precision: Precision::Ieee,
        threads: 2,
        build_flags: Vec::new(),
        binaries: BTreeMap::from([("kernels".to_owned(), kernelproof_index::Digest::of(b"kernels").to_string())]),
        runtime: BTreeMap::new(),
    }
}

fn protocol() -> ProtocolFacts {
    ProtocolFacts {
        version: "kernelproof 1".to_owned(),
        quick: true,
        timer: "wall clock around the call".to_owned(),
        check_rounds: 2,
        warmup_calls: 1,
        timed_calls: TIMED_CALLS,
        statistic: "median".to_owned(),
        flush_bytes: 64 << 20,
        offset_bytes: [256, 2048],
        public_seed: 200,
        secret_seed: 4242,
        call_limit_ns: 60_000_000_000,
        memory_limit_bytes: None,
        handshake_ns: Vec::new(),
        evaluator: Evaluator {
            version: "0.1.0".to_owned(),
            commit: "0123456789ab".to_owned(),
            rustc: "rustc 1.95.0".to_owned(),
            profile: "release".to_owned(),
            mutation_score: None,
        },
    }
}

fn environment() -> Environment {
    Environment {
        device: "Example CPU".to_owned(),
        cpu: "Example CPU".to_owned(),
        threads_available: 2,
        last_level_cache_bytes: 32 << 20,
        memory_bytes: 16 << 30,
        os: "Linux".to_owned(),
        kernel: "6.1".to_owned(),
        target: "x86_64-linux".to_owned(),
        clock_policy: None,
        virtualisation: None,
        gpu: None,
    }
}

fn ceiling(resource: Resource, per_ns: f64) -> Ceiling {
    let precision = (resource == Resource::Arithmetic).then_some(Precision::Ieee);
    Ceiling { resource, origin: Origin::Measured, precision, per_ns, source: "a loop".to_owned() }
}

fn case(case: Case) -> CaseResult {
    let tokens = case.dims().tokens() as u64;
    let samples = (0..u64::from(TIMED_CALLS)).map(|call| tokens * 100_000 + 1_000 * call);
    CaseResult {
        name: case.name(),
        id: Some(case.id()),
        problem: Problem::new(case.dims()),
        status: Status::Passed,
        detail: None,
        observed: "2026-01-02T03:04:06Z".to_owned(),
        bounds: Bounds::of(Precision::Ieee),
        rounds: vec![round(200, Depth::Full), round(77, Depth::Sampled { seed: 77 })],
        audit: Some(Audit { call: 3, agreements: agreements(), failures: Vec::new() }),
        spot_checked_calls: 6,
        samples_ns: samples.collect(),
        activities: None,
        telemetry: vec![Telemetry::default(), Telemetry { after_calls: TIMED_CALLS, ..Telemetry::default() }],
        baseline_ns: Some(tokens as f64 * 150_000.0),
    }
}

fn round(seed: u64, depth: Depth) -> Round {
    Round { seed, depth, agreements: agreements(), repeatable: Some(true), failures: Vec::new() }
}

fn agreements() -> Vec<Agreement> {
    let agreement = |tensor| Agreement {
        tensor,
        compared: 1024,
        normwise: 1.5e-7,
        conditioned: 1.5e-7,
        componentwise: 3e-7,
        worst: None,
        bias: -1e-9,
        bias_chance: 1e-3,
        matched: 1.0,
        misplaced: 0,
        first_misplaced: None,
        inexact: 12,
        first_inexact: None,
        all_zero: false,
    };
    Tensor::OUTPUTS.map(agreement).to_vec()
}

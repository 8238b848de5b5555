//! Bundles made from a recipe, by the thousand.

use std::collections::BTreeMap;
use std::path::Path;

use kernelproof_eval::check::{Agreement, Bounds, Depth};
use kernelproof_eval::evaluation::{
    Audit, CaseResult, Ceiling, Environment, Evaluation, Evaluator, Implementation, Origin, ProtocolFacts, Resource,
    Round, SCHEMA, Source, Status, Telemetry,
};
use qkv_rope_op::{Case, Precision, Problem, SUITE, Tensor};

use crate::bundle::{Attached, Bundle};
use crate::catalog::RunFacts;
use crate::identity::Digest;
use crate::manifest::ManifestError;
use crate::store::{ManifestKind, Store, StoreError, Writer};

/// What a made-up run says.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Name of the implementation.
    pub name: String,
    /// Version of its source.
    pub commit: String,
    /// Start, UTC, RFC 3339.
    pub observed: String,
    /// Name of the device.
    pub device: String,
    /// Kind of the device.
    pub device_kind: String,
    /// Version of its driver.
    pub driver: Option<String>,
    /// How operands are rounded.
    pub mode: Precision,
    /// Time of a token, in ns.
    pub scale_ns: f64,
    /// Draws the samples.
    pub seed: u64,
    /// Samples of each case.
    pub timed_calls: u32,
    /// Version of the protocol.
    pub protocol: String,
    /// Whether it is a quick run.
    pub quick: bool,
    /// SPDX expression.
    pub licence: Option<String>,
    /// A case (its place in the suite) that did not pass, and how it ended.
    pub failed: Option<(usize, Status)>,
    /// Cases of the suite that it has.
    pub cases: usize,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            name: "example".to_owned(),
            commit: "0123456789ab".to_owned(),
            observed: "2026-01-02T03:04:05Z".to_owned(),
            device: "Example CPU".to_owned(),
            device_kind: "cpu".to_owned(),
            driver: None,
            mode: Precision::Ieee,
            scale_ns: 30_000.0,
            seed: 1,
            timed_calls: 9,
            protocol: "example.protocol/1".to_owned(),
            quick: false,
            licence: Some("MIT".to_owned()),
            failed: None,
            cases: SUITE.len(),
        }
    }
}

/// The bundle of a recipe. It verifies unless the recipe asks for what no run may say.
///
/// # Panics
/// When the recipe has a text that no manifest may have, such as an empty name.
pub fn bundle(recipe: &Recipe) -> Bundle {
    Bundle::of(evaluation(recipe), attached()).expect("the recipe makes a run")
}

/// Fills a store with made-up runs of several implementations, devices and modes, a few of them quick or failed. `progress` is
/// told how many are done.
///
/// # Errors
/// When the store cannot be written.
pub fn fill(store: &Store, runs: usize, progress: &mut dyn FnMut(usize)) -> Result<(), StoreError> {
    // Not too many in a transaction: another writer waits as long as it takes.
    const TOGETHER: usize = 500;
    let all: Vec<usize> = (0..runs).collect();
    for some in all.chunks(TOGETHER) {
        store.write("generate", |writer| {
            for &number in some {
                add(writer, &bundle(&numbered(number)), store.path())?;
                progress(number + 1);
            }
            Ok::<(), StoreError>(())
        })?;
    }
    Ok(())
}

fn add(writer: &Writer<'_>, bundle: &Bundle, path: &Path) -> Result<(), StoreError> {
    let made_up = |error: ManifestError| StoreError::altered(path, "a made-up run", error);
    let files = bundle.files().map_err(made_up)?;
    let facts = RunFacts::of_files(bundle, &files, crate::catalog::Origin::Records).map_err(made_up)?;
    if !writer.has_manifest(ManifestKind::Operation, &facts.operation)? {
        writer.manifest(ManifestKind::Operation, &bundle.operation)?;
        writer.manifest(ManifestKind::Suite, &bundle.suite)?;
    }
    writer.run(&facts, files.all())?;
    writer.committed(&facts.id).map(drop)
}

/// The recipe of a run by its number: 40 implementations, 4 devices, 3 modes, a run every ten minutes.
fn numbered(number: usize) -> Recipe {
    let (who, device) = (number % 40, number / 40 % 4);
    let kind = if device == 0 { "cpu" } else { "cuda" };
    let mode = match (device, who % 2) {
        (0, _) => Precision::Ieee,
        (_, 0) => Precision::Split,
        _ => Precision::Fast,
    };
    let minutes = number * 10;
    let (day, hour, minute) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    let (month, day) = (day / 28 % 12 + 1, day % 28 + 1);
    let scale_ns = if device == 0 { 30_000.0 } else { 100.0 };
    Recipe {
        name: format!("example-{who:02}"),
        observed: format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:00Z"),
        device: format!("Example {} {device}", kind.to_uppercase()),
        device_kind: kind.to_owned(),
        mode,
        // Later runs are a little faster, so that there is a history of records.
        scale_ns: scale_ns * (1.0 + 0.05 * who as f64) / (1.0 + number as f64 * 1e-5),
        seed: number as u64 + 1,
        quick: number % 97 == 96,
        failed: (number % 89 == 88).then_some((number % SUITE.len(), Status::TimedOut)),
        ..Recipe::default()
    }
}

/// A log and no solution.
pub fn attached() -> Attached {
    let logs = BTreeMap::from([("evaluation.log".to_owned(), b"made up\n".to_vec())]);
    Attached { solution: None, logs }
}

/// The evaluation of a recipe.
pub fn evaluation(recipe: &Recipe) -> Evaluation {
    let mut draws = Draws::new(recipe.seed);
    Evaluation {
        schema: SCHEMA.to_owned(),
        observed: recipe.observed.clone(),
        command: ["kernelproof", "eval", "--impl", &recipe.name, "--all"].map(str::to_owned).to_vec(),
        implementation: implementation(recipe),
        protocol: protocol(recipe),
        environment: environment(recipe),
        ceilings: vec![
            ceiling(Resource::Arithmetic, Some(recipe.mode), 25_000_000.0 / recipe.scale_ns),
            ceiling(Resource::Bandwidth, None, 2_000_000.0 / recipe.scale_ns),
        ],
        baseline: None,
        cases: SUITE
            .into_iter()
            .take(recipe.cases)
            .enumerate()
            .map(|(at, it)| case(recipe, at, it, &mut draws))
            .collect(),
    }
}

fn implementation(recipe: &Recipe) -> Implementation {
    let mut runtime = BTreeMap::from([("rustc".to_owned(), "rustc 1.95.0".to_owned())]);
    runtime.extend(recipe.driver.iter().map(|driver| ("driver".to_owned(), driver.clone())));
    Implementation {
        name: recipe.name.clone(),
        author: Some("Nobody".to_owned()),
        languages: vec!["rust".to_owned()],
        source: Source {
            repository: Some("https://example.org/kernels".to_owned()),
            commit: Some(recipe.commit.clone()),
            digest: None,
        },
        licence: recipe.licence.clone(),
        install: Some("cargo add kernels".to_owned()),
        entry_point: "kernels::run".to_owned(),
        device: recipe.device_kind.clone(),
        precision: recipe.mode,
        threads: 2,
        build_flags: Vec::new(),
        binaries: BTreeMap::from([("kernels".to_owned(), Digest::of(recipe.name.as_bytes()).to_string())]),
        runtime,
    }
}

fn protocol(recipe: &Recipe) -> ProtocolFacts {
    ProtocolFacts {
        version: recipe.protocol.clone(),
        quick: recipe.quick,
        timer: "made up".to_owned(),
        check_rounds: 1,
        warmup_calls: 1,
        timed_calls: recipe.timed_calls,
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
            mutation_score: Some([64, 64]),
        },
    }
}

fn environment(recipe: &Recipe) -> Environment {
    Environment {
        device: recipe.device.clone(),
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

fn ceiling(resource: Resource, precision: Option<Precision>, per_ns: f64) -> Ceiling {
    Ceiling { resource, origin: Origin::Measured, precision, per_ns, source: "made up".to_owned() }
}

fn case(recipe: &Recipe, place: usize, case: Case, draws: &mut Draws) -> CaseResult {
    let tokens = case.dims().tokens() as f64;
    let typical = tokens * recipe.scale_ns;
    // Within half a per cent of the typical time.
    let sample = |draws: &mut Draws| (typical * (1.0 + 0.005 * draws.next())) as u64;
    let bounds = Bounds::of(recipe.mode);
    let status = recipe.failed.filter(|(failed, _)| *failed == place).map_or(Status::Passed, |(_, status)| status);
    let passed = status == Status::Passed;
    CaseResult {
        name: case.name(),
        id: Some(case.id()),
        problem: Problem { precision: recipe.mode, ..Problem::new(case.dims()) },
        status,
        detail: (!passed).then(|| "made up".to_owned()),
        observed: recipe.observed.clone(),
        bounds,
        rounds: vec![Round {
            seed: 200,
            depth: Depth::Full,
            agreements: agreements(&bounds),
            repeatable: Some(true),
            failures: Vec::new(),
        }],
        audit: passed.then(|| Audit { call: 3, agreements: agreements(&bounds), failures: Vec::new() }),
        spot_checked_calls: recipe.timed_calls + 1,
        samples_ns: if passed { (0..recipe.timed_calls).map(|_| sample(draws)).collect() } else { Vec::new() },
        activities: None,
        telemetry: vec![Telemetry::default(), Telemetry { after_calls: recipe.timed_calls, ..Telemetry::default() }],
        baseline_ns: Some((typical * 2.5).round()),
    }
}

fn agreements(bounds: &Bounds) -> Vec<Agreement> {
    let agreement = |tensor| Agreement {
        tensor,
        compared: 1024,
        normwise: bounds.normwise / 4.0,
        conditioned: bounds.normwise / 4.0,
        componentwise: bounds.componentwise / 5.0,
        worst: None,
        bias: 0.0,
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

/// Numbers that are the same on every machine (xorshift).
struct Draws(u64);

impl Draws {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From -1 up to 1.
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % 2_000_001) as f64 / 1_000_000.0 - 1.0
    }
}

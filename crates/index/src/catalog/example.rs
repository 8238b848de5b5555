//! A catalog that nobody measured, with one of everything that a page has to show.

use std::collections::HashMap;

use kernelproof_eval::evaluation::Status;

use crate::bundle::Bundle;
use crate::correction::{Action, Correction};
use crate::external::{ExternalRun, Figure, Reference};
use crate::identity::Digest;
use crate::manifest::Manifest;
use crate::testing::generate::{Recipe, bundle};

use super::{Catalog, DocumentError, Documents, Facts, Origin, RunFacts};

/// The files of the example's bundles.
#[derive(Clone, Debug, Default)]
pub struct ExampleDocuments(HashMap<Digest, std::collections::BTreeMap<String, Vec<u8>>>);

impl Documents for ExampleDocuments {
    fn file(&self, run: &Digest, name: &str) -> Result<Option<Vec<u8>>, DocumentError> {
        Ok(self.0.get(run).and_then(|files| files.get(name)).cloned())
    }
}

impl Catalog {
    /// Two devices, two modes, a tie, replicates, a retracted, a failed and a quick run, two sources of others.
    pub fn example() -> Self {
        Self::example_with_documents().0
    }

    /// The same, and the files of its bundles.
    pub fn example_with_documents() -> (Self, ExampleDocuments) {
        let (facts, documents) = example_facts();
        (Self::build(facts), documents)
    }
}

/// What the example is built from.
pub(super) fn example_facts() -> (Facts, ExampleDocuments) {
    let bundles = bundles();
    let mut facts = Facts { generation: 1, ..Facts::default() };
    let mut documents = ExampleDocuments::default();
    for (index, bundle) in bundles.iter().enumerate() {
        let origin = match index {
            2 => Origin::Submission { submitter: "someone".to_owned(), received: "2026-01-05T00:00:00Z".to_owned() },
            _ => Origin::Records,
        };
        let run = RunFacts::of(bundle, origin).expect("the example is consistent");
        let files = bundle.files().expect("the example is consistent").all().clone();
        documents.0.insert(run.id, files);
        facts.operations = vec![(run.operation, bundle.operation.clone())];
        facts.suites = vec![(run.suite, bundle.suite.clone())];
        facts.runs.push(run);
    }
    let retracted = facts.runs[5].id;
    facts.corrections = vec![identified(Correction {
        target: retracted,
        action: Action::Retract,
        reason: "a neighbour used the same core <b>".to_owned(),
        decided: "2026-01-20T00:00:00Z".to_owned(),
    })];
    let operation = facts.runs[0].operation;
    facts.externals = [("Someone", "81.9µs", 81_900.0, Some("2026-01-10")), ("Someone else", "82.0µs", 82_000.0, None)]
        .map(|(name, text, value, observed)| identified(external(operation, name, text, value, observed)))
        .to_vec();
    (facts, documents)
}

fn bundles() -> Vec<Bundle> {
    let recipe = |name: &str, day: u32, scale_ns: f64| Recipe {
        name: name.to_owned(),
        observed: format!("2026-01-{day:02}T03:04:05Z"),
        scale_ns,
        seed: u64::from(day),
        ..Recipe::default()
    };
    let gpu = |recipe: Recipe, mode| Recipe {
        device: "Example GPU".to_owned(),
        device_kind: "cuda".to_owned(),
        mode,
        ..recipe
    };
    let split = qkv_rope_op::Precision::Split;
    let fast = qkv_rope_op::Precision::Fast;
    let recipes = vec![
        recipe("example-fast", 2, 30_000.0),
        recipe("example-fast", 3, 30_100.0),
        recipe("example-fast", 4, 30_050.0),
        recipe("example-tied", 5, 30_300.0),
        Recipe { licence: None, ..recipe("example-unlicensed", 6, 60_000.0) },
        recipe("example-retracted", 7, 20_000.0),
        Recipe { failed: Some((3, Status::WrongValues)), ..recipe("example-wrong", 8, 25_000.0) },
        Recipe { quick: true, ..recipe("example-fast", 9, 29_000.0) },
        gpu(recipe("example-gpu", 10, 100.0), split),
        gpu(recipe("example-gpu-fast", 11, 40.0), fast),
        recipe("example-tied", 13, 30_310.0),
        Recipe { driver: Some("600.1".to_owned()), ..gpu(recipe("example-gpu-other", 12, 120.0), split) },
    ];
    recipes.iter().map(bundle).collect()
}

fn external(operation: Digest, name: &str, text: &str, value: f64, observed: Option<&str>) -> ExternalRun {
    ExternalRun {
        operation,
        source: Reference { document: "An example of another index".to_owned(), read_on: "2026-01-24".to_owned() },
        implementation: name.to_owned(),
        hardware: "NVIDIA B200 · env 1".to_owned(),
        workload: "suite of 16 cases · mean latency".to_owned(),
        protocol: "their stack v1.1".to_owned(),
        observed: observed.map(str::to_owned),
        figures: vec![Figure {
            name: "mean".to_owned(),
            text: text.to_owned(),
            value: Some(value),
            unit: Some("ns".to_owned()),
            axes: std::collections::BTreeMap::new(),
        }],
        caveats: vec!["called mean, is a geometric mean".to_owned()],
    }
}

fn identified<S: crate::manifest::Spec>(spec: S) -> (Digest, Manifest<S>) {
    let manifest = Manifest::new(spec);
    (manifest.digest().expect("the example is plain data"), manifest)
}

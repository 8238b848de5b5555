//! Markup in every text that comes from outside: none of it may be markup on any page.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelproof_eval::evaluation::{Evaluation, Status};
use kernelproof_index::Digest;
use kernelproof_index::bundle::{Attached, Bundle};
use kernelproof_index::catalog::{Catalog, DocumentError, Documents, Facts, Origin, RunFacts};
use kernelproof_index::correction::{Action, Correction};
use kernelproof_index::external::{ExternalRun, Figure, Reference};
use kernelproof_index::manifest::{Manifest, Spec};
use kernelproof_index::testing::generate::{Recipe, evaluation};
use kernelproof_site::Site;

use crate::exported;

/// Breaks out of an attribute, of a text, of a script and of a comment, if it is let.
const MARKUP: &str = "x\"'><img src=x onerror=alert(1)><script>alert(1)</script><!-- &lt; {{7*7}} -->";

/// The same without a slash, where a folder would be refused.
const WITHOUT_SLASH: &str = "x\"'><img src=x onerror=alert(1)>";

struct Files(BTreeMap<String, Vec<u8>>);

impl Documents for Files {
    fn file(&self, _: &Digest, name: &str) -> Result<Option<Vec<u8>>, DocumentError> {
        Ok(self.0.get(name).cloned())
    }
}

fn hostile(recipe: &Recipe) -> Evaluation {
    let mut run = evaluation(recipe);
    let implementation = &mut run.implementation;
    for text in [&mut implementation.name, &mut implementation.entry_point] {
        *text = MARKUP.to_owned();
    }
    implementation.author = Some(MARKUP.to_owned());
    implementation.licence = Some(MARKUP.to_owned());
    implementation.install = Some(MARKUP.to_owned());
    implementation.languages = vec![MARKUP.to_owned()];
    implementation.build_flags = vec![MARKUP.to_owned()];
    implementation.source.repository = Some(format!("javascript:{MARKUP}"));
    implementation.source.commit = Some(MARKUP.to_owned());
    implementation.binaries = [(MARKUP.to_owned(), Digest::of(b"x").to_string())].into();
    implementation.runtime = [(MARKUP.to_owned(), MARKUP.to_owned())].into();
    let environment = &mut run.environment;
    for text in [
        &mut environment.device,
        &mut environment.cpu,
        &mut environment.os,
        &mut environment.kernel,
        &mut environment.target,
    ] {
        *text = MARKUP.to_owned();
    }
    environment.clock_policy = Some(MARKUP.to_owned());
    environment.virtualisation = Some(MARKUP.to_owned());
    run.protocol.version = MARKUP.to_owned();
    run.protocol.timer = MARKUP.to_owned();
    run.protocol.evaluator.commit = MARKUP.to_owned();
    run.protocol.evaluator.rustc = MARKUP.to_owned();
    run.protocol.evaluator.version = MARKUP.to_owned();
    run.command = vec![WITHOUT_SLASH.to_owned()];
    run.baseline = Some(MARKUP.to_owned());
    for ceiling in &mut run.ceilings {
        ceiling.source = MARKUP.to_owned();
    }
    for case in &mut run.cases {
        case.detail = Some(MARKUP.to_owned());
    }
    run
}

fn identified<S: Spec>(spec: S) -> (Digest, Manifest<S>) {
    let manifest = Manifest::new(spec);
    (manifest.digest().expect("plain data"), manifest)
}

fn site() -> Arc<Site> {
    let mut facts = Facts { generation: 1, ..Facts::default() };
    let mut files = BTreeMap::new();
    let failed =
        Recipe { failed: Some((2, Status::Crashed)), observed: "2026-01-03T00:00:00Z".to_owned(), ..Recipe::default() };
    for recipe in [Recipe::default(), failed] {
        let logs = [("evaluation.log".to_owned(), MARKUP.as_bytes().to_vec())].into();
        let bundle = Bundle::of(hostile(&recipe), Attached { solution: None, logs }).expect("texts are free");
        let origin = Origin::Submission { submitter: MARKUP.to_owned(), received: MARKUP.to_owned() };
        let run = RunFacts::of(&bundle, origin).expect("it is consistent");
        files = bundle.files().expect("it is plain data").all().clone();
        facts.operations = vec![(run.operation, bundle.operation.clone())];
        facts.suites = vec![(run.suite, bundle.suite.clone())];
        facts.runs.push(run);
    }
    facts.operations[0].1.metadata.title = Some(MARKUP.to_owned());
    let operation = facts.operations[0].0;
    facts.externals = vec![identified(ExternalRun {
        operation,
        source: Reference { document: MARKUP.to_owned(), read_on: "2026-01-24".to_owned() },
        implementation: MARKUP.to_owned(),
        hardware: MARKUP.to_owned(),
        workload: MARKUP.to_owned(),
        protocol: MARKUP.to_owned(),
        observed: Some(MARKUP.to_owned()),
        figures: vec![Figure {
            name: MARKUP.to_owned(),
            text: MARKUP.to_owned(),
            value: Some(1.0),
            unit: Some("ns".to_owned()),
            axes: BTreeMap::new(),
        }],
        caveats: vec![MARKUP.to_owned()],
    })];
    facts.corrections = vec![identified(Correction {
        target: facts.externals[0].0,
        action: Action::Retract,
        reason: MARKUP.to_owned(),
        decided: "2026-01-24T00:00:00Z".to_owned(),
    })];
    Arc::new(Site::new(Arc::new(Catalog::build(facts)), Arc::new(Files(files))))
}

#[test]
fn no_text_from_outside_becomes_markup() {
    let files = exported(&site());
    let mut seen = 0;
    for (path, text) in &files {
        if path.ends_with(".html") || path.ends_with(".svg") || path.ends_with(".atom") {
            let lower = text.to_lowercase();
            for forbidden in ["<img src=x", "<script>alert", "<!-- &lt;", "href=\"javascript:"] {
                assert!(!lower.contains(forbidden), "{path} has {forbidden}");
            }
            seen += usize::from(text.contains("onerror=alert(1)"));
        }
    }
    assert!(seen > 10, "the markup is shown as text on {seen} pages only");
}

#[test]
fn files_of_bundles_are_never_pages() {
    let site = site();
    let run = site.catalog().runs()[1].slug.clone();
    for name in ["run.json", "evaluation.log"] {
        let answer = crate::get(&site, &format!("/files/{run}/{name}"));
        assert!(["application/json", "text/plain; charset=utf-8"].contains(&answer.header("content-type")), "{name}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert!(answer.header("content-security-policy").starts_with("default-src 'none'"));
    }
}

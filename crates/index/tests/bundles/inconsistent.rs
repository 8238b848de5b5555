//! Bundles whose digests are right and whose contents contradict each other or the protocol.

use std::fs;

use kernelproof_eval::evaluation::{Evaluation, Status};
use kernelproof_index::bundle::{Attached, Files, SUMS, write};
use kernelproof_index::{Bundle, Digest, verify};

use kernelproof_index::testing::example;

/// What `verify` finds in the bundle of a changed evaluation, every digest of which is right.
fn found(change: impl FnOnce(&mut Evaluation)) -> Vec<String> {
    let mut evaluation = example::evaluation();
    change(&mut evaluation);
    let bundle = Bundle::of(evaluation, example::attached()).expect("it can be told");
    let parent = tempfile::tempdir().expect("a temporary folder");
    let written = write(&bundle, parent.path()).expect("it is writable");
    verify(written.folder()).expect("it is a bundle").0.findings
}

/// What `verify` finds when one file says `to` instead of `from`, and the list of digests agrees.
fn found_in(file: &str, from: &str, to: &str) -> Vec<String> {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let bundle = example::bundle();
    let mut files = bundle.files().expect("it is plain data").all().clone();
    let text = String::from_utf8(files[file].clone()).expect("it is text");
    assert!(text.contains(from), "{text}");
    files.insert(file.to_owned(), text.replacen(from, to, 1).into_bytes());
    let files = Files::new(files);
    for (name, text) in files.all() {
        fs::write(parent.path().join(name), text).expect("it is writable");
    }
    fs::write(parent.path().join(SUMS), files.sums()).expect("it is writable");
    verify(parent.path()).expect("it is a bundle").0.findings
}

#[track_caller]
fn assert_finds(findings: &[String], expected: &str) {
    assert!(findings.iter().any(|finding| finding.contains(expected)), "{findings:#?}");
}

#[test]
fn missing_and_impossible_samples() {
    assert_finds(&found(|run| run.cases[0].samples_ns.truncate(4)), "s128b2.samples_ns: found 4 samples, expected 5");
    assert_finds(&found(|run| run.cases[0].samples_ns.push(1)), "found 6 samples");
    let fast = found(|run| run.cases[1].samples_ns = vec![1_000_000; 5]);
    assert_finds(
        &fast,
        "s1024b2.samples_ns: found 46.39, expected at most 2 of what the device can do (measured ceilings)",
    );
    assert_finds(&found(|run| run.cases[1].samples_ns[2] = 0), "s1024b2.samples_ns: found a sample of 0 ns");
}

#[test]
fn checks_that_were_not_made() {
    assert_finds(&found(|run| run.cases[0].audit = None), "audit: found nothing");
    assert_finds(&found(|run| drop(run.cases[0].rounds.pop())), "rounds: found 1, expected 2");
    assert_finds(&found(|run| run.cases[0].rounds[1].seed = 200), "a seed twice");
    assert_finds(&found(|run| run.cases[0].rounds[0].agreements.truncate(3)), "expected all four outputs");
    assert_finds(&found(|run| run.cases[0].rounds[0].agreements[2].compared = 0), "nothing compared");
}

#[test]
fn verdicts_that_do_not_follow() {
    let wrong = found(|run| run.cases[0].rounds[0].agreements[1].conditioned = 1e-3);
    assert_finds(&wrong, "grad_q_weight: normwise error 1.00e-3, allowed 2.0e-6");
    assert_finds(&found(|run| run.cases[0].bounds.normwise = 0.5), "bounds: found");
    assert_finds(&found(|run| run.cases[0].status = Status::Crashed), "detail: found None");
    assert_finds(&found(|run| run.cases[0].id = Some("0123456789ab".to_owned())), "expected 7803e88b316d");
    assert_finds(&found(|run| run.cases[0].problem = run.cases[1].problem), "problem: found B=2 S=1024");
}

#[test]
fn figures_that_are_not_those_of_the_samples() {
    let findings = found_in("figures.json", "\"geometric_mean_ns\": ", "\"geometric_mean_ns\": 1");
    assert_finds(&findings, "figures.json: is not what the samples give: figures.measured.geometric_mean_ns: found 1");
    assert_finds(&found_in("figures.json", "\"passed\": 2", "\"passed\": 3"), "found 3, expected 2");
    assert_finds(&found_in("figures.json", "\"throttled\": false", "\"throttled\": true"), "cases[0].throttled");
}

#[test]
fn a_solution_that_is_not_the_one_that_was_run() {
    let (right, wrong) = (b"{}".to_vec(), b"{ }".to_vec());
    let found = |solution: &[u8]| {
        let mut evaluation = example::evaluation();
        evaluation.implementation.source.digest = Some(Digest::of(b"{}").to_string());
        let attached = Attached { solution: Some(solution.to_vec()), ..example::attached() };
        let bundle = Bundle::of(evaluation, attached).expect("it can be told");
        let parent = tempfile::tempdir().expect("a temporary folder");
        let written = write(&bundle, parent.path()).expect("it is writable");
        verify(written.folder()).expect("it is a bundle").0.findings
    };
    assert_eq!(found(&right), Vec::<String>::new());
    assert_finds(&found(&wrong), "solution.json: found sha256:");
}

#[test]
fn manifests_that_are_not_those_of_the_run() {
    let findings = found_in("implementation.json", "cpu-avx2", "cpu-avx9");
    assert_finds(&findings, "run.json: spec.implementation: found sha256:");
    assert_finds(&findings, "implementation.json: is not what the run says: spec.name: found \"cpu-avx9\"");
    assert_finds(&found_in("environment.json", "Example CPU", "Example GPU"), "run.json: spec.environment");
    assert_finds(&found_in("evaluation.log", "made", "MADE"), "run.json: spec.logs");
}

#[test]
fn fields_and_spellings_that_no_manifest_has() {
    let findings = found_in("protocol.json", "\"timed_calls\":5", "\"timed_calls\":\"5\"");
    assert_finds(&findings, "protocol.json: spec.timed_calls: invalid type: string \"5\", expected u64");
    let findings = found_in("run.json", "\"spot_checked_calls\":6", "\"spot_checked_calls\":6,\"extra\":1");
    assert_finds(&findings, "run.json: spec.evaluation.cases[0].extra: found a field, expected none of this name");
    assert_finds(&found_in("run.json", "\"compared\":1024", "\"compared\":1024.0"), "invalid type: floating point");
    assert_finds(&found_in("run.json", "{", "{ "), "run.json: is not its own canonical JSON");
    assert_finds(&found_in("run.json", "kernelproof.evaluation/1", "kernelproof.evaluation/9"), "evaluation.schema");
}

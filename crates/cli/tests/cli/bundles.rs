//! `eval -o`, `verify` and `replay`: bundles as a user meets them.

use std::path::{Path, PathBuf};

use crate::files::{Folder, report};

const QUICK: [&str; 8] = ["eval", "--impl", "cpu-portable", "--case", "s128b2", "--quick", "--threads", "2"];

/// The runs that this repository holds.
fn records() -> Vec<PathBuf> {
    let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records/runs");
    let entries = std::fs::read_dir(runs).expect("runs are committed");
    entries.map(|entry| entry.expect("readable").path()).filter(|path| path.join("run.json").is_file()).collect()
}

/// A copy of a committed run in `folder`, under its own name, which is returned.
fn copy_into(folder: &Folder) -> String {
    let from = records().remove(0);
    let name = from.file_name().expect("it has a name").to_string_lossy().into_owned();
    let to = folder.path(&name);
    std::fs::create_dir(&to).expect("writable");
    for entry in std::fs::read_dir(from).expect("readable") {
        let path = entry.expect("readable").path();
        std::fs::copy(&path, to.join(path.file_name().expect("it has a name"))).expect("writable");
    }
    name
}

#[test]
fn committed_runs_verify() {
    let folder = Folder::new();
    let runs: Vec<String> = records().iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = std::iter::once("verify").chain(runs.iter().map(String::as_str)).collect();
    let text = folder.succeed(&arguments);
    assert_eq!(text.matches(": verified").count(), runs.len(), "{text}");
    assert!(text.contains("geometric mean") && text.contains("trust"), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&folder.succeed(&[&arguments[..], &["--json"]].concat())).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(runs.len()));
    assert_eq!(json[0]["findings"], serde_json::json!([]));
}

#[test]
fn one_altered_digit_fails_and_the_file_is_named() {
    let folder = Folder::new();
    let name = copy_into(&folder);
    let path = folder.path(&name).join("run.json");
    let text = std::fs::read_to_string(&path).expect("readable");
    let place = text.find("\"samples_ns\":[").expect("it has samples") + "\"samples_ns\":[".len();
    let mut altered = text.into_bytes();
    altered[place] = if altered[place] == b'9' { b'8' } else { altered[place] + 1 };
    std::fs::write(&path, altered).expect("writable");
    let output = folder.run(&["verify", &name]);
    assert_eq!(output.status.code(), Some(1), "{}", report(&output));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("NOT VERIFIED") && text.contains("run.json: was altered: found sha256:"), "{text}");
    let output = folder.run(&["replay", &name]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
}

#[test]
fn what_is_no_bundle_is_bad_input_and_the_others_are_still_verified() {
    let folder = Folder::new();
    let name = copy_into(&folder);
    folder.write("file.json", b"{}");
    let output = folder.run(&["verify", "nothing", &name, "file.json", "."]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains(": verified"), "{stdout}");
    assert!(stderr.contains("nothing: cannot be read") && stderr.contains("file.json: cannot be read"), "{stderr}");
}

#[test]
fn a_quick_evaluation_makes_a_bundle_that_verifies_and_replays() {
    let folder = Folder::new();
    folder.succeed(&[&QUICK[..], &["-o", "runs"]].concat());
    let elsewhere = Folder::new();
    let entries: Vec<PathBuf> = std::fs::read_dir(folder.path("runs"))
        .expect("readable")
        .map(|entry| entry.expect("readable").path())
        .collect();
    let [run] = entries.as_slice() else { panic!("one run, found {entries:?}") };
    let run = run.to_string_lossy();
    assert!(run.contains("-cpu-portable-"), "{run}");
    assert!(folder.succeed(&["verify", &run]).contains("1 of 1 passed"));
    let text = elsewhere.succeed(&["replay", &run]);
    assert!(text.contains("time here / time on record: ") && text.contains("agrees within"), "{text}");
    let output = elsewhere.run(&["replay", &run, "--threads", "1"]);
    assert_eq!(output.status.code(), Some(3), "{}", report(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no ratio") && text.contains("threads: 2 and 1") && !text.contains("agrees"), "{text}");
}

#[test]
fn only_the_suite_makes_records() {
    let folder = Folder::new();
    let output = folder.run(&["eval", "--dims", "B=1,S=3,E=8,H=2,K=1,D=4", "--quick", "-o", "runs"]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
    assert_eq!(folder.names(), Vec::<String>::new());
}

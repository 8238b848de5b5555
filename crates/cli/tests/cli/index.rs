//! `index`: the store as a user meets it.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::files::{Folder, report};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder with a copy of the committed records, with two of the runs.
struct Library(Folder);

impl Library {
    fn new() -> Self {
        let folder = Folder::new();
        let from = repository().join("records");
        for part in ["operations", "suites", "external"] {
            copy(&from.join(part), &folder.path("records").join(part));
        }
        let runs = std::fs::read_dir(from.join("runs")).expect("runs are committed");
        let mut runs: Vec<PathBuf> = runs.map(|entry| entry.expect("readable").path()).collect();
        runs.sort();
        for run in runs.iter().take(2) {
            copy(run, &folder.path("records/runs").join(run.file_name().expect("it has a name")));
        }
        Self(folder)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.0.command(&[&["index"], arguments].concat());
        command.env("XDG_DATA_HOME", self.0.path("data")).env_remove("KERNELPROOF_DB");
        command.output().expect("the binary starts")
    }

    #[track_caller]
    fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}{}", text(&output.stdout), report(&output));
        text(&output.stdout)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.succeed(arguments)).expect("JSON")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("writable");
    for entry in std::fs::read_dir(from).expect("readable") {
        let path = entry.expect("readable").path();
        std::fs::copy(&path, to.join(path.file_name().expect("it has a name"))).expect("writable");
    }
}

#[test]
fn records_are_imported_once_and_checked() {
    let library = Library::new();
    let output = library.run(&["check"]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
    assert!(report(&output).contains("`kernelproof index import` makes it"), "{}", report(&output));
    let imported = library.succeed(&["import"]);
    assert!(imported.contains("2 new, 0 stored before") && imported.contains("29 new"), "{imported}");
    assert!(library.0.path("data/kernelproof/index.sqlite").is_file());
    let again = library.json(&["import", "--json"]);
    assert_eq!(again["report"]["runs"], serde_json::json!({"new": 0, "already": 2}));
    assert_eq!(again["generation"], 1);
    assert_eq!(library.json(&["import", "--rebuild", "--json"])["generation"], 2);
    assert!(library.succeed(&["check"]).contains("2 runs verified: all is right"));
    let checked = library.json(&["check", "--json"]);
    assert_eq!((&checked["wrong"], &checked["differs"]), (&serde_json::json!([]), &serde_json::json!([])));
}

#[test]
fn an_export_is_read_into_another_file_and_is_the_same() {
    let library = Library::new();
    library.succeed(&["import"]);
    library.succeed(&["export", "-o", "index.jsonl"]);
    let whole = std::fs::read(library.0.path("index.jsonl")).expect("it is written");
    assert_eq!(library.succeed(&["export"]).into_bytes(), whole);
    library.succeed(&["import", "--export", "index.jsonl", "--db", "copy.sqlite"]);
    assert_eq!(library.succeed(&["export", "--db", "copy.sqlite"]).into_bytes(), whole);
    library.0.write("half.jsonl", &whole[..whole.len() / 2]);
    let output = library.run(&["import", "--export", "half.jsonl", "--db", "half.sqlite"]);
    assert_eq!(output.status.code(), Some(1), "{}", report(&output));
    assert!(
        report(&output).contains("the export ends before its last line; nothing was imported"),
        "{}",
        report(&output)
    );
}

#[test]
fn what_is_wrong_is_named_and_nothing_is_stored() {
    let library = Library::new();
    library.0.write("records/external/bad.jsonl", b"{}\n");
    let output = library.run(&["import"]);
    assert_eq!(output.status.code(), Some(1), "{}", report(&output));
    let said = text(&output.stdout);
    assert!(said.contains("NOT IMPORTED, 1 wrong") && said.contains("bad.jsonl:1: "), "{said}");
    let output = library.run(&["import", "--records", "records/runs"]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
    assert!(report(&output).contains("is no folder of records"), "{}", report(&output));
    library.0.write("notes.sqlite", b"something else, and long enough to be looked at as a database of SQLite");
    let output = library.run(&["import", "--db", "notes.sqlite"]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
}

#[test]
fn a_retraction_is_a_file_of_the_records() {
    let library = Library::new();
    let run = std::fs::read_dir(library.0.path("records/runs")).expect("readable").next().expect("a run");
    let name = run.expect("readable").file_name().to_string_lossy().into_owned();
    let output = library.run(&["retract", "0123456789ab", "--reason", "none"]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
    let output = library.run(&["retract", &name, "--reason", " "]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
    assert!(!library.0.path("records/corrections").exists());
    let retracted = library.json(&["retract", &name, "--reason", "a neighbour used the same core", "--json"]);
    let file = retracted["file"].as_str().expect("it is named");
    assert!(Path::new(file).is_file(), "{file}");
    assert!(library.succeed(&["check"]).contains("all is right"));
}

#[test]
fn a_token_is_shown_once_and_taken_back() {
    let library = Library::new();
    let token = library.succeed(&["token", "new", "ada"]);
    assert!(token.starts_with("kernelproof_") && token.trim().len() == 76, "{token}");
    assert_ne!(library.succeed(&["token", "new", "ada"]), token);
    assert!(library.succeed(&["token", "revoke", "ada", "--reason", "lost"]).contains("2 taken back"));
    for wrong in
        [&["token", "new", ""][..], &["token", "new", "a\u{1b}[2J"], &["token", "revoke", "eve", "--reason", "x"]]
    {
        assert_eq!(library.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn traces_become_external_runs() {
    let library = Library::new();
    let trace = serde_json::json!({
        "definition": "064_multi_head_qkv_projection_with_rope_backward", "solution": "theirs",
        "workload": {"uuid": "u1", "axes": {"batch_size": 2, "seq_len": 128}, "inputs": {}},
        "evaluation": {
            "status": "PASSED", "timestamp": "2026-07-01T10:00:00", "environment": {"hardware": "NVIDIA_B200", "libs": {}},
            "correctness": {"max_relative_error": 1e-5, "max_absolute_error": 2e-5},
            "performance": {"latency_ms": 0.25, "reference_latency_ms": 2.5, "speedup_factor": 10.0}
        }
    });
    library.0.write("traces.jsonl", format!("{trace}\n").as_bytes());
    let fixed =
        ["--source", "theirs", "--read-on", "2026-12-01", "--protocol", "v1.1", "-o", "records/external/theirs.jsonl"];
    let arguments = [&["traces", "traces.jsonl"], &fixed[..]].concat();
    assert!(library.succeed(&arguments).contains("1 external runs"));
    assert!(library.succeed(&["import"]).contains("30 new"));
    library.0.write("traces.jsonl", b"{}\n");
    let output = library.run(&arguments);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
    assert!(report(&output).contains("traces.jsonl: line 1: "), "{}", report(&output));
}

#[test]
fn made_up_runs_go_into_a_new_file_only() {
    let library = Library::new();
    library.succeed(&["generate", "--runs", "5", "--db", "made-up.sqlite"]);
    assert!(library.succeed(&["check", "--db", "made-up.sqlite"]).contains("5 runs verified: all is right"));
    let output = library.run(&["generate", "--runs", "5", "--db", "made-up.sqlite"]);
    assert_eq!(output.status.code(), Some(2), "{}", report(&output));
}

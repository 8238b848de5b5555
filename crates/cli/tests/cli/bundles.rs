//! `eval -o`, `verify` and `replay`: bundles as a user meets them.

use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(unix)]
use std::{process::Stdio, time::Duration};

use crate::files::{Folder, report};

const QUICK: [&str; 6] = ["eval", "--case", "s128b2", "--quick", "--threads", "2"];

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

/// A folder to evaluate in. Its lock is its own, so that tests need not wait for each other.
struct Bench {
    work: Folder,
    temporary: Folder,
}

impl Bench {
    fn new() -> Self {
        Self { work: Folder::new(), temporary: Folder::new() }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.work.command(arguments);
        command.env("TMPDIR", self.temporary.path("."));
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(arguments).output().expect("the binary starts");
        (output.status.code(), format!("{}{}", String::from_utf8_lossy(&output.stdout), report(&output)))
    }
}

#[test]
fn a_quick_evaluation_makes_a_bundle_that_verifies_and_replays() {
    let bench = Bench::new();
    let (code, text) = bench.run(&[&QUICK[..], &["-o", "runs"]].concat());
    assert_eq!(code, Some(0), "{text}");
    let entries = std::fs::read_dir(bench.work.path("runs")).expect("readable");
    let entries: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    let [run] = entries.as_slice() else { panic!("one run, found {entries:?}") };
    let run = run.to_string_lossy();
    assert!(run.contains("-cpu-"), "{run}");
    assert!(bench.work.succeed(&["verify", &run]).contains("1 of 1 passed"));
    let (code, text) = bench.run(&["replay", &run]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("time here / time on record: ") && text.contains("agrees within"), "{text}");
    let (code, text) = bench.run(&["replay", &run, "--threads", "1"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("no ratio") && text.contains("threads: 2 and 1") && !text.contains("agrees"), "{text}");
}

/// Ctrl-C and a kill in the middle: there is no half of a run.
#[cfg(unix)]
#[test]
fn a_run_that_is_stopped_leaves_nothing() {
    for (signal, expected) in [("-INT", Some(130)), ("-KILL", None)] {
        let bench = Bench::new();
        let mut command = bench.command(&["eval", "--impl", "cpu-portable", "--all", "-o", "runs"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        std::thread::sleep(Duration::from_secs(2));
        let kill = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(kill.expect("kill is there").success());
        assert_eq!(child.wait().expect("it ends").code(), expected, "{signal}");
        assert_eq!(bench.work.names(), Vec::<String>::new(), "{signal}");
    }
}

#[test]
fn only_the_suite_makes_records() {
    let bench = Bench::new();
    let (code, text) = bench.run(&["eval", "--dims", "B=1,S=3,E=8,H=2,K=1,D=4", "--quick", "-o", "runs"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("only cases of the suite make a record"), "{text}");
    assert_eq!(bench.work.names(), Vec::<String>::new());
}

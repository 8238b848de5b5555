//! Commands that only print: cases, plan, peak, completions, help.

use crate::files::Folder;

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn cases_lists_the_suite() {
    let folder = Folder::new();
    let text = folder.succeed(&["cases"]);
    assert_eq!(text.lines().count(), 17);
    assert!(text.contains("s8192b1"));
    let rows = json(&folder.succeed(&["cases", "--json"]));
    assert_eq!(rows.as_array().map(Vec::len), Some(16));
    assert_eq!(rows[0]["id"], "7803e88b316d");
}

#[test]
fn json_can_go_to_a_file_beside_the_table() {
    let folder = Folder::new();
    let text = folder.succeed(&["cases", "--json", "cases.json"]);
    assert!(text.contains("s128b2"));
    let rows = json(&std::fs::read_to_string(folder.path("cases.json")).expect("written"));
    assert_eq!(rows[15]["name"], "s8192b1");
}

#[test]
fn plan_runs_nothing_and_gives_floors() {
    let folder = Folder::new();
    let arguments = ["plan", "--case", "s1024b2", "--dims", "B=1,S=3,E=8,H=2,K=1,D=4,R=2", "--isa", "portable"];
    let text = folder.succeed(&arguments);
    assert!(text.contains("s1024b2 by cpu-portable") && text.contains("least work 38.655 GFLOP"), "{text}");
    let floors = [&arguments[..], &["--peak", "200", "--bandwidth", "50", "--json"]].concat();
    let plans = json(&folder.succeed(&floors));
    let floor_ns = plans[0]["floor_ns"].as_f64().expect("peaks were given");
    assert!((floor_ns - 38_654_705_664.0 / 200.0).abs() < 1.0, "{floor_ns}");
    assert_eq!(plans[1]["plan"]["problem"]["dims"]["R"], 2);
    // Far more than any memory: planned all the same.
    folder.succeed(&["plan", "--dims", "B=1000,S=1000000,E=4096,H=32,D=128"]);
}

#[test]
fn a_gpu_is_planned_for_without_being_there() {
    let folder = Folder::new();
    let text = folder.succeed(&["plan", "--case", "s8192b1", "--gpu", "h200", "--precision", "fast"]);
    assert!(text.contains("s8192b1 by cuda-sm_90") && text.contains("pieces on"), "{text}");
}

#[test]
fn a_gpu_that_is_not_there_is_not_available() {
    let folder = Folder::new();
    let output = folder.run(&["check", "--case", "s128b2", "--device", "cuda:1000"]);
    assert_eq!(output.status.code(), Some(3));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("no NVIDIA driver") || error.contains("no GPU 1000"), "{error}");
}

#[test]
fn peak_measures_what_was_asked_for() {
    let folder = Folder::new();
    let arguments = ["peak", "--threads", "1", "--isa", "portable", "--samples", "2", "--json"];
    let report = json(&folder.succeed(&arguments));
    assert_eq!(report["fma"].as_array().map(Vec::len), Some(1));
    assert_eq!(report["fma"][0]["samples_ns"].as_array().map(Vec::len), Some(2));
    assert_eq!(report["memory"][1]["what"], "copy");
}

#[test]
fn completions_know_the_commands() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = folder.succeed(&["completions", shell]);
        assert!(script.contains("completions") && script.contains("bench"), "{shell}");
    }
}

#[test]
fn every_help_has_examples() {
    let folder = Folder::new();
    for command in ["run", "inputs", "quick", "check", "bench", "report", "plan", "peak", "completions"] {
        let help = folder.succeed(&[command, "--help"]);
        assert!(help.contains(&format!("kernelproof {command}")) && help.contains("Examples:"), "{command}");
    }
    assert!(folder.succeed(&["--help"]).contains("Exit codes:"));
}

#[test]
fn a_closed_stdout_is_no_error() {
    use std::io::Read as _;
    let binary = assert_cmd::cargo::cargo_bin!("kernelproof");
    let mut child = std::process::Command::new(binary)
        .args(["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let status = child.wait().expect("it ends");
    let mut stderr = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("UTF-8");
    assert!(status.success() && stderr.is_empty(), "{status}: {stderr}");
}

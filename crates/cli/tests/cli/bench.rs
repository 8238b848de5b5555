//! `bench`, `quick` and `report`: records, plots, and rivals that are there, missing or broken.

use crate::files::{Folder, report};

const SMALL: [&str; 9] =
    ["bench", "--dims", "B=1,S=16,E=32,H=2,K=1,D=8", "--samples", "3", "--warmup", "1", "--no-flush", "--threads=1"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn every_sample_is_kept_and_the_record_can_be_shown_again() {
    let folder = Folder::new();
    let text = folder.succeed(&with(&["--isa", "portable", "--json", "bench.json", "--plot", "bench.svg"]));
    let bytes = std::fs::read(folder.path("bench.json")).expect("written");
    let record: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!((&record["schema"], &record["complete"]), (&"kernelproof.bench/1".into(), &true.into()));
    let case = &record["cases"][0];
    assert_eq!(case["contestants"][0]["samples_ns"].as_array().map(Vec::len), Some(3));
    assert_eq!(case["peaks"][0]["samples_ns"].as_array().map(Vec::len), Some(3));
    assert_eq!(case["contestants"][0]["normwise_errors"].as_object().map(serde_json::Map::len), Some(4));
    assert_eq!(folder.succeed(&["report", "bench.json", "--plot", "again.svg"]), text);
    let plot = |name: &str| std::fs::read_to_string(folder.path(name)).expect("written");
    assert_eq!(plot("again.svg"), plot("bench.svg"));
    assert!(plot("bench.svg").starts_with("<svg") && plot("bench.svg").contains("cpu-portable"));
}

#[test]
fn several_instruction_sets_and_thread_counts_are_compared_with_the_first() {
    let folder = Folder::new();
    let arguments = ["--isa", "portable", "--threads", "2,1"];
    let mut all: Vec<&str> = with(&arguments);
    all.retain(|argument| *argument != "--threads=1");
    let text = folder.succeed(&all);
    assert!(text.contains("time(cpu-portable, 1 thread) / time(cpu-portable, 2 threads)"), "{text}");
}

#[cfg(not(feature = "rivals"))]
#[test]
fn a_build_without_rivals_says_how_to_get_them() {
    let output = Folder::new().run(&with(&["--against", "gemm"]));
    insta::assert_snapshot!(report(&output));
}

#[cfg(feature = "rivals")]
#[test]
fn the_rival_crates_compute_the_same_and_are_timed() {
    for style in ["half-split", "interleaved"] {
        let arguments = with(&["--against", "gemm,matrixmultiply", "--style", style]);
        let text = Folder::new().succeed(&arguments);
        assert!(text.contains("time(gemm, 1 thread)") && text.contains("time(matrixmultiply, 1 thread)"), "{text}");
    }
}

#[test]
fn no_python_is_a_clear_error() {
    let output = Folder::new().run(&with(&["--against", "pytorch", "--python", "no-such-python"]));
    insta::assert_snapshot!(report(&output));
}

/// Ctrl-C in the middle: what was measured is there and says that it is not all.
#[cfg(unix)]
#[test]
fn an_interrupt_keeps_what_was_measured() {
    let folder = Folder::new();
    let mut arguments = with(&["--isa", "portable", "--json", "bench.json"]);
    arguments[4] = "100000000";
    let mut command = folder.command(&arguments);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut child = command.spawn().expect("the binary starts");
    std::thread::sleep(std::time::Duration::from_secs(2));
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill is there").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let bytes = std::fs::read(folder.path("bench.json")).expect("written");
    let record: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(record["complete"], false);
    let samples = record["cases"][0]["contestants"][0]["samples_ns"].as_array().map_or(0, Vec::len);
    assert!(samples > 0);
    assert!(folder.succeed(&["report", "bench.json"]).contains("incomplete"));
}

/// With a Python that has PyTorch in KERNELPROOF_TEST_PYTHON, the real thing; without, nothing is shown.
#[test]
fn pytorch_computes_the_same() {
    let Ok(python) = std::env::var("KERNELPROOF_TEST_PYTHON") else { return };
    let folder = Folder::new();
    for (style, sizes) in [("half-split", "B=2,S=16,E=32,H=4,K=2,D=8,R=4"), ("interleaved", "B=1,S=7,E=32,H=2,K=1,D=8")]
    {
        let mut arguments = with(&["--against", "pytorch", "--python", &python, "--style", style]);
        arguments[2] = sizes;
        let text = folder.succeed(&arguments);
        assert!(text.contains("time(pytorch, 1 thread)"), "{text}");
    }
}

/// Stand-ins for Python: shell scripts that answer as a worker would, or not at all.
#[cfg(unix)]
mod workers {
    use super::*;

    fn run_with(script: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new();
        folder.write("python", format!("#!/bin/sh\n{script}\n").as_bytes());
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path("python"), mode).expect("the file is ours");
        report(&folder.run(&with(&["--against", "pytorch", "--python", "./python"])))
    }

    #[test]
    fn workers_that_fail_are_reported_with_what_they_said() {
        let hello = r#"read line; echo '{"torch": "2.0", "threads": 1}'"#;
        let messages = [
            run_with(r#"read line; echo '{"error": "no torch", "detail": "No module named torch", "python": "3.9"}'"#),
            run_with("echo 'it is broken' >&2; exit 7"),
            run_with("read line; echo 'not json'; read line"),
            run_with(r#"read line; echo '{"torch": "2.0", "threads": 64}'; read line"#),
            run_with(&format!(r#"{hello}; read line; echo '{{"error": "MemoryError: too large"}}'; read line"#)),
            run_with(&format!("{hello}; read line; kill -9 $$")),
        ];
        insta::assert_snapshot!(messages.join("\n\n"));
    }
}

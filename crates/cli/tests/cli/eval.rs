//! `eval` and `compare`: verdicts, workers that misbehave, interrupts, two at once.

use serde_json::Value;

use crate::files::{Folder, report};

const SMALL: [&str; 6] = ["--dims", "B=2,S=16,E=48,H=4,K=2,D=8", "--threads", "1", "--precision", "ieee"];

fn with<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    first.iter().chain(&SMALL).chain(more).copied().collect()
}

fn json(folder: &Folder, name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder.path(name)).expect("written")).expect("JSON")
}

#[test]
fn a_backend_passes_the_full_protocol() {
    let folder = Folder::new();
    let text = folder.succeed(&with(&["eval", "--impl", "cpu-portable"], &["--json", "e.json", "--secret-seed", "5"]));
    assert!(text.contains("1 of 1 cases passed") && text.contains("by ceilings measured here"), "{text}");
    let evaluation = json(&folder, "e.json");
    let case = &evaluation["cases"][0];
    assert_eq!((&case["status"], &case["spot_checked_calls"]), (&"passed".into(), &60.into()));
    assert_eq!(case["samples_ns"].as_array().map(Vec::len), Some(50));
    assert_eq!(case["rounds"].as_array().map(Vec::len), Some(10));
    assert_eq!(case["rounds"][0]["repeatable"], true);
    assert_eq!((&evaluation["protocol"]["secret_seed"], &evaluation["protocol"]["quick"]), (&5.into(), &false.into()));
}

#[test]
fn an_implementation_beside_itself_is_no_faster() {
    let folder = Folder::new();
    let more = ["--samples", "30", "--warmup", "3", "--json", "c.json", "--plot", "c.svg"];
    let text = folder.succeed(&with(&["compare", "cpu-portable", "cpu-portable"], &more));
    assert!(text.contains("A against itself"), "{text}");
    let comparison = json(&folder, "c.json");
    for side in ["first_ns", "second_ns", "again_ns"] {
        assert_eq!(comparison["cases"][0][side].as_array().map(Vec::len), Some(30));
    }
    let plot = std::fs::read_to_string(folder.path("c.svg")).expect("written");
    assert!(plot.starts_with("<svg") && plot.contains("time(B) / time(A)"));
}

#[test]
fn without_pytorch_the_suite_runs_in_this_process_and_says_what_it_left_out() {
    let text = Folder::new().succeed(&["eval", "--self-test", "--python", "no-such-python"]);
    assert!(text.contains("17 of 17 cheats rejected for the right reason, 4 of 4 honest accepted"), "{text}");
    assert!(text.contains("not run: 43 solutions"), "{text}");
}

#[test]
fn a_record_tells_the_score_of_the_program_that_judged_it() {
    let folder = Folder::new();
    let quick = with(&["eval", "--impl", "cpu-portable"], &["--quick", "--json", "e.json"]);
    assert!(folder.succeed(&quick).contains("mutation score of this evaluator: not known"));
    assert_eq!(json(&folder, "e.json")["protocol"]["evaluator"]["mutation_score"], Value::Null);
    folder.succeed(&["eval", "--self-test", "--python", "no-such-python"]);
    assert!(folder.succeed(&quick).contains("mutation score of this evaluator: 21 of 21"));
    assert_eq!(json(&folder, "e.json")["protocol"]["evaluator"]["mutation_score"], serde_json::json!([21, 21]));
}

#[test]
fn an_implementation_is_set_beside_itself_many_times() {
    let folder = Folder::new();
    let more = ["--repeat", "3", "--samples", "20", "--warmup", "2", "--json", "a.json"];
    let output = folder.run(&with(&["compare", "--self", "cpu-portable"], &more));
    // Whether chance lets an interval of so few samples miss 1 is not what this tests.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", report(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("of 3 intervals contain 1"), "{text}");
    assert_eq!(json(&folder, "a.json")["comparisons"].as_array().map(Vec::len), Some(3));
}

#[test]
fn what_is_compared_must_be_said_once_and_of_one_cohort() {
    let folder = Folder::new();
    let refused = [
        folder.run(&with(&["compare", "cpu-portable"], &[])),
        folder.run(&with(&["compare", "--self", "cpu-portable", "cpu-portable", "cpu-portable"], &[])),
        folder.run(&["compare", "cuda-fast", "cuda-split", "--case", "s128b2"]),
        folder.run(&with(&["eval", "--impl", "cpu-portable", "--device", "cuda"], &[])),
    ];
    assert_eq!(refused.each_ref().map(|output| output.status.code()), [Some(2); 4]);
    assert!(report(&refused[2]).contains("two precisions"), "{}", report(&refused[2]));
    assert!(report(&refused[3]).contains("cpu-portable does not run on a GPU"), "{}", report(&refused[3]));
}

/// On a machine without an NVIDIA driver; with one, the tests of feature gpu-tests show more.
#[test]
fn a_gpu_that_is_not_there_is_a_clear_error() {
    if qkv_rope_cuda::device_count().is_ok() {
        return;
    }
    let folder = Folder::new();
    folder.write(
        "s.json",
        br#"{"name": "a", "author": "b", "sources": [{"path": "k.py", "content": ""}],
        "spec": {"languages": ["triton"], "entry_point": "k.py::run"}}"#,
    );
    let case = ["--case", "s128b2"];
    for arguments in [
        &["eval", "--impl", "cuda-fast"][..],
        &["eval", "--solution", "s.json", "--device", "cuda:1"],
        &["compare", "cuda-split", "s.json"],
        &["bench", "--device", "cuda"],
    ] {
        let output = folder.run(&[arguments, &case].concat());
        assert_eq!(output.status.code(), Some(3), "{}", report(&output));
        assert!(report(&output).contains("no NVIDIA driver: none of"), "{}", report(&output));
    }
}

#[test]
fn what_is_no_implementation_is_named() {
    let folder = Folder::new();
    folder.write(
        "bad.json",
        br#"{"name": "a", "author": "b", "sources": [], "spec": {"languages": ["cobol"], "entry_point": "a::b"}}"#,
    );
    let messages = [
        folder.run(&with(&["eval", "--impl", "cpu-neon"], &[])),
        folder.run(&with(&["eval", "--solution", "bad.json"], &[])),
        folder.run(&with(&["eval", "--solution", "none.json"], &[])),
        folder.run(&["eval", "--impl", "cpu-portable"]),
    ];
    let codes: Vec<Option<i32>> = messages.iter().map(|output| output.status.code()).collect();
    assert_eq!(codes, [Some(2); 4], "{}", messages.iter().map(report).collect::<String>());
    assert!(report(&messages[1]).contains("spec.languages: found \"cobol\""), "{}", report(&messages[1]));
}

/// Interrupts, and stand-ins for Python: shell scripts that answer as a worker would, or not at all.
#[cfg(target_os = "linux")]
mod processes {
    use std::process::{Child, Stdio};
    use std::time::Duration;

    use super::*;

    const LONG: [&str; 8] =
        ["eval", "--impl", "cpu-portable", "--dims", "B=64,S=64,E=64,H=4,K=2,D=8", "--threads", "1", "--json"];

    fn started(folder: &Folder) -> Child {
        let mut command = folder.command(&[&LONG[..], &["e.json"]].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
        // Until it holds the machine.
        while !folder.path("kernelproof-measuring.lock").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        child
    }

    fn signal(child: &Child, name: &str) {
        let kill = std::process::Command::new("kill").args([name, &child.id().to_string()]).status();
        assert!(kill.expect("kill is there").success());
    }

    #[test]
    fn an_interrupted_evaluation_writes_nothing() {
        let folder = Folder::new();
        let mut child = started(&folder);
        signal(&child, "-INT");
        assert_eq!(child.wait().expect("it ends").code(), Some(130));
        assert_eq!(folder.names(), ["kernelproof-measuring.lock"]);
    }

    #[test]
    fn two_at_once_are_refused_and_a_killed_one_frees_the_machine() {
        let folder = Folder::new();
        let mut child = started(&folder);
        let output = folder.run(&LONG[..7]);
        assert_eq!(output.status.code(), Some(3), "{}", report(&output));
        assert!(report(&output).contains("another evaluation is running"), "{}", report(&output));
        signal(&child, "-KILL");
        assert!(!child.wait().expect("it ends").success());
        folder.succeed(&with(&["eval", "--impl", "cpu-portable"], &["--quick"]));
        assert_eq!(folder.names(), ["kernelproof-measuring.lock"]);
    }

    const SOLUTION: &[u8] = br#"{
        "name": "a", "definition": "d", "author": "b", "sources": [{"path": "k.py", "content": ""}],
        "spec": {"languages": ["pytorch"], "target_hardware": ["local"], "entry_point": "k.py::run"}
    }"#;

    /// The verdict on a worker that answers all requests but calls, which it meets with `on_call`.
    fn verdict(on_call: &str) -> String {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new();
        let hello = r#"{"torch": "2", "python": "3", "threads": 1}"#;
        let script = format!(
            "#!/bin/sh\nwhile read line; do case \"$line\" in *hello*) echo '{hello}';; *'\"call\"'*) {on_call};; *) echo '{{}}';; esac; done\n"
        );
        folder.write("python", script.as_bytes());
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path("python"), mode).expect("the file is ours");
        folder.write("s.json", SOLUTION);
        let arguments = ["--python", "./python", "--call-limit", "1", "--quick", "--json", "e.json"];
        let output = folder.run(&with(&["eval", "--solution", "s.json"], &arguments));
        assert_eq!(output.status.code(), Some(1), "{}", report(&output));
        json(&folder, "e.json")["cases"][0]["status"].as_str().expect("a status").to_owned()
    }

    #[test]
    fn workers_that_end_hang_or_babble_get_a_status() {
        assert_eq!(verdict("exit 7"), "crashed");
        assert_eq!(verdict("kill -9 $$"), "crashed");
        assert_eq!(verdict("sleep 1000"), "timed-out");
        assert_eq!(verdict("echo nonsense"), "tampering");
        assert_eq!(verdict(r#"echo "{}"; echo "{}""#), "non-finite");
        assert_eq!(verdict(r#"echo "{\"error\": \"no\"}""#), "call-failed");
        assert_eq!(verdict("echo 'std::bad_alloc' >&2; exit 1"), "out-of-memory");
    }

    #[test]
    fn no_python_is_a_clear_error() {
        let folder = Folder::new();
        folder.write("s.json", SOLUTION);
        let output = folder.run(&with(&["eval", "--solution", "s.json"], &["--python", "no-such-python"]));
        assert_eq!(output.status.code(), Some(3));
        assert!(report(&output).contains("solution: found no Python; tried no-such-python"), "{}", report(&output));
    }

    /// With a Python that has PyTorch in KERNELPROOF_TEST_PYTHON, the whole suite; without, nothing is shown.
    #[test]
    fn the_whole_exploit_suite_is_judged_rightly() {
        let Ok(python) = std::env::var("KERNELPROOF_TEST_PYTHON") else { return };
        let text = Folder::new().succeed(&["eval", "--self-test", "--python", &python]);
        assert!(!text.contains("WRONG") && !text.contains("not run"), "{text}");
    }
}

/// The worker's clock for GPUs, on records made by hand; where there is no Python, nothing is shown.
#[test]
fn the_workers_gpu_clock_reads_records() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/gpu_clock.py");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
    let python = std::process::Command::new("python3").args(["-B", tests, sources]).output();
    let Ok(output) = python else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "right\n", "{}", report(&output));
}

//! Traces of SOL-ExecBench become external runs, with the source's own digits.

use kernelproof_index::external::{ExternalRun, Reference};
use kernelproof_index::manifest::Spec as _;
use kernelproof_index::operation::Operation;
use kernelproof_index::traces::{TraceSource, external_runs};
use kernelproof_index::{Digest, Manifest};
use serde_json::{Value, json};

const DEFINITION: &str = "064_multi_head_qkv_projection_with_rope_backward";

fn operations() -> Vec<(Digest, Manifest<Operation>)> {
    let text = include_bytes!("../../../records/operations/qkv-rope-backward.json");
    let operation = Manifest::<Operation>::parse(text).expect("it is committed");
    vec![(operation.digest().expect("it has an identity"), operation)]
}

fn source() -> TraceSource {
    let reference = Reference { document: "somebody's traces".to_owned(), read_on: "2026-12-01".to_owned() };
    TraceSource { reference, protocol: "stack v1.1".to_owned() }
}

fn trace(solution: &str, uuid: &str, seq_len: u64) -> Value {
    json!({
        "definition": DEFINITION, "solution": solution,
        "workload": {"uuid": uuid, "axes": {"batch_size": 2, "seq_len": seq_len}, "inputs": {"cos": {"type": "random"}}},
        "evaluation": {
            "status": "PASSED", "log": "", "timestamp": "2026-07-01T10:00:00",
            "environment": {"hardware": "NVIDIA_B200", "libs": {"torch": "2.9"}},
            "correctness": {"max_relative_error": 1e-5, "max_absolute_error": 2e-5, "has_nan": false},
            "performance": {"latency_ms": 0.25, "reference_latency_ms": 2.5, "speedup_factor": 10.0}
        }
    })
}

fn read(traces: &[Value]) -> Result<Vec<ExternalRun>, String> {
    let text: String = traces.iter().map(|trace| format!("{trace}\n")).collect();
    read_text(&text)
}

fn read_text(text: &str) -> Result<Vec<ExternalRun>, String> {
    let runs = external_runs(text, &operations(), &source()).map_err(|error| error.to_string())?;
    Ok(runs.into_iter().map(|run| run.spec).collect())
}

#[test]
fn traces_of_a_solution_on_one_hardware_are_one_run() {
    let mut failed = trace("b", "u1", 128);
    failed["evaluation"]["status"] = json!("TIMEOUT");
    failed["evaluation"]["performance"] = Value::Null;
    failed["evaluation"]["correctness"] = Value::Null;
    let task = json!({"definition": DEFINITION, "workload": {"uuid": "u9", "axes": {}}});
    let mut other = trace("a", "u1", 128);
    other["definition"] = json!("another");
    let runs = read(&[trace("a", "u1", 128), trace("a", "u2", 1024), failed, task, other]).expect("they are right");
    assert_eq!(runs.len(), 2);
    let [one, two] = runs.as_slice() else { panic!("two runs") };
    one.validate().expect("it is an external run");
    assert_eq!((one.implementation.as_str(), one.hardware.as_str()), ("a", "NVIDIA_B200"));
    assert!(one.workload.starts_with("2 workloads of 064_"), "{}", one.workload);
    let latency: Vec<_> = one.figures.iter().filter(|figure| figure.name == "latency_ms").collect();
    assert_eq!((latency.len(), latency[1].text.as_str(), latency[1].value), (2, "0.25", Some(250_000.0)));
    assert_eq!(latency[1].axes["seq_len"], 1024);
    let time_ns = one.time_ns().expect("all workloads passed");
    assert!((time_ns - 250_000.0).abs() < 1e-3, "the geometric mean over its workloads, found {time_ns}");
    assert_eq!(two.time_ns(), None, "a workload failed");
    assert!(two.caveats.iter().any(|caveat| caveat == "1 of 1 workloads did not pass"));
    assert!(two.figures.iter().any(|figure| figure.text == "TIMEOUT"));
}

#[test]
fn digits_are_the_sources_own() {
    let text = trace("a", "u1", 128).to_string().replace("0.25", "0.2500");
    let runs = read_text(&text).expect("it is a trace");
    assert_eq!(runs[0].figures[0].text, "0.2500");
}

#[test]
fn lines_that_are_no_traces_are_named() {
    let error = |text: &str| read_text(text).expect_err("it is wrong");
    let plain = trace("a", "u1", 128).to_string();
    assert!(error("{").starts_with("line 1: "));
    let smuggled = error(&format!("{plain}\n{}", plain.replace("u1", "u2").replace("0.25", "\"NaN\"")));
    assert_eq!(smuggled, "line 2: evaluation: latency_ms: found \"NaN\", expected a number of 0 or more");
    assert!(error(&plain.replace("0.25", "NaN")).contains("line 1: evaluation.performance"));
    assert!(error(&plain.replace("0.25", "-1")).contains("expected a number of 0 or more"));
    assert!(error(&plain.replace("0.25", "1e999")).contains("line 1: "));
    assert!(error(&plain.replace("\"PASSED\"", "\"TIMEOUT\"")).contains("against the status TIMEOUT"));
    assert!(error(&format!("{plain}\n{plain}")).contains("u1 is there twice"));
    assert!(error(&plain.replace("\"seq_len\":128", "\"seq_len\":\"128\"")).contains("workload.axes"));
}

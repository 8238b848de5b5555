//! Error messages as reviewed: each names what is wrong, what was found and what was expected.

use qkv_rope_op::Tensor;
use serde_json::json;

use crate::files::{Draft, Folder, report, small_dims};

/// What a user sees for a file.
fn message(bytes: &[u8], arguments: &[&str]) -> String {
    let folder = Folder::new();
    folder.write("in.safetensors", bytes);
    let output = folder.run(&[&["run", "in.safetensors", "-o", "out.safetensors"], arguments].concat());
    assert_eq!(folder.names(), ["in.safetensors"], "no output is left behind");
    report(&output)
}

/// What a user sees for a small file after a change.
fn changed(change: impl FnOnce(&mut Draft)) -> String {
    let mut draft = Draft::small();
    change(&mut draft);
    message(&draft.bytes(), &[])
}

fn without(names: &[&str]) -> Vec<u8> {
    let (whole, mut draft) = (Draft::small(), Draft { entries: Vec::new(), data: Vec::new(), padding: 0 });
    let inputs = crate::files::small_inputs();
    for tensor in Tensor::INPUTS.into_iter().filter(|tensor| !names.contains(&tensor.name())) {
        draft.add(tensor.name(), &small_dims().shape(tensor), inputs.tensor(tensor).expect("generated"));
    }
    assert!(draft.data.len() < whole.data.len());
    draft.bytes()
}

#[test]
fn files_that_are_no_files() {
    let folder = Folder::new();
    let messages = [
        report(&folder.run(&["run", "absent.safetensors", "-o", "out.safetensors"])),
        report(&folder.run(&["run", ".", "-o", "out.safetensors"])),
    ];
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn headers() {
    let draft = Draft::small();
    let whole = draft.bytes();
    let with_length = |length: u64| [&length.to_le_bytes(), &whole[8..]].concat();
    let messages = [
        message(&[], &[]),
        message(&whole[..5], &[]),
        message(&whole[..100], &[]),
        message(&whole[..whole.len() - 3], &[]),
        message(&[&whole[..], &[0, 0]].concat(), &[]),
        message(&with_length(1 << 40), &[]),
        message(&with_length(u64::MAX), &[]),
        message(&draft.with_header(b"{\"grad_query\": NaN}"), &[]),
        message(&draft.with_header(&[0xff, 0xfe]), &[]),
        message(&draft.with_header(b"[]"), &[]),
        message(b"PK\x03\x04 this is a zip archive, not a safetensors file", &[]),
    ];
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn tensors_that_lie() {
    let messages = [
        changed(|draft| draft.entry("cos")["dtype"] = json!("BF16")),
        changed(|draft| {
            let entry = draft.entry("cos");
            entry["dtype"] = json!("BF16");
            entry["shape"] = json!([2, 5, 12]);
        }),
        changed(|draft| draft.entry("cos")["dtype"] = json!("F128")),
        changed(|draft| draft.entry("q_weight")["shape"] = json!([1_u64 << 40, 1_u64 << 40])),
        changed(|draft| draft.entry("q_weight")["shape"] = json!([31, 24])),
        changed(|draft| {
            let offsets = draft.entry("grad_key")["data_offsets"].clone();
            draft.entry("grad_value")["data_offsets"] = offsets;
        }),
        changed(|draft| {
            draft.data.extend([0; 4]);
            draft.add("sin2", &[1], &[0.0]);
        }),
        changed(|draft| draft.entry("grad_query")["data_offsets"] = json!([1280, 0])),
        changed(|draft| draft.entries[1].0 = "grad_query".to_owned()),
    ];
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn tensors_that_are_missing_or_too_many() {
    let messages = [
        message(&without(&["grad_key"]), &[]),
        message(&without(&["sin", "cos"]), &[]),
        message(&without(&["k_weight"]), &[]),
        message(&without(&["hidden_states"]), &[]),
        message(&without(&["hidden_states"]), &["--outputs", "grad_v_weight"]),
        message(&Draft { entries: Vec::new(), data: Vec::new(), padding: 0 }.bytes(), &[]),
        changed(|draft| {
            draft.add("lm_head", &[2], &[0.0; 2]);
            draft.add("embed", &[1], &[0.0]);
        }),
        changed(|draft| draft.entries[0].0 = "grad_q".to_owned()),
    ];
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn shapes_that_disagree() {
    let shape = |name: &str, shape: &[usize]| changed(|draft| draft.entry(name)["shape"] = json!(shape));
    let messages = [
        shape("grad_query", &[2, 5, 4, 8]),
        shape("grad_query", &[320]),
        shape("grad_query", &[2, 8, 5, 4]),
        shape("grad_query", &[64, 1, 5, 1]),
        shape("grad_key", &[2, 5, 3, 8]),
        shape("hidden_states", &[10, 24]),
        shape("hidden_states", &[2, 4, 30]),
        shape("q_weight", &[24, 32]),
        shape("cos", &[1, 10, 6]),
        shape("sin", &[2, 6, 5]),
        shape("cos", &[2, 2, 15]),
        shape("cos", &[60]),
    ];
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[cfg(unix)]
#[test]
fn outputs_that_cannot_be_written() {
    let folder = Folder::new();
    folder.write("in.safetensors", &Draft::small().bytes());
    std::fs::create_dir(folder.path("folder")).expect("the temporary folder is writable");
    let messages = ["in.safetensors", "folder", "absent/out.safetensors", "/dev/null", ""]
        .map(|target| report(&folder.run(&["run", "in.safetensors", "-o", target])));
    assert_eq!(folder.names(), ["folder", "in.safetensors"]);
    insta::assert_snapshot!(messages.join("\n\n"));
}

#[test]
fn usage() {
    let folder = Folder::new();
    folder.write("in.safetensors", &Draft::small().bytes());
    let run = ["run", "in.safetensors", "-o", "out.safetensors"];
    let messages = [
        folder.run(&["run"]),
        folder.run(&[&run[..], &["--threads", "0"]].concat()),
        folder.run(&[&run[..], &["--isa", "sse9"]].concat()),
        folder.run(&[&run[..], &["--style", "quarter"]].concat()),
        folder.run(&[&run[..], &["--outputs", "grad_cos"]].concat()),
        folder.run(&[&run[..], &["--device", "tpu"]].concat()),
        folder.run(&[&run[..], &["--precision", "fast", "--isa", "portable"]].concat()),
        folder.run(&["plan"]),
        folder.run(&["plan", "--case", "s1b1"]),
        folder.run(&["plan", "--dims", "B=1,S=2,E=3,H=4,D=5"]),
        folder.run(&["plan", "--dims", "B=1,S=2,E=3,H=4"]),
        folder.run(&["plan", "--case", "s128b2", "--peak", "-3", "--bandwidth", "2"]),
        folder.run(&[&run[..], &["--threads", "1000000"]].concat()),
        folder.run(&["inputs", "-o", "x.safetensors"]),
        folder.run(&["bench", "--dims", "B=1000,S=1000000,E=4096,H=32,D=128"]),
        folder.run(&["check", "--dims", "B=1000,S=1000000,E=4096,H=32,D=128"]),
        folder.run(&["inputs", "--dims", "B=1000,S=1000000,E=4096,H=32,D=128", "-o", "x.safetensors"]),
        folder.run(&["inputs", "--case", "s128b2", "--recipe", "spicy", "-o", "x.safetensors"]),
        folder.run(&["bench"]),
        folder.run(&["bench", "--dims", "B=0,S=2,E=3,H=4,D=6"]),
        folder.run(&["bench", "--case", "s128b2", "--samples", "0"]),
        folder.run(&["report", "in.safetensors"]),
        folder.run(&["report", "absent.json"]),
    ];
    let text = messages.map(|output| report(&output)).join("\n\n");
    insta::assert_snapshot!(without_memory(&text));
}

/// Machines differ in memory.
fn without_memory(text: &str) -> String {
    let known = "this machine has ";
    let lines = text.lines().map(|line| match line.split_once(known) {
        Some((before, _)) => format!("{before}{known}[bytes]"),
        None => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

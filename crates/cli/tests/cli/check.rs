//! `check`: the table, the data and the exit codes.

use crate::files::Folder;

const SIZES: &str = "B=2,S=9,E=40,H=4,K=2,D=8,R=4";

#[test]
fn small_problems_pass_on_every_instruction_set() {
    let folder = Folder::new();
    let text = folder.succeed(&["check", "--dims", SIZES, "--random", "20", "--style", "interleaved"]);
    assert!(text.contains("cpu-portable") && text.contains("20 random problems"), "{text}");
    assert!(text.contains("checks passed") && !text.contains("FAILED"), "{text}");
}

#[test]
fn the_record_holds_every_agreement() {
    let folder = Folder::new();
    let arguments =
        ["check", "--dims", SIZES, "--isa", "portable", "--recipe", "exact", "--depth", "sampled", "--json"];
    let record: serde_json::Value = serde_json::from_str(&folder.succeed(&arguments)).expect("JSON");
    assert_eq!((&record["schema"], &record["complete"]), (&"kernelproof.check/1".into(), &true.into()));
    let report = &record["checked"][0]["report"];
    assert_eq!(report["backend"], "cpu-portable");
    assert_eq!(report["agreements"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["agreements"][0]["normwise"], 0.0, "sums of the exact recipe are exact");
}

#[test]
fn a_case_can_be_named_by_its_id() {
    let folder = Folder::new();
    let arguments = ["check", "--case", "7803e88b316d", "--depth", "sampled"];
    assert!(folder.succeed(&arguments).contains("s128b2"));
}

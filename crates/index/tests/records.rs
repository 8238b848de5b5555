//! What is committed under `records/` is whole, unaltered, consistent, small and says nothing about whose machine it was.

use std::fs;
use std::path::{Path, PathBuf};

use kernelproof_index::suite::Suite;
use kernelproof_index::{Bundle, Manifest, verify};

/// Of one run: 16 cases, 11 comparisons of 4 outputs and 50 samples in each, and no more.
const MOST_BYTES: u64 = 400_000;

fn records() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records")
}

fn runs() -> Vec<PathBuf> {
    let entries = fs::read_dir(records().join("runs")).expect("runs are committed");
    let folders = entries.map(|entry| entry.expect("it is readable").path());
    folders.filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))).collect()
}

fn bundle(folder: &Path) -> Bundle {
    let (verification, bundle) = verify(folder).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(verification.findings, Vec::<String>::new());
    bundle.expect("nothing was found")
}

#[test]
fn every_committed_run_verifies_under_its_own_name() {
    for folder in runs() {
        let name = bundle(&folder).name().expect("it has an identity");
        assert!(folder.ends_with(&name), "{} should be called {name}", folder.display());
    }
}

#[test]
fn every_committed_run_is_of_the_committed_suite() {
    let suite = fs::read(records().join("suites/qkv-rope-backward.json")).expect("it is committed");
    let suite = Manifest::<Suite>::parse(&suite).expect("it is a suite").digest().expect("it has an identity");
    for folder in runs() {
        assert_eq!(bundle(&folder).run.spec.suite, suite, "{}", folder.display());
    }
}

#[test]
fn ours_and_the_rivals_are_there() {
    let names: Vec<String> = runs().iter().map(|run| bundle(run).implementation.spec.name).collect();
    let ours = ["cpu-avx512", "cpu-avx2", "cpu-portable", "cuda-fast", "cuda-split"];
    let rivals = ["pytorch-eager", "pytorch-compiled", "pytorch-compiled-tf32", "triton-cublas-fp16"];
    for expected in ours.into_iter().chain(rivals) {
        assert!(names.iter().any(|name| name == expected), "{expected} is not among {names:?}");
    }
}

#[test]
fn records_are_small_and_name_no_folder_of_a_machine() {
    for folder in runs() {
        let mut bytes = 0;
        for entry in fs::read_dir(&folder).expect("it is a folder") {
            let path = entry.expect("it is readable").path();
            let text = fs::read_to_string(&path).expect("it is text");
            bytes += text.len() as u64;
            let words = text.split([' ', '\n', '"', '\'', '\\', '(', '=', ',']);
            // An absolute path has a folder and something in it; `//` begins a comment or follows a scheme.
            let absolute = |word: &&str| word.starts_with('/') && word[1..].contains('/') && !word.starts_with("//");
            let private = words.into_iter().find(|word| absolute(word) || *word == "Users");
            assert_eq!(private, None, "{}", path.display());
        }
        assert!(bytes <= MOST_BYTES, "{}: {bytes} bytes", folder.display());
    }
}

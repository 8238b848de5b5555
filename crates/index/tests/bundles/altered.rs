//! A bundle as it was written verifies; one altered byte of any file does not.

use std::fs;
use std::path::{Path, PathBuf};

use kernelproof_index::bundle::write;
use kernelproof_index::trust::Trust;
use kernelproof_index::verify;
use proptest::prelude::*;

use kernelproof_index::testing::example;

struct Written {
    _parent: tempfile::TempDir,
    folder: PathBuf,
}

fn written() -> Written {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = write(&example::bundle(), parent.path()).expect("it is writable").folder().to_owned();
    Written { _parent: parent, folder }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).expect("it is a folder").map(|entry| entry.expect("it is readable").path()).collect();
    files.sort();
    files
}

fn verifies(folder: &Path) -> bool {
    verify(folder).is_ok_and(|(verification, _)| verification.findings.is_empty())
}

#[test]
fn a_bundle_survives_its_folder() {
    let written = written();
    let (verification, bundle) = verify(&written.folder).expect("it is a bundle");
    assert_eq!(verification.findings, Vec::<String>::new());
    assert_eq!(bundle, Some(example::bundle()));
    assert_eq!(verification.run, example::bundle().run.digest().ok());
    assert_eq!(verification.standing.map(|standing| standing.trust), Some(Trust::Reproducible));
    let name = written.folder.file_name().and_then(|name| name.to_str()).expect("it has a name");
    assert!(name.starts_with("2026-01-02-cpu-avx2-"), "{name}");
    assert_eq!(files(&written.folder).len(), 9);
}

#[test]
fn every_bit_of_small_files_counts() {
    let written = written();
    for path in files(&written.folder).into_iter().filter(|path| !path.ends_with("run.json")) {
        let whole = fs::read(&path).expect("it is readable");
        for (place, bit) in (0..whole.len()).step_by(7).zip((0..8).cycle()) {
            let mut altered = whole.clone();
            altered[place] ^= 1 << bit;
            fs::write(&path, &altered).expect("it is writable");
            assert!(!verifies(&written.folder), "{} bit {bit} of byte {place}", path.display());
        }
        fs::write(&path, &whole).expect("it is writable");
    }
    assert!(verifies(&written.folder));
}

#[test]
fn a_missing_and_an_additional_file_are_named() {
    let written = written();
    fs::remove_file(written.folder.join("figures.json")).expect("it is there");
    fs::write(written.folder.join("more.log"), "more").expect("it is writable");
    let (verification, _) = verify(&written.folder).expect("it is a bundle");
    let ends = |end: &str| verification.findings.iter().any(|finding| finding.ends_with(end));
    assert!(ends("more.log: is not listed in SHA256SUMS"), "{:?}", verification.findings);
    assert!(ends("figures.json: is missing"), "{:?}", verification.findings);
}

#[test]
fn the_digits_of_another_run_in_the_name_are_found() {
    let written = written();
    let renamed = written.folder.with_file_name("2026-01-02-cpu-avx2-0123456789ab");
    fs::rename(&written.folder, &renamed).expect("it can be renamed");
    let (verification, _) = verify(&renamed).expect("it is a bundle");
    assert!(verification.findings[0].contains("is named after another run"), "{:?}", verification.findings);
    let plain = renamed.with_file_name("copy");
    fs::rename(&renamed, &plain).expect("it can be renamed");
    assert!(verifies(&plain));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_altered_byte_is_found(file in 0_usize..9, place in any::<prop::sample::Index>(), change in 1_u8..=255) {
        let written = written();
        let path = &files(&written.folder)[file];
        let mut text = fs::read(path).expect("it is readable");
        let place = place.index(text.len());
        text[place] ^= change;
        fs::write(path, text).expect("it is writable");
        prop_assert!(!verifies(&written.folder));
    }

    #[test]
    fn a_truncated_file_is_found(file in 0_usize..9, place in any::<prop::sample::Index>()) {
        let written = written();
        let path = &files(&written.folder)[file];
        let text = fs::read(path).expect("it is readable");
        fs::write(path, &text[..place.index(text.len())]).expect("it is writable");
        prop_assert!(!verifies(&written.folder));
    }
}

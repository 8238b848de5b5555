//! Folders that no program of ours made, and disks and users that get in the way.

use std::fs;
use std::path::Path;

use kernelproof_index::bundle::{SUMS, Written, write};
use kernelproof_index::verify;

use kernelproof_index::testing::example;

fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = write(&example::bundle(), parent.path()).expect("it is writable").folder().to_owned();
    (parent, folder)
}

#[track_caller]
fn assert_refused(folder: &Path, expected: &str) {
    let error = verify(folder).expect_err("it is no bundle").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_is_no_bundle_is_called_so() {
    let (parent, folder) = folder();
    assert_refused(&parent.path().join("nothing"), "nothing: cannot be read");
    assert_refused(&folder.join("run.json"), "run.json: cannot be read");
    let empty = tempfile::tempdir().expect("a temporary folder");
    assert_refused(empty.path(), "is no bundle of a run: it has no SHA256SUMS");
}

#[test]
fn odd_entries_are_refused() {
    for name in ["UPPER.json", ".hidden.json", "space .json", "run.json~", "run.exe"] {
        let (_parent, folder) = folder();
        fs::write(folder.join(name), "x").expect("it is writable");
        assert_refused(&folder, "is no name of a file in a bundle");
    }
    let (_parent, folder) = folder();
    fs::create_dir(folder.join("a.json")).expect("it is writable");
    assert_refused(&folder, "a.json: is no regular file");
}

#[test]
fn too_much_is_refused_without_reading_it() {
    let (_parent, folder) = folder();
    let sparse = fs::File::create(folder.join("large.log")).expect("it is writable");
    sparse.set_len(1 << 40).expect("it is sparse");
    assert_refused(&folder, "large.log: is larger than");
    fs::remove_file(folder.join("large.log")).expect("it is there");
    for number in 0..80 {
        fs::write(folder.join(format!("{number}.log")), "").expect("it is writable");
    }
    assert_refused(&folder, "holds more than 64 files");
}

#[test]
fn a_list_that_leads_elsewhere_is_refused() {
    let (_parent, folder) = folder();
    let sums = fs::read_to_string(folder.join(SUMS)).expect("it is readable");
    fs::write(folder.join(SUMS), sums.replace("run.json", "../run.json")).expect("it is writable");
    assert_refused(&folder, "SHA256SUMS: line");
    fs::write(folder.join(SUMS), [0xff, b'\n']).expect("it is writable");
    assert_refused(&folder, "SHA256SUMS: is not UTF-8");
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    let (_parent, folder) = folder();
    let target = folder.with_extension("elsewhere");
    fs::rename(folder.join("run.json"), &target).expect("it is movable");
    std::os::unix::fs::symlink(&target, folder.join("run.json")).expect("a link");
    assert_refused(&folder, "run.json: is a link");
}

#[test]
fn the_same_run_twice_is_written_once() {
    let (parent, folder) = folder();
    let again = write(&example::bundle(), parent.path()).expect("it is no error");
    assert_eq!(again, Written::Already(folder.clone()));
    fs::write(folder.join("figures.json"), "{}").expect("it is writable");
    let error = write(&example::bundle(), parent.path()).expect_err("another run is there").to_string();
    assert!(error.ends_with("is there already and holds something else; it was left as it is"), "{error}");
    assert_eq!(entries(parent.path()), 1);
}

#[test]
fn many_writers_at_once_leave_one_whole_bundle() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let mut other = example::evaluation();
    other.observed = "2026-01-03T00:00:00Z".to_owned();
    let other = kernelproof_index::Bundle::of(other, example::attached()).expect("it is consistent");
    let one = example::bundle();
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let (bundle, parent) = (if writer % 2 == 0 { &one } else { &other }, parent.path());
            scope.spawn(move || write(bundle, parent).expect("it is writable"));
        }
    });
    assert_eq!(entries(parent.path()), 2);
    for entry in fs::read_dir(parent.path()).expect("it is a folder") {
        let (verification, _) = verify(&entry.expect("it is readable").path()).expect("it is a bundle");
        assert_eq!(verification.findings, Vec::<String>::new());
    }
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("it is a folder").count()
}

#[test]
fn what_a_killed_writer_left_is_swept_and_what_another_writes_is_not() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let left = |name: &str| {
        let folder = parent.path().join(name);
        fs::create_dir(&folder).expect("it is writable");
        fs::write(folder.join("run.json"), "{").expect("it is writable");
        let handle = fs::File::open(&folder).expect("it is a folder");
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        handle.set_modified(old).expect("it is ours");
        handle
    };
    drop(left(".partial-killed"));
    let busy = left(".partial-busy");
    busy.lock_shared().expect("it can be locked");
    fs::create_dir(parent.path().join(".partial-young")).expect("it is writable");
    write(&example::bundle(), parent.path()).expect("it is writable");
    assert!(!parent.path().join(".partial-killed").exists());
    assert!(parent.path().join(".partial-busy/run.json").exists());
    assert!(parent.path().join(".partial-young").exists());
}

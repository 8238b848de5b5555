//! A process that is killed with SIGKILL in the middle leaves all of a change or nothing.
//!
//! The child is this very test binary, told by its environment what to do.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kernelproof_index::Store;
use kernelproof_index::check::check;
use kernelproof_index::import::{Mode, Records, import};
use kernelproof_index::intake::{pack, submit};
use kernelproof_index::testing::generate::bundle;
use kernelproof_index::token::Submitter;

use crate::support::{Place, recipe};

const TASK: &str = "KERNELPROOF_TEST_TASK";
const FOLDER: &str = "KERNELPROOF_TEST_FOLDER";

/// Not a test of its own: what a child does when it is told to.
#[test]
fn child() {
    let (Ok(task), Ok(folder)) = (std::env::var(TASK), std::env::var(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    let store = Store::open(&folder.join("index.sqlite")).expect("it opens");
    writeln!(std::io::stderr(), "begun").expect("the parent listens");
    match task.as_str() {
        "submit" => {
            for day in 1..29 {
                let files = bundle(&recipe("sent", day, 30_000.0)).files().expect("it is plain data");
                let archive = pack(&files).expect("it is small");
                submit(&store, &Submitter::known_as("ada"), &archive, "2026-02-01T00:00:00Z").expect("it is right");
            }
        }
        task => {
            let mode = if task == "rebuild" { Mode::Rebuild } else { Mode::Add };
            let records = Records::at(&folder.join("records")).expect("they are records");
            import(&store, &records, mode, &mut |_, _| {}).expect("they are right");
        }
    }
}

/// Starts a child and waits until it has opened the store.
fn start(task: &str, folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "killed::child", "--nocapture", "--test-threads=1"])
        .env(TASK, task)
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut said = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !line.contains("begun") {
        line.clear();
        assert!(said.read_line(&mut line).expect("it is text") > 0, "the child ended early");
    }
    child
}

/// Kills a child after each of some delays, and returns how many runs are stored then. What is there must verify.
fn kill_after(task: &str, place: &Place, delays_ms: &[u64]) -> Vec<usize> {
    let count = |delay| {
        let mut child = start(task, place.path());
        std::thread::sleep(Duration::from_millis(delay));
        // SIGKILL; it may have ended by itself.
        drop(child.kill());
        child.wait().expect("it ends");
        let store = place.store();
        let findings = check(&store, None, &mut |_, _| {}).expect("it is readable");
        assert_eq!(findings.wrong, Vec::<String>::new(), "after {delay} ms");
        store.runs().expect("it is readable").len()
    };
    delays_ms.iter().copied().map(count).collect()
}

#[test]
fn an_import_is_whole_or_absent() {
    let place = Place::new();
    for day in 1..13 {
        place.add(&recipe("one", day, 30_000.0));
    }
    let counts = kill_after("import", &place, &[0, 8, 16, 30]);
    assert!(counts.iter().all(|count| [0, 12].contains(count)), "{counts:?}");
    assert!(counts.is_sorted());
    place.import();
    assert_eq!(place.catalog().runs().len(), 12);
    // A rebuild drops the tables first: the old ones must come back.
    let counts = kill_after("rebuild", &place, &[0, 8, 16, 30]);
    assert!(counts.iter().all(|count| *count == 12), "{counts:?}");
}

#[test]
fn submissions_are_whole_or_absent() {
    let place = Place::new();
    place.import();
    let counts = kill_after("submit", &place, &[0, 7, 20, 45]);
    assert!(counts.is_sorted(), "what was stored stays: {counts:?}");
    assert_eq!(place.store().submissions().expect("it is readable").len(), counts[3]);
}

//! Sessions for tensors on a GPU beside a driver that only takes notes: what a call asks of it, and what the cache of
//! sessions does. The test runs itself again with that driver in its library path.
#![cfg(target_os = "linux")]

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use qkv_rope::cuda::{CUstream, DeviceSession, WorkspacePtr};
use qkv_rope::device::shared_session;
use qkv_rope::{Dims, Inputs, Output, Outputs, Precision, Problem, View, ViewMut};

const LOG: &str = "FAKE_DRIVER_LOG";
const SIDE: usize = 5;
const CAPTURED: usize = 7;

fn problem(seq: usize) -> Problem {
    let dims = Dims::new(1, seq, 64, 2, 1, 32).expect("small sizes");
    Problem { precision: Precision::Split, ..Problem::new(dims) }
}

fn note(text: &str) {
    let path = std::env::var_os(LOG).expect("set by the outer test");
    let mut log = std::fs::OpenOptions::new().append(true).open(path).expect("the driver's log");
    writeln!(log, "{text}").expect("room for a line");
}

/// A dense tensor at an address that nobody reads.
fn view<'a, const RANK: usize>(address: usize, shape: [usize; RANK]) -> View<'a, RANK> {
    // SAFETY: no memory is there and nobody reads it: the driver is a fake.
    unsafe { View::from_raw_parts(std::ptr::without_provenance(address), shape, strides(shape)) }.expect("dense")
}

fn output<'a, const RANK: usize>(address: usize, shape: [usize; RANK]) -> Option<Output<'a, RANK>> {
    // SAFETY: as in `view`.
    let view = unsafe { ViewMut::from_raw_parts(std::ptr::without_provenance_mut(address), shape, strides(shape)) };
    Some(Output::overwrite(view.expect("dense")))
}

fn strides<const RANK: usize>(shape: [usize; RANK]) -> [usize; RANK] {
    let mut strides = [1; RANK];
    for dim in (1..RANK).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

/// One call, `shift` bytes off the alignment of 16.
fn call(session: &DeviceSession, stream: usize, shift: usize) {
    let seq = session.problem().dims.seq();
    let at = |index: usize| 0x7000_0000 + index * 0x10_0000 + shift;
    let inputs = Inputs {
        grad_query: view(at(0), [1, 2, seq, 32]),
        grad_key: view(at(1), [1, 1, seq, 32]),
        grad_value: view(at(2), [1, 1, seq, 32]),
        hidden_states: Some(view(at(3), [1, seq, 64])),
        q_weight: Some(view(at(4), [64, 64])),
        k_weight: Some(view(at(5), [32, 64])),
        v_weight: Some(view(at(6), [32, 64])),
        cos: view(at(7), [1, seq, 32]),
        sin: view(at(8), [1, seq, 32]),
    };
    let mut outputs = Outputs {
        grad_hidden: output(at(9), [1, seq, 64]),
        grad_q_weight: output(at(10), [64, 64]),
        grad_k_weight: output(at(11), [32, 64]),
        grad_v_weight: output(at(12), [32, 64]),
    };
    let workspace = WorkspacePtr { address: 0x9000_0000, bytes: session.workspace_bytes_for(&inputs, &mut outputs) };
    let stream: CUstream = std::ptr::without_provenance_mut(stream);
    // SAFETY: as in `view`.
    unsafe { session.enqueue(&inputs, &mut outputs, workspace, stream) }.expect("a call that fits");
}

/// What the process with the fake driver does; nothing anywhere else.
#[test]
fn beside_the_fake_driver() {
    if std::env::var_os(LOG).is_none() {
        return;
    }
    let first = shared_session(0, &problem(8)).expect("a session");
    assert!(Arc::ptr_eq(&first, &shared_session(0, &problem(8)).expect("the same")));
    note("call");
    call(&first, SIDE, 0);
    note("called");
    call(&first, SIDE, 4);
    note("called off alignment");
    let captured = shared_session(0, &problem(9)).expect("a session");
    call(&captured, CAPTURED, 0);
    assert!(captured.was_captured() && !first.was_captured());
    let weak = Arc::downgrade(&captured);
    drop((first, captured));
    note("many");
    for seq in 10..300 {
        shared_session(0, &problem(seq)).expect("a session");
    }
    let kept = weak.upgrade().expect("a graph uses its tables");
    assert!(Arc::ptr_eq(&kept, &shared_session(0, &problem(9)).expect("still there")));
    note("again");
    shared_session(0, &problem(8)).expect("made again");
    note("end");
}

fn compiled(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver/fake.c");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-std=gnu99", "-Wall", "-Wextra", "-Werror", "-o"]);
    let done = command.arg(folder.join("libcuda.so")).arg(source).output().expect("a C compiler");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The lines between two notes.
fn between<'a>(log: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    log.lines().skip_while(|&line| line != from).skip(1).take_while(|&line| line != to).collect()
}

#[test]
fn a_call_only_launches_and_the_cache_frees_only_after_waiting() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    compiled(folder.path());
    let log = folder.path().join("log");
    std::fs::write(&log, "").expect("an empty log");
    let this = std::env::current_exe().expect("the test's own path");
    let mut inner = Command::new(this);
    inner.args(["--exact", "beside_the_fake_driver"]).env("LD_LIBRARY_PATH", folder.path()).env(LOG, &log);
    let done = inner.output().expect("the test runs again");
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(done.status.success(), "{said}");
    let log = std::fs::read_to_string(&log).expect("the driver's log");

    for calls in [between(&log, "call", "called"), between(&log, "called", "called off alignment")] {
        let launches = calls.iter().filter(|&&line| line == "launch on 0x5").count();
        assert!((3..=4).contains(&launches), "{calls:?}");
        let context = calls.iter().filter(|line| line.starts_with("context ")).count();
        assert_eq!(launches + context, calls.len(), "nothing else is asked of the driver: {calls:?}");
        let last = calls.iter().rfind(|line| line.starts_with("context "));
        assert_eq!(last, Some(&"context (nil)"), "the caller's context is current again");
    }

    let made = between(&log, "many", "again");
    assert!(made.iter().all(|line| !line.starts_with("launch")), "sessions launch nothing");
    assert!(made.iter().all(|&line| line != "copy on (nil)"), "tables go up on a stream of their own");
    assert!(made.iter().filter(|line| line.starts_with("allocate")).all(|&line| line == "allocate in mode 2"));
    let first_free = made.iter().position(|&line| line == "free").expect("more sessions than are kept");
    assert!(made[..first_free].contains(&"wait for all"), "{made:?}");
    // Two plans of two tables each.
    assert_eq!(made.iter().filter(|&&line| line == "free").count(), 128 * 4);
    assert!(between(&log, "again", "end").iter().any(|line| line.starts_with("allocate")), "the oldest was let go");
}

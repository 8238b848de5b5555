//! Sessions kept between calls: a training loop asks for the same few problems in every step.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use qkv_rope::process::{PerProcess, shared_cpu};
use qkv_rope::{Backend, Error, Problem, Session};

/// Sessions that wait for their next call. Each holds a workspace of at most a few dozen MiB.
const MOST_IDLE: usize = 8;

type Key = (Problem, Option<NonZeroUsize>);

struct Idle {
    key: Key,
    session: Box<dyn Session>,
}

/// Oldest first.
static IDLE: PerProcess<Mutex<Vec<Idle>>> = PerProcess::new();

/// Runs `call` on a session for `problem` that no other thread is using.
pub(crate) fn with_session(
    problem: &Problem,
    threads: Option<NonZeroUsize>,
    call: impl FnOnce(&mut dyn Session) -> Result<(), Error>,
) -> Result<(), Error> {
    let key = (*problem, threads);
    let mut session = match take(&key) {
        Some(session) => session,
        None => shared_cpu(threads)?.session(problem)?,
    };
    // A panic drops the session, whose workspace may be half written.
    let done = call(session.as_mut());
    put(Idle { key, session });
    done
}

fn take(key: &Key) -> Option<Box<dyn Session>> {
    let mut idle = IDLE.get().lock().unwrap_or_else(PoisonError::into_inner);
    let index = idle.iter().rposition(|idle| idle.key == *key)?;
    Some(idle.remove(index).session)
}

fn put(returned: Idle) {
    let mut idle = IDLE.get().lock().unwrap_or_else(PoisonError::into_inner);
    idle.push(returned);
    let oldest = if idle.len() > MOST_IDLE { Some(idle.remove(0)) } else { None };
    drop(idle);
    // Its memory is unmapped after the lock is gone.
    drop(oldest);
}

//! The door for submissions: who may send how much how often. What is sent is checked and stored by the library of the
//! index ([`kernelproof_index::intake`]), and never run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernelproof_index::intake::MOST_ARCHIVE_BYTES;
use kernelproof_index::store::Store;

/// How much may be sent.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body of a submission.
    pub body_bytes: usize,
    /// Submissions of one submitter within the window.
    pub per_window: u32,
    /// Wrong tokens from one address within the window.
    pub wrong_tokens: u32,
    /// The window.
    pub window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes: MOST_ARCHIVE_BYTES, per_window: 60, wrong_tokens: 20, window: Duration::from_secs(3600) }
    }
}

/// The door for submissions.
pub struct Intake {
    pub(crate) store: Arc<Store>,
    pub(crate) limits: Limits,
    seen: Mutex<HashMap<String, Window>>,
    /// One submission at a time: the store has one writer, and memory one body.
    pub(crate) turn: tokio::sync::Semaphore,
}

#[derive(Clone, Copy)]
struct Window {
    began: Instant,
    count: u32,
}

/// Names whose windows are remembered; old ones go first.
const MOST_SEEN: usize = 10_000;

impl Intake {
    /// A door to a store.
    pub fn new(store: Arc<Store>, limits: Limits) -> Self {
        Self { store, limits, seen: Mutex::default(), turn: tokio::sync::Semaphore::new(1) }
    }

    /// Counts one more event of `name`; false when it had `most` in this window already.
    pub(crate) fn allows(&self, name: &str, most: u32, now: Instant) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= MOST_SEEN {
            seen.retain(|_, window| now.duration_since(window.began) < self.limits.window);
        }
        if seen.len() >= MOST_SEEN && !seen.contains_key(name) {
            return false;
        }
        let window = seen.entry(name.to_owned()).or_insert(Window { began: now, count: 0 });
        if now.duration_since(window.began) >= self.limits.window {
            *window = Window { began: now, count: 0 };
        }
        window.count = window.count.saturating_add(1);
        window.count <= most
    }

    /// Whether `name` had `most` events in this window, without counting one.
    pub(crate) fn is_full(&self, name: &str, most: u32, now: Instant) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let window = seen.get(name).filter(|window| now.duration_since(window.began) < self.limits.window);
        window.is_some_and(|window| window.count >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_full_and_then_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("index.db")).expect("a store");
        let intake = Intake::new(Arc::new(store), Limits { window: Duration::from_secs(10), ..Limits::default() });
        let start = Instant::now();
        assert!(intake.allows("a", 2, start) && intake.allows("a", 2, start) && !intake.allows("a", 2, start));
        assert!(intake.is_full("a", 2, start) && !intake.is_full("b", 2, start) && intake.allows("b", 2, start));
        assert!(intake.allows("a", 2, start + Duration::from_secs(10)));
    }
}

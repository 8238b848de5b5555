//! Submissions: who may send how much how often. What is sent is checked and stored by the library of the index, never run.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernelproof_index::Digest;
use kernelproof_index::catalog::Catalog;

/// What stores submissions.
pub trait Receive: Send + Sync {
    /// Who holds this token; `None` for a token that nobody has.
    ///
    /// # Errors
    /// What the store said.
    fn submitter(&self, token: &str) -> Result<Option<String>, String>;

    /// Checks the files of a bundle and stores it, all or nothing.
    ///
    /// # Errors
    /// Why it is refused, or what the store said.
    fn receive(&self, submitter: &str, files: BTreeMap<String, Vec<u8>>) -> Result<Received, Refused>;
}

/// A bundle that is in the index now.
#[derive(Debug)]
pub struct Received {
    /// Identity of its run.
    pub run: Digest,
    /// Whether it was not there before.
    pub new: bool,
    /// The catalog with it; `None` when nothing changed.
    pub catalog: Option<Arc<Catalog>>,
}

/// Why a submission is not stored.
#[derive(Debug)]
pub enum Refused {
    /// Something is wrong with the bundle: everything that was found, each naming the file.
    Bundle(Vec<String>),
    /// The store failed; the submitter can do nothing about it.
    Store(String),
}

/// How much may be sent.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest body of a submission.
    pub body_bytes: usize,
    /// Most files of a bundle.
    pub files: usize,
    /// Submissions of one submitter within the window.
    pub per_window: u32,
    /// Wrong tokens from one address within the window.
    pub wrong_tokens: u32,
    /// The window.
    pub window: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { body_bytes: 64 << 20, files: 64, per_window: 60, wrong_tokens: 20, window: Duration::from_secs(3600) }
    }
}

/// The door for submissions.
pub struct Intake {
    pub(crate) receive: Arc<dyn Receive>,
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
    pub fn new(receive: Arc<dyn Receive>, limits: Limits) -> Self {
        Self { receive, limits, seen: Mutex::default(), turn: tokio::sync::Semaphore::new(1) }
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

    struct Nobody;

    impl Receive for Nobody {
        fn submitter(&self, _: &str) -> Result<Option<String>, String> {
            Ok(None)
        }

        fn receive(&self, _: &str, _: BTreeMap<String, Vec<u8>>) -> Result<Received, Refused> {
            Err(Refused::Store("nobody".to_owned()))
        }
    }

    #[test]
    fn a_window_is_full_and_then_over() {
        let intake = Intake::new(Arc::new(Nobody), Limits { window: Duration::from_secs(10), ..Limits::default() });
        let start = Instant::now();
        assert!(intake.allows("a", 2, start) && intake.allows("a", 2, start) && !intake.allows("a", 2, start));
        assert!(intake.is_full("a", 2, start) && !intake.is_full("b", 2, start) && intake.allows("b", 2, start));
        assert!(intake.allows("a", 2, start + Duration::from_secs(10)));
    }
}

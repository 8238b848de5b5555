//! Telling a caller how far a check is, without printing.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Computing reference rows.
    Reference,
    /// Running the implementation.
    Running,
    /// Comparing outputs.
    Comparing,
}

/// Called with the stage, what is done of it and how much there is to do; from several threads, in no order.
pub type Progress<'a> = &'a (dyn Fn(Stage, usize, usize) + Sync);

/// For callers that do not care.
pub fn silent(_stage: Stage, _done: usize, _total: usize) {}

pub(super) struct Counter<'a> {
    stage: Stage,
    done: AtomicUsize,
    total: usize,
    progress: Progress<'a>,
}

impl<'a> Counter<'a> {
    pub(super) fn new(stage: Stage, total: usize, progress: Progress<'a>) -> Self {
        progress(stage, 0, total);
        Self { stage, done: AtomicUsize::new(0), total, progress }
    }

    pub(super) fn silent() -> Self {
        Self::new(Stage::Reference, 0, &silent)
    }

    pub(super) fn advance(&self, by: usize) {
        let done = self.done.fetch_add(by, Ordering::Relaxed) + by;
        (self.progress)(self.stage, done, self.total);
    }
}

//! Ctrl-C: the first press asks to stop after the current step, the second one stops at once.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

use crate::failure::Exit;
use crate::output;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Starts to listen. Call it from commands that can stop half-way with a result; the others end at once.
///
/// # Errors
/// When the operating system refuses a handler.
pub(crate) fn listen() -> anyhow::Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted as i32);
        }
        output::note("stopping after the current step; press Ctrl-C again to stop at once");
    })
    .context("no handler for Ctrl-C")
}

/// Whether the user asked to stop.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

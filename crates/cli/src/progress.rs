//! A progress bar with the time left, on stderr and only where a person sees it.

use indicatif::{ProgressBar, ProgressStyle};

/// Progress of a command whose steps differ in cost.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar over `total` units of work. It draws nothing when stderr is no terminal.
    pub(crate) fn new(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        let template = "{bar:30} {percent:>3} %  {eta_precise} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// What is being done now.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
        self.0.tick();
    }

    /// `done` of `all` units are done.
    pub(crate) fn at(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }

    /// `amount` units are done.
    pub(crate) fn add(&self, amount: u64) {
        self.0.inc(amount);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

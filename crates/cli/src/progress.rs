//! What a long command is doing, on stderr: a bar with the time left on a terminal, a line now and then elsewhere.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::output;

/// Time between two lines where there is no terminal, and before the first: short commands say nothing.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Progress of a command whose steps differ in cost.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// When the last line was written; `None` where the bar is drawn.
    last_line: Option<Mutex<Instant>>,
}

impl Progress {
    /// Progress over `total` units of work.
    pub(crate) fn new(total: u64) -> Self {
        let bar = ProgressBar::new(total);
        let template = "{bar:30} {percent:>3} %  {eta_precise} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        let last_line = bar.is_hidden().then(|| Mutex::new(Instant::now()));
        Self { bar, last_line }
    }

    /// What is being done now.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        self.bar.set_message(what.into());
        self.bar.tick();
        self.tell();
    }

    /// `done` of `all` units are done.
    pub(crate) fn at(&self, done: u64, all: u64) {
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.tell();
    }

    /// `amount` units are done.
    pub(crate) fn add(&self, amount: u64) {
        self.bar.inc(amount);
        self.tell();
    }

    /// Writes a line where there is no bar and it is time for one.
    fn tell(&self) {
        let Some(last_line) = &self.last_line else { return };
        let mut last_line = last_line.lock().unwrap_or_else(PoisonError::into_inner);
        if last_line.elapsed() >= BETWEEN_LINES {
            *last_line = Instant::now();
            output::note(&line(self.bar.position(), self.bar.length(), self.bar.eta(), &self.bar.message()));
        }
    }
}

fn line(done: u64, all: Option<u64>, left: Duration, what: &str) -> String {
    let percent = u128::from(done) * 100 / u128::from(all.unwrap_or(0).max(1));
    format!("{percent:>3} %, {} left: {what}", HumanDuration(left))
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        assert_eq!(line(25, Some(200), Duration::from_secs(90), "s128b2"), " 12 %, 2 minutes left: s128b2");
        assert_eq!(line(0, None, Duration::ZERO, ""), "  0 %, 0 seconds left: ");
    }

    #[test]
    fn short_commands_write_no_line() {
        let progress = Progress::new(4);
        progress.doing("one");
        progress.add(1);
        let begun = progress.last_line.as_ref().map(|last| *last.lock().expect("nobody panicked"));
        progress.at(2, 4);
        assert_eq!(begun, progress.last_line.as_ref().map(|last| *last.lock().expect("nobody panicked")));
    }
}

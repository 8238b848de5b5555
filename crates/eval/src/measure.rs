//! Interleaved timing: contestants take turns on the same case, so that whatever slows the machine slows all of them.

use std::ops::ControlFlow;
use std::time::Instant;

/// Reads time. A trait, so that tests of everything above it are deterministic.
pub trait Clock: Sync {
    /// Nanoseconds since some fixed moment; never goes back.
    fn now_ns(&self) -> u64;
}

/// The monotonic clock of the operating system.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        // 2^64 ns are 584 years.
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Why a contestant could not go on, in words for the person who reads the table.
pub type Reason = Box<dyn std::error::Error + Send + Sync>;

/// Something that can be timed on a case it was prepared for.
pub trait Contestant {
    /// The name under which its samples are listed.
    fn name(&self) -> String;

    /// Untimed work before a call, such as choosing the round's inputs.
    ///
    /// # Errors
    /// Whatever keeps the contestant from running the round.
    fn prepare(&mut self, round: u64) -> Result<(), Reason> {
        let _ = round;
        Ok(())
    }

    /// Runs the case once and returns the time it took, in nanoseconds. A contestant in another process may time
    /// itself; one in this process reads `clock` right before and right after its call.
    ///
    /// # Errors
    /// Whatever made the call fail.
    fn run_once(&mut self, clock: &dyn Clock) -> Result<u64, Reason>;
}

/// How often a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Rounds whose times are dropped.
    pub warmup: u32,
    /// Rounds whose times are kept.
    pub samples: u32,
}

/// Where a measurement stands; given to the watcher after each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Rounds done, warm-ups included.
    pub done: u32,
    /// Rounds in all.
    pub total: u32,
}

/// Why a measurement ended.
#[derive(Debug)]
pub enum Ended {
    /// All samples are there.
    Complete,
    /// The watcher asked to stop; the samples so far are there.
    Stopped,
    /// A contestant gave up; the samples so far are there.
    Failed {
        /// The contestant's name.
        contestant: String,
        /// What it said.
        reason: Reason,
    },
}

/// What was measured, in the order of the contestants.
#[derive(Debug)]
pub struct Measurement {
    /// Kept samples of each contestant, in ns. Sample i of one was taken right beside sample i of the others.
    pub samples_ns: Vec<Vec<u64>>,
    /// Why it ended.
    pub ended: Ended,
}

/// Times the contestants in turn (A B A B) and keeps every sample.
///
/// `between` runs before each call, untimed: it is where caches are flushed. `watch` runs after each round; when it
/// breaks, the measurement stops with what it has.
pub fn measure(
    contestants: &mut [&mut dyn Contestant],
    protocol: Protocol,
    clock: &dyn Clock,
    between: &mut dyn FnMut(),
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Measurement {
    let mut samples_ns = vec![Vec::new(); contestants.len()];
    let total = protocol.warmup.saturating_add(protocol.samples);
    for round in 0..total {
        for (contestant, kept) in contestants.iter_mut().zip(&mut samples_ns) {
            match turn(&mut **contestant, u64::from(round), clock, between) {
                Ok(time_ns) if round >= protocol.warmup => kept.push(time_ns),
                Ok(_) => {}
                Err(reason) => {
                    let ended = Ended::Failed { contestant: contestant.name(), reason };
                    return Measurement { samples_ns, ended };
                }
            }
        }
        if watch(Progress { done: round + 1, total }).is_break() && round + 1 < total {
            return Measurement { samples_ns, ended: Ended::Stopped };
        }
    }
    Measurement { samples_ns, ended: Ended::Complete }
}

fn turn(
    contestant: &mut dyn Contestant,
    round: u64,
    clock: &dyn Clock,
    between: &mut dyn FnMut(),
) -> Result<u64, Reason> {
    contestant.prepare(round)?;
    between();
    contestant.run_once(clock)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use super::*;

    #[derive(Default)]
    struct FakeClock(AtomicU64);

    impl Clock for FakeClock {
        fn now_ns(&self) -> u64 {
            self.0.load(SeqCst)
        }
    }

    /// Takes `step_ns` more on each call and logs its turns.
    struct Player<'a> {
        name: &'static str,
        step_ns: u64,
        calls: u64,
        fails_at: Option<u64>,
        clock: &'a FakeClock,
        log: &'a RefCell<String>,
    }

    impl Contestant for Player<'_> {
        fn name(&self) -> String {
            self.name.to_owned()
        }

        fn run_once(&mut self, clock: &dyn Clock) -> Result<u64, Reason> {
            self.calls += 1;
            self.log.borrow_mut().push_str(self.name);
            if self.fails_at == Some(self.calls) {
                return Err("out of breath".into());
            }
            let start_ns = clock.now_ns();
            self.clock.0.store(start_ns + self.step_ns * self.calls, SeqCst);
            Ok(clock.now_ns() - start_ns)
        }
    }

    fn play(fails_at: Option<u64>, stop_after: Option<u32>) -> (Measurement, String) {
        let (clock, log) = (FakeClock::default(), RefCell::default());
        let mut a = Player { name: "A", step_ns: 10, calls: 0, fails_at: None, clock: &clock, log: &log };
        let mut b = Player { name: "B", step_ns: 100, calls: 0, fails_at, clock: &clock, log: &log };
        let mut flush = || {
            log.borrow_mut().push('.');
            clock.0.fetch_add(1_000_000, SeqCst);
        };
        let mut watch = |progress: Progress| match stop_after {
            Some(rounds) if progress.done >= rounds => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let protocol = Protocol { warmup: 1, samples: 2 };
        let measurement = measure(&mut [&mut a, &mut b], protocol, &clock, &mut flush, &mut watch);
        (measurement, log.take())
    }

    #[test]
    fn contestants_take_turns_and_warmups_are_dropped() {
        let (measurement, log) = play(None, None);
        assert_eq!(log, ".A.B.A.B.A.B");
        assert_eq!(measurement.samples_ns, [vec![20, 30], vec![200, 300]]);
        assert!(matches!(measurement.ended, Ended::Complete));
    }

    #[test]
    fn a_stop_keeps_whole_rounds() {
        let (measurement, log) = play(None, Some(2));
        assert_eq!(log, ".A.B.A.B");
        assert_eq!(measurement.samples_ns, [vec![20], vec![200]]);
        assert!(matches!(measurement.ended, Ended::Stopped));
    }

    #[test]
    fn a_failure_keeps_what_was_measured_and_names_the_contestant() {
        let (measurement, _) = play(Some(3), None);
        assert_eq!(measurement.samples_ns, [vec![20, 30], vec![200]]);
        let Ended::Failed { contestant, reason } = measurement.ended else { panic!("it failed") };
        assert_eq!((contestant.as_str(), reason.to_string().as_str()), ("B", "out of breath"));
    }

    #[test]
    fn the_real_clock_does_not_go_back() {
        let clock = MonotonicClock::default();
        let first = clock.now_ns();
        assert!(clock.now_ns() >= first);
    }
}

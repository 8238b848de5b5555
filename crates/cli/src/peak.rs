//! The arithmetic ceiling of this machine: a loop of multiply-adds on all threads at once.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use kernelproof_eval::measure::{Clock, Contestant, Reason};
use qkv_rope_cpu::Isa;
use qkv_rope_cpu::peak::FmaLoop;

/// Length of a burst: some thousand times what starting the threads takes, short enough for one per round.
const BURST_NS: u64 = 10_000_000;

/// A burst of multiply-adds of fixed length.
#[derive(Debug)]
pub(crate) struct PeakLoop {
    isa: Isa,
    pool: rayon::ThreadPool,
    iterations: u64,
    flops: u64,
}

impl PeakLoop {
    /// A loop for `threads` threads, calibrated to take about 10 ms.
    ///
    /// # Errors
    /// When threads cannot be started.
    pub(crate) fn new(isa: Isa, threads: NonZeroUsize, clock: &dyn Clock) -> anyhow::Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build();
        let pool = pool.context("threads for the peak measurement cannot be started")?;
        let mut peak = Self { isa, pool, iterations: 1 << 10, flops: 0 };
        loop {
            let (time_ns, flops) = peak.burst(clock);
            peak.flops = flops;
            if time_ns >= BURST_NS || peak.iterations >= 1 << 40 {
                return Ok(peak);
            }
            // At most 16 times longer, because the first bursts are mostly overhead.
            let wanted = (peak.iterations as f64 * BURST_NS as f64 / time_ns.max(1) as f64 * 1.05) as u64;
            peak.iterations = wanted.clamp(peak.iterations + 1, peak.iterations * 16);
        }
    }

    /// The instruction set.
    pub(crate) fn isa(&self) -> Isa {
        self.isa
    }

    /// The threads.
    pub(crate) fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// Floating-point operations of one burst.
    pub(crate) fn flops(&self) -> u64 {
        self.flops
    }

    /// Runs all threads once; the time goes from the first start to the last end.
    ///
    /// An untimed burst goes before: threads that were asleep may wake on one core, and it takes the scheduler
    /// milliseconds to part them. They then wait for each other without sleeping.
    fn burst(&self, clock: &dyn Clock) -> (u64, u64) {
        let ready = AtomicUsize::new(0);
        let parts = self.pool.broadcast(|context| {
            FmaLoop::new(self.isa).run(self.iterations);
            ready.fetch_add(1, Ordering::AcqRel);
            while ready.load(Ordering::Acquire) < context.num_threads() {
                // With more threads than cores, the others need this one.
                std::thread::yield_now();
            }
            let start_ns = clock.now_ns();
            let flops = FmaLoop::new(self.isa).run(self.iterations);
            (start_ns, clock.now_ns(), flops)
        });
        let start_ns = parts.iter().map(|part| part.0).min().unwrap_or(0);
        let end_ns = parts.iter().map(|part| part.1).max().unwrap_or(0);
        (end_ns - start_ns, parts.iter().map(|part| part.2).sum())
    }
}

impl Contestant for PeakLoop {
    fn name(&self) -> String {
        format!("FMA peak, {}", self.isa)
    }

    fn run_once(&mut self, clock: &dyn Clock) -> Result<u64, Reason> {
        Ok(self.burst(clock).0)
    }
}

#[cfg(test)]
mod tests {
    use kernelproof_eval::measure::MonotonicClock;

    use super::*;

    #[test]
    fn a_burst_has_the_length_and_the_operations_it_says() {
        let clock = MonotonicClock::default();
        let mut peak = PeakLoop::new(Isa::Portable, NonZeroUsize::MIN, &clock).expect("one thread starts");
        let time_ns = peak.run_once(&clock).expect("a burst cannot fail");
        assert!(peak.flops() > 0 && time_ns > 0);
        assert_eq!(peak.threads(), 1);
    }
}

//! Memory bandwidth as plain code sees it: reading a buffer, and copying one, with several threads.

use crate::measure::Clock;

/// Bytes moved and the time it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes read plus bytes written by the program; a write that first loads its line is counted once.
    pub bytes: u64,
    /// Wall-clock time in nanoseconds.
    pub time_ns: u64,
}

impl Transfer {
    /// Bytes per nanosecond, which is GB/s.
    pub fn bytes_per_ns(self) -> f64 {
        self.bytes as f64 / self.time_ns.max(1) as f64
    }
}

/// Two buffers, each much larger than the caches.
#[derive(Debug)]
pub struct Buffers {
    source: Vec<u64>,
    target: Vec<u64>,
    threads: usize,
}

impl Buffers {
    /// Two buffers of `len_bytes` each (rounded down to 8), used by `threads` threads. Every page is written, so that
    /// no later access meets an untouched one.
    pub fn new(len_bytes: usize, threads: usize) -> Self {
        let words = len_bytes / size_of::<u64>();
        Self { source: vec![1; words], target: vec![2; words], threads: threads.max(1) }
    }

    fn chunk_words(&self) -> usize {
        self.source.len().div_ceil(self.threads).max(1)
    }

    /// Reads one buffer once.
    pub fn read(&mut self, clock: &dyn Clock) -> Transfer {
        let chunk = self.chunk_words();
        let start_ns = clock.now_ns();
        std::thread::scope(|scope| {
            for part in self.source.chunks(chunk) {
                scope.spawn(move || std::hint::black_box(sum(part)));
            }
        });
        let time_ns = clock.now_ns() - start_ns;
        Transfer { bytes: self.len_bytes(), time_ns }
    }

    /// Copies one buffer to the other.
    pub fn copy(&mut self, clock: &dyn Clock) -> Transfer {
        let chunk = self.chunk_words();
        let start_ns = clock.now_ns();
        std::thread::scope(|scope| {
            for (from, to) in self.source.chunks(chunk).zip(self.target.chunks_mut(chunk)) {
                scope.spawn(move || std::hint::black_box(to).copy_from_slice(from));
            }
        });
        let time_ns = clock.now_ns() - start_ns;
        Transfer { bytes: 2 * self.len_bytes(), time_ns }
    }

    fn len_bytes(&self) -> u64 {
        (self.source.len() * size_of::<u64>()) as u64
    }
}

/// Wrapping sum in independent lanes, so that the loads and not one chain of additions set the pace.
fn sum(words: &[u64]) -> u64 {
    let mut lanes = [0_u64; 32];
    let (blocks, rest) = words.as_chunks::<32>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block) {
            *lane = lane.wrapping_add(*word);
        }
    }
    lanes.iter().chain(rest).fold(0, |total, &word| total.wrapping_add(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::MonotonicClock;

    #[test]
    fn a_copy_moves_every_word_and_counts_both_directions() {
        let mut buffers = Buffers::new(8 * 1003, 3);
        let clock = MonotonicClock::default();
        assert_eq!(buffers.read(&clock).bytes, 8 * 1003);
        assert_eq!(buffers.copy(&clock).bytes, 16 * 1003);
        assert_eq!(buffers.target, buffers.source);
    }

    #[test]
    fn sums_take_every_word() {
        let words: Vec<u64> = (0..100).collect();
        assert_eq!(sum(&words), 4950);
    }

    #[test]
    fn rates_of_no_time_are_finite() {
        assert!((Transfer { bytes: 10, time_ns: 5 }.bytes_per_ns() - 2.0).abs() < 1e-12);
        assert!(Transfer { bytes: 10, time_ns: 0 }.bytes_per_ns().is_finite());
    }
}

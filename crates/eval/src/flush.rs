//! Making caches cold between timed calls.

/// A buffer whose writing evicts what the caches hold. Nothing is allocated until the first flush.
#[derive(Debug)]
pub struct CacheFlush {
    len_bytes: usize,
    threads: usize,
    buffer: Vec<u8>,
    stamp: u8,
}

impl CacheFlush {
    /// A flush that writes twice `last_level_bytes` in all, a part from each of `threads` threads, so that private
    /// caches of several cores are emptied too.
    pub fn new(last_level_bytes: usize, threads: usize) -> Self {
        Self { len_bytes: last_level_bytes.saturating_mul(2), threads: threads.max(1), buffer: Vec::new(), stamp: 0 }
    }

    /// Bytes that one flush writes.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Writes the buffer once.
    pub fn flush(&mut self) {
        if self.len_bytes == 0 {
            return;
        }
        self.buffer.resize(self.len_bytes, 0);
        self.stamp = self.stamp.wrapping_add(1);
        let (stamp, part_bytes) = (self.stamp, self.len_bytes.div_ceil(self.threads));
        std::thread::scope(|scope| {
            for part in self.buffer.chunks_mut(part_bytes) {
                scope.spawn(move || std::hint::black_box(part).fill(stamp));
            }
        });
        std::hint::black_box(&self.buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_written_by_every_flush() {
        let mut flush = CacheFlush::new(1001, 3);
        assert_eq!(flush.len_bytes(), 2002);
        for stamp in 1..=3 {
            flush.flush();
            assert_eq!(flush.buffer, vec![stamp; 2002]);
        }
    }

    #[test]
    fn a_flush_of_nothing_does_nothing() {
        let mut flush = CacheFlush::new(0, 0);
        flush.flush();
        assert_eq!(flush.buffer.capacity(), 0);
    }
}

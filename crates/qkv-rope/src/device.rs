//! GPUs and their sessions that all of a process shares, for bindings of frameworks whose tensors are on the GPU.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use qkv_rope_cuda::{DeviceSession, Error, Gpu};
use qkv_rope_op::Problem;

use crate::process::PerProcess;

/// Sessions kept by a process. Each has a few hundred KiB of the GPU's memory at most.
const MOST_SESSIONS: usize = 256;

type Opened = Vec<(usize, Arc<Gpu>)>;
type Sessions = Recent<(usize, Problem), Arc<DeviceSession>>;

/// GPU `ordinal`, opened at first use and kept for the life of the process.
///
/// # Errors
/// As [`Gpu::open`], and [`Error::Forked`] in a child of a process that used a GPU.
pub fn shared_gpu(ordinal: usize) -> Result<Arc<Gpu>, Error> {
    static GPUS: PerProcess<Mutex<Opened>> = PerProcess::new();
    // The process that started the driver through this library, 0 before.
    static STARTED_BY: AtomicU32 = AtomicU32::new(0);

    let process_id = std::process::id();
    let started_by = STARTED_BY.load(Ordering::Acquire);
    if started_by != 0 && started_by != process_id {
        return Err(Error::Forked);
    }
    // The list is whole between statements, so a panic elsewhere cannot have spoilt it.
    let mut gpus = GPUS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, gpu)) = gpus.iter().find(|(number, _)| *number == ordinal) {
        return Ok(gpu.clone());
    }
    let gpu = Gpu::open(ordinal)?;
    STARTED_BY.store(process_id, Ordering::Release);
    gpus.push((ordinal, gpu.clone()));
    Ok(gpu)
}

/// The session of this process for `problem` on GPU `ordinal`, made at first use.
///
/// At most 256 are kept. When there are more, the older half of those that no CUDA graph uses goes, after waiting for
/// their GPUs: work may still read their tables.
///
/// # Errors
/// As [`shared_gpu`] and [`DeviceSession::new`].
pub fn shared_session(ordinal: usize, problem: &Problem) -> Result<Arc<DeviceSession>, Error> {
    static SESSIONS: PerProcess<Mutex<Sessions>> = PerProcess::new();

    let lock = || SESSIONS.get().lock().unwrap_or_else(PoisonError::into_inner);
    let key = (ordinal, *problem);
    if let Some(found) = lock().get(&key) {
        return Ok(found);
    }
    let made = Arc::new(DeviceSession::new(&shared_gpu(ordinal)?, problem)?);
    // Two threads may have made one each: the later one is unused and goes.
    let mut sessions = lock();
    if let Some(found) = sessions.get(&key) {
        return Ok(found);
    }
    sessions.put(key, made.clone());
    let old = sessions.surplus(MOST_SESSIONS, |session| session.was_captured() || Arc::strong_count(session) > 1);
    drop(sessions);
    retire(old);
    Ok(made)
}

/// Frees sessions whose work may be under way.
fn retire(sessions: Vec<Arc<DeviceSession>>) {
    for session in sessions {
        if session.gpu().synchronize().is_err() {
            // Somebody captures a stream, or the GPU failed: nobody knows when the tables are free, so they stay.
            std::mem::forget(session);
        }
    }
}

/// Values by key, the most recently used last.
#[derive(Debug)]
struct Recent<K, V> {
    entries: Vec<(K, V)>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: PartialEq, V: Clone> Recent<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        let index = self.entries.iter().rposition(|(found, _)| found == key)?;
        let tail = self.entries.get_mut(index..)?;
        tail.rotate_left(1);
        self.entries.last().map(|(_, value)| value.clone())
    }

    fn put(&mut self, key: K, value: V) {
        self.entries.push((key, value));
    }

    /// Takes out the older half of what is not `pinned`, once there are more than `most`.
    fn surplus(&mut self, most: usize, pinned: impl Fn(&V) -> bool) -> Vec<V> {
        if self.entries.len() <= most {
            return Vec::new();
        }
        let mut taken = Vec::new();
        let mut kept = Vec::new();
        for (key, value) in self.entries.drain(..) {
            if taken.len() < most / 2 && !pinned(&value) {
                taken.push(value);
            } else {
                kept.push((key, value));
            }
        }
        self.entries = kept;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_half_goes_unless_pinned() {
        let mut recent = Recent::default();
        for key in 0..5 {
            recent.put(key, key * 10);
        }
        assert_eq!(recent.get(&0), Some(0));
        assert_eq!(recent.get(&9), None);
        assert!(recent.surplus(5, |_| false).is_empty());
        assert_eq!(recent.surplus(4, |&value| value == 10), [20, 30]);
        assert_eq!(recent.entries, [(1, 10), (4, 40), (0, 0)]);
    }

    #[test]
    fn without_a_driver_the_error_says_what_was_looked_for() {
        let error = shared_gpu(1000).expect_err("nobody has a thousand GPUs").to_string();
        assert!(error.contains("no NVIDIA driver") || error.contains("no GPU 1000"), "{error}");
    }
}

//! Backends that all of a process shares, for bindings: frameworks call from many threads, and fork.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use qkv_rope_cpu::{CpuBackend, CpuOptions, Threads};
use qkv_rope_op::Error;

/// A value that each process makes for itself at first use. A child after `fork` has its parent's memory but none of
/// its threads, and perhaps a lock that one of those held: it starts with a value of its own.
#[derive(Debug)]
pub struct PerProcess<T> {
    current: AtomicPtr<Owned<T>>,
}

#[derive(Debug)]
struct Owned<T> {
    process_id: u32,
    value: T,
}

impl<T: Default + Send + Sync + 'static> PerProcess<T> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// This process's value. That of a parent is forgotten, never dropped: its threads do not exist here.
    pub fn get(&self) -> &'static T {
        let process_id = std::process::id();
        let mut found = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: `found` is null or came from Box::into_raw below and is never freed.
            let owned: Option<&'static Owned<T>> = unsafe { found.as_ref() };
            if let Some(owned) = owned.filter(|owned| owned.process_id == process_id) {
                return &owned.value;
            }
            let made = Box::into_raw(Box::new(Owned { process_id, value: T::default() }));
            match self.current.compare_exchange(found, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => found = made,
                Err(other) => {
                    // SAFETY: `made` is from Box::into_raw above and was not published.
                    drop(unsafe { Box::from_raw(made) });
                    found = other;
                }
            }
        }
    }
}

impl<T: Default + Send + Sync + 'static> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The most threads that [`shared_cpu`] starts.
const MOST_THREADS: usize = 1024;

/// What a process computes with.
#[derive(Debug)]
struct Shared {
    available: NonZeroUsize,
    backends: Mutex<Vec<(NonZeroUsize, &'static CpuBackend)>>,
}

impl Default for Shared {
    fn default() -> Self {
        // Asked once: on Linux the answer takes several file reads, longer than a small call.
        let available = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { available, backends: Mutex::default() }
    }
}

/// The CPU backend of this process with that many threads, or with one per available core. One thread means the
/// caller's own. Backends are made at first use, kept for the life of the process and safe to use after `fork`.
///
/// # Errors
/// [`Error::Refused`] for more than 1024 threads, [`Error::Failed`] when threads cannot be started.
pub fn shared_cpu(threads: Option<NonZeroUsize>) -> Result<&'static CpuBackend, Error> {
    static SHARED: PerProcess<Shared> = PerProcess::new();

    let shared = SHARED.get();
    let threads = threads.unwrap_or(shared.available);
    if threads.get() > MOST_THREADS {
        let why = format!("{threads} threads asked for, at most {MOST_THREADS} are started");
        return Err(Error::Refused { backend: "cpu".to_owned(), why });
    }
    // The list is whole between statements, so a panic elsewhere cannot have spoilt it.
    let mut backends = shared.backends.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, backend)) = backends.iter().find(|(count, _)| *count == threads) {
        return Ok(backend);
    }
    let made = CpuBackend::new(CpuOptions { threads: Threads::Count(threads), isa: None })?;
    let backend: &'static CpuBackend = Box::leak(Box::new(made));
    backends.push((threads, backend));
    Ok(backend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_backend_per_count() {
        let two = NonZeroUsize::new(2);
        let first = shared_cpu(two).expect("two threads");
        assert!(std::ptr::eq(first, shared_cpu(two).expect("two threads")));
        assert!(!std::ptr::eq(first, shared_cpu(NonZeroUsize::new(1)).expect("one thread")));
    }

    #[test]
    fn absurd_counts_are_refused() {
        let error = shared_cpu(NonZeroUsize::new(1_000_000)).expect_err("too many");
        assert_eq!(
            error.to_string(),
            "cpu cannot run this problem: 1000000 threads asked for, at most 1024 are started"
        );
    }

    #[test]
    fn threads_agree_on_the_value() {
        static CELL: PerProcess<Mutex<u32>> = PerProcess::new();
        let addresses: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| std::ptr::from_ref(CELL.get()).addr())).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(addresses.windows(2).all(|pair| pair[0] == pair[1]));
    }
}

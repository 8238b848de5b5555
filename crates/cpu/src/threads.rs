//! Whose threads compute.

use std::num::NonZeroUsize;
use std::sync::Arc;

use qkv_rope_op::Error;
use rayon::prelude::*;

/// The threads that a backend computes with. Results do not depend on them, bit for bit.
#[derive(Clone, Debug, Default)]
pub enum Threads {
    /// The rayon pool that the call is made from: the global one unless the caller installed another.
    #[default]
    Current,
    /// A pool of the caller's.
    Pool(Arc<rayon::ThreadPool>),
    /// A pool of this many threads that the backend makes and owns. One thread is the caller's own: no pool, and none
    /// of the microseconds that waking another thread takes.
    Count(NonZeroUsize),
}

/// How the tasks of a call are shared out.
#[derive(Debug)]
pub(crate) enum Pool {
    /// On the pool that the caller is in.
    Current,
    /// On this pool.
    Shared(Arc<rayon::ThreadPool>),
    /// One after the other, on the caller's thread.
    Caller,
}

impl Pool {
    pub(crate) fn new(threads: Threads) -> Result<Self, Error> {
        match threads {
            Threads::Current => Ok(Self::Current),
            Threads::Pool(pool) => Ok(Self::Shared(pool)),
            Threads::Count(NonZeroUsize::MIN) => Ok(Self::Caller),
            Threads::Count(count) => {
                let built = rayon::ThreadPoolBuilder::new()
                    .num_threads(count.get())
                    .thread_name(|index| format!("qkv-rope-{index}"))
                    .build();
                let failed = |error| Error::Failed {
                    backend: "cpu".to_owned(),
                    why: format!("cannot start {count} threads: {error}"),
                };
                Ok(Self::Shared(Arc::new(built.map_err(failed)?)))
            }
        }
    }

    pub(crate) fn install(&self, work: impl FnOnce() + Send) {
        match self {
            Self::Shared(pool) => pool.install(work),
            Self::Current | Self::Caller => work(),
        }
    }

    /// Performs every task and returns when the last has ended. Called from inside [`Pool::install`].
    pub(crate) fn share_out<T: Sync>(&self, tasks: &[T], perform: impl Fn(&T) + Send + Sync) {
        match self {
            Self::Caller => tasks.iter().for_each(perform),
            Self::Current | Self::Shared(_) => tasks.par_iter().with_max_len(1).for_each(perform),
        }
    }
}

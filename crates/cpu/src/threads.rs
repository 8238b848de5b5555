//! Whose threads compute.

use std::num::NonZeroUsize;
use std::sync::Arc;

use qkv_rope_op::Error;

/// The threads that a backend computes with. Results do not depend on them, bit for bit.
#[derive(Clone, Debug, Default)]
pub enum Threads {
    /// The rayon pool that the call is made from: the global one unless the caller installed another.
    #[default]
    Current,
    /// A pool of the caller's.
    Pool(Arc<rayon::ThreadPool>),
    /// A pool of this many threads that the backend makes and owns.
    Count(NonZeroUsize),
}

#[derive(Debug)]
pub(crate) struct Pool(Option<Arc<rayon::ThreadPool>>);

impl Pool {
    pub(crate) fn new(threads: Threads) -> Result<Self, Error> {
        match threads {
            Threads::Current => Ok(Self(None)),
            Threads::Pool(pool) => Ok(Self(Some(pool))),
            Threads::Count(count) => {
                let built = rayon::ThreadPoolBuilder::new()
                    .num_threads(count.get())
                    .thread_name(|index| format!("qkv-rope-{index}"))
                    .build();
                let failed = |error| Error::Failed {
                    backend: "cpu".to_owned(),
                    why: format!("cannot start {count} threads: {error}"),
                };
                Ok(Self(Some(Arc::new(built.map_err(failed)?))))
            }
        }
    }

    pub(crate) fn install(&self, work: impl FnOnce() + Send) {
        match &self.0 {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

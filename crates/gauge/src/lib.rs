//! Measuring on NVIDIA GPUs: how long a call kept the device busy, what the device said of itself meanwhile, and what it can
//! do at most.
//!
//! The library that users call ([`qkv_rope_cuda`]) needs nothing of this and must not: CUPTI, cuBLAS and NVML are looked for
//! at run time, and where one is missing the error or the record says so. Builds and tests without a GPU.

mod block;
mod ceilings;
mod contestant;
mod cublas;
mod cupti;
mod dynamic;
mod error;
mod monitor;
mod span;
mod stopwatch;
mod subject;

pub use ceilings::measured;
pub use contestant::{CudaContestant, Launch};
pub use error::Error;
pub use monitor::Monitor;
pub use span::{Activity, Kind};
pub use stopwatch::{Stopwatch, Taken, TimerChoice};
pub use subject::CudaSubject;

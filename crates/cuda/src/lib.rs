//! CUDA backend of the QKV-projection-with-RoPE backward pass.
//!
//! The kernels are written in Rust (crates `cuda-kernels` and, for `fast` on Hopper, `cuda-ptx`) and compiled ahead of time to
//! cubins, which this crate embeds; at run time it needs the NVIDIA driver and nothing else. It builds, plans and tests without one.

pub mod archive;
mod backend;
mod device;
mod error;
mod executor;
pub mod facts;
mod gpu;
pub mod kernel;
mod memory;
pub mod plan;
pub mod schedule;
pub mod tune;

pub use backend::CudaBackend;
pub use cudarc::driver::sys::CUstream;
pub use device::DeviceSession;
pub use error::Error;
pub use executor::{Executor, WorkspacePtr};
pub use gpu::{Gpu, device_count, driver_version};
pub use memory::Memory;

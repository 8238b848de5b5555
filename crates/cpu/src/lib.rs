//! The operation on CPUs, in f32 with fused multiply-add.
//!
//! U (the un-rotated gradients) never exists in full: a block of tokens at a time is un-rotated while it is packed,
//! once for both products. Micro-kernels for AVX-512, AVX2 + FMA and plain Rust are chosen at run time. Sums are split
//! at fixed places, so results are the same bits for any thread count, any alignment and every run.

#[cfg(not(target_pointer_width = "64"))]
compile_error!("tensors of this operation need 64-bit addresses");

mod backend;
mod blocking;
mod call;
mod isa;
mod kernel;
mod pack;
pub mod peak;
mod product;
mod session;
mod threads;
mod unrotate;
mod workspace;

pub use backend::{CpuBackend, CpuOptions};
pub use isa::Isa;
pub use threads::Threads;

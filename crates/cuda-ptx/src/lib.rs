//! Kernels for Hopper: Rust that writes PTX.

mod asm;
mod hopper;
pub mod finish;
pub mod prep;
pub mod product;
pub mod words;

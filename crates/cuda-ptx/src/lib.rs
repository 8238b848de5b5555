//! Kernels for Hopper: Rust that writes PTX.

mod asm;
pub mod finish;
mod hopper;
pub mod prep;
pub mod product;
pub mod words;

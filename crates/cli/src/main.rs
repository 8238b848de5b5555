//! The `kernelproof` command.

fn main() {}

//! Emulation of the operand rounding of the `fast` and `split` modes.

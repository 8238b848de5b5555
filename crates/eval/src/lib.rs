//! Judging an implementation: is it right, and how fast is it beside others.
//!
//! Nothing here prints, reads a file or names a backend: what is judged arrives as a trait object, what comes out is
//! data, and progress is reported to a callback.

pub mod bandwidth;
pub mod check;
pub mod comparison;
pub mod evaluation;
pub mod flush;
pub mod judge;
pub mod measure;
pub mod statistics;

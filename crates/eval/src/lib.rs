//! Judging an implementation: timing it beside others, and reading statistics from the samples.
//!
//! Nothing here prints, reads a file or names a backend: what is judged arrives as a trait object, what comes out is
//! data, and progress is reported to a callback.

pub mod bandwidth;
pub mod flush;
pub mod measure;
pub mod statistics;

//! The index as pages.
pub mod display;
pub mod plot;

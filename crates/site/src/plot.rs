//! Plots as SVG that takes its colours from the page, so that one picture serves light and dark.
//!
//! Every plot has a title and a description, and the page gives the same numbers as a table.

mod axis;
mod badge;
mod canvas;
mod history;
mod ratios;
mod roofline;
mod samples;

pub use badge::badge;
pub use history::{History, HistoryPoint};
pub use ratios::{RatioRow, Ratios};
pub use roofline::{Roof, Roofline, RooflinePoint};
pub use samples::{SampleRow, Samples};

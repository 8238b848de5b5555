//! A measurement as data, and the ways to read it: a table and a plot.

pub(crate) mod plot;
pub(crate) mod ratios;
pub(crate) mod record;
pub(crate) mod summary;
pub(crate) mod table;

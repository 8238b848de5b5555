//! The index as a web site: pages, their JSON twins, a feed, badges and a door for submissions.
//!
//! A [`Site`] renders an immutable [`Catalog`](kernelproof_index::catalog::Catalog) and keeps what it has rendered until the catalog is
//! replaced. Pages are values that a template formats and serde writes, so a page and its JSON cannot disagree.
//!
//! Nothing here measures, ranks or decides; what a figure means is settled in `kernelproof-index`.

mod ask;
pub mod assets;
pub mod display;
pub mod export;
pub mod intake;
mod pages;
pub mod plot;
mod routes;
mod samples;
mod serve;
mod site;
mod stored;
pub mod view;

pub use serve::serve;
pub use site::Site;

//! Bundles on disk: written whole or not at all, and every change to them found.

mod altered;
mod hostile;
mod inconsistent;

//! The store: filled whole or not at all, append-only, the same however it was filled.

mod append_only;
mod asked;
mod exported;
mod filled;
mod killed;
mod seed;
mod sent;
mod support;
mod tricky;

//! What is stored about a run, and what makes it credible: manifests with an identity, bundles that are whole or absent,
//! and a verification that recomputes every digest and every figure.
//!
//! Nothing here runs a kernel, reads a clock or prints.

pub mod external;
pub mod identity;
pub mod manifest;
pub mod operation;
pub mod suite;
#[cfg(test)]
mod testing;

pub use identity::Digest;
pub use manifest::{Invalid, Manifest, ManifestError, Metadata, Spec};

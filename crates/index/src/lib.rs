//! What is stored about a run, and what makes it credible: manifests with an identity, bundles that are whole or absent,
//! and a verification that recomputes every digest and every figure.
//!
//! Nothing here runs a kernel, reads a clock or prints.

// The example bundle is shared with the integration tests and names this crate as they do.
#[cfg(test)]
extern crate self as kernelproof_index;

pub mod bundle;
pub mod catalog;
pub mod check;
pub mod cohort;
pub mod correction;
pub mod environment;
pub mod export;
pub mod external;
pub mod figures;
pub mod identity;
pub mod implementation;
pub mod import;
pub mod intake;
pub mod manifest;
pub mod operation;
pub mod protocol;
pub mod run;
pub mod store;
mod strict;
pub mod suite;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod token;
pub mod traces;
pub mod trust;
pub mod verify;

pub use bundle::{Bundle, BundleError};
pub use catalog::Catalog;
pub use identity::Digest;
pub use manifest::{Invalid, Manifest, ManifestError, Metadata, Spec};
pub use store::{Store, StoreError};
pub use verify::{Verification, verify};

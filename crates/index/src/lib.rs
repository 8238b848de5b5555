//! What is stored about a run, and what makes it credible: manifests with an identity, bundles that are whole or absent,
//! a verification that recomputes every digest and every figure, and an index of them.
//!
//! Data goes one way:
//!
//! ```text
//! records/ ──import──▶ Store ──facts──▶ Catalog ──▶ pages, API
//! archive ──intake───▶   │ ▲
//!                        ▼ │
//!                       export
//! ```
//!
//! ```no_run
//! use kernelproof_index::Store;
//! use kernelproof_index::import::{Mode, Records, import};
//!
//! let store = Store::open("index.sqlite".as_ref())?;
//! import(&store, &Records::at("records".as_ref())?, Mode::Add, &mut |_, _| {})?;
//! let catalog = store.catalog()?;
//! for operation in catalog.operations() {
//!     for record in catalog.current_records(operation.id) {
//!         println!("{} on {}: {:?}", operation.title, record.device, record.step.time_ns);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here runs a kernel, reads a clock or prints.

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

//! Corrections as pages show them.

use serde::Serialize;

use crate::correction::Correction;
use crate::identity::Digest;

/// A correction and its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CorrectionEntry {
    /// Its identity.
    pub id: Digest,
    /// Whose it is, what it does and why.
    pub spec: Correction,
}

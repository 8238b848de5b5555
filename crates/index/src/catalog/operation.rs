//! Operations and their suites as pages show them.

use serde::Serialize;

use crate::identity::Digest;
use crate::operation::Operation;
use crate::suite::Suite;

/// An operation, what is said about it, and its suites.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationEntry {
    /// Its identity.
    pub id: Digest,
    /// Its name in addresses: lower-case letters, digits and `-`; no other operation has it.
    pub slug: String,
    /// A heading. The family where nobody gave one.
    pub title: String,
    /// What a reader should know.
    pub description: Option<String>,
    /// Other names under which it is known.
    pub aliases: Vec<String>,
    /// Axes, inputs, outputs and semantics.
    pub spec: Operation,
    /// Suites over it, in the order of their identities.
    pub suites: Vec<SuiteEntry>,
}

/// A suite: cases, inputs, bounds and aggregates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SuiteEntry {
    /// Its identity: the workload of a cohort.
    pub id: Digest,
    /// Cases, generator, bounds and aggregates.
    pub spec: Suite,
}

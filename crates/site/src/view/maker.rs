//! Implementations, as lists name them.

use kernelproof_index::Digest;
use kernelproof_index::catalog::{Catalog, ImplementationEntry, RunEntry};
use serde::Serialize;
use utoipa::ToSchema;

use super::address;

/// An implementation: who made it, and whether anyone can have it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Maker {
    /// Its name in addresses.
    pub slug: String,
    /// Its page.
    pub href: String,
    /// Its name.
    pub name: String,
    /// Who wrote it.
    pub author: Option<String>,
    /// SPDX expression.
    pub licence: Option<String>,
    /// Where its source is.
    pub source: Option<String>,
    /// Which version of it.
    pub version: Option<String>,
    /// A command that installs or builds it.
    pub install: Option<String>,
    /// What is missing to have it, in words.
    pub missing: Vec<String>,
}

impl Maker {
    /// An implementation of the catalog.
    pub fn of(entry: &ImplementationEntry) -> Self {
        let availability = &entry.availability;
        Self {
            slug: entry.slug.clone(),
            href: address::implementation(&entry.slug),
            name: entry.spec.name.clone(),
            author: entry.spec.author.clone(),
            licence: availability.licence.clone(),
            source: availability.source.clone(),
            version: availability.version.clone(),
            install: availability.install.clone(),
            missing: availability.missing.clone(),
        }
    }

    /// The implementation of this identity, if the catalog has it.
    pub fn find(catalog: &Catalog, id: &Digest) -> Option<Self> {
        catalog.implementation_of(id).map(Self::of)
    }

    /// Its version as lists show it: a commit as it was given, or the beginning of a digest.
    pub fn version_short(&self) -> Option<&str> {
        const DIGITS: usize = 12;
        let version = self.version.as_deref()?;
        Some(version.strip_prefix("sha256:").map_or(version, |digits| digits.get(..DIGITS).unwrap_or(digits)))
    }

    /// The implementation of a run. A catalog holds it; if not, what the run says of it must do.
    pub fn of_run(catalog: &Catalog, run: &RunEntry) -> Self {
        Self::find(catalog, &run.facts.implementation_id).unwrap_or_else(|| Self {
            slug: run.facts.implementation_id.short(),
            href: address::implementation(&run.facts.implementation_id.short()),
            name: run.facts.implementation.name.clone(),
            author: run.facts.implementation.author.clone(),
            licence: run.facts.implementation.licence.clone(),
            source: run.facts.implementation.source.repository.clone(),
            version: run.facts.implementation.source.commit.clone(),
            install: run.facts.implementation.install.clone(),
            missing: Vec::new(),
        })
    }
}

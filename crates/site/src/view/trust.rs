//! Trust, with the facts that gave it.

use kernelproof_index::catalog::{Catalog, TrustFacts};
use kernelproof_index::trust::Trust;
use serde::Serialize;
use utoipa::ToSchema;

/// How far a figure can be trusted, and why not further.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Standing {
    /// `reported`, `reproducible`, `verified` or `replicated`.
    pub level: &'static str,
    /// What speaks for this level.
    pub because: Vec<String>,
    /// What is missing for the next one.
    pub missing: Vec<String>,
    /// Runs of the same implementation in the same cohort that agree.
    pub agreeing: Vec<String>,
    /// Set when it was not verified again on what its device runs now.
    pub stale: Option<String>,
}

/// The name of a level in JSON and on pages.
pub fn level_name(level: Trust) -> &'static str {
    match level {
        Trust::Reported => "reported",
        Trust::Reproducible => "reproducible",
        Trust::Verified => "verified",
        Trust::Replicated => "replicated",
    }
}

impl Standing {
    /// The standing that the catalog found.
    pub fn of(catalog: &Catalog, facts: &TrustFacts) -> Self {
        let slug = |id| catalog.run(id).map(|run| run.slug.clone());
        Self {
            level: level_name(facts.level),
            because: facts.because.clone(),
            missing: facts.missing.clone(),
            agreeing: facts.agreeing.iter().filter_map(slug).collect(),
            stale: facts.stale.as_ref().map(ToString::to_string),
        }
    }

    /// The standing of another source's figure.
    pub fn reported() -> Self {
        Self {
            level: level_name(Trust::Reported),
            because: Vec::new(),
            missing: Vec::new(),
            agreeing: Vec::new(),
            stale: None,
        }
    }

    /// Steps reached, 1 to 4.
    pub fn step(&self) -> u8 {
        match self.level {
            "replicated" => 4,
            "verified" => 3,
            "reproducible" => 2,
            _ => 1,
        }
    }
}

//! Trust: what the facts of a run allow to say about it. Nobody chooses it.

use serde::{Deserialize, Serialize};

use crate::bundle::Bundle;
use crate::implementation::{Implementation, Source};

/// How far a figure can be trusted, from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// Someone says so.
    Reported,
    /// Anyone can get the same thing and repeat the run: source, licence, install recipe, complete identity, raw samples.
    Reproducible,
    /// Run again by this project's evaluator, with the same result.
    Verified,
    /// Run again by a second party or on a second machine, with the same result.
    Replicated,
}

/// What one bundle deserves by itself, and what it lacks for more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// At most [`Trust::Reproducible`]: more takes other runs.
    pub trust: Trust,
    /// Facts that are missing for the next level.
    pub missing: Vec<String>,
}

impl Standing {
    /// The standing of a bundle whose digests and figures are right.
    pub fn of(bundle: &Bundle) -> Self {
        let Implementation { author, source, licence, install, binaries, .. } = &bundle.implementation.spec;
        let Source { repository, commit, digest } = source;
        let evaluator = &bundle.protocol.spec.evaluator;
        let software = &bundle.environment.spec.software;
        let known = |text: &Option<String>| text.as_ref().is_some_and(|text| text != "unknown");
        let identified = !binaries.is_empty() || digest.is_some() || !software.is_empty();
        let facts = [
            (known(author), "the implementation's author"),
            (known(repository) || bundle.solution.is_some(), "where its source is"),
            (commit.as_deref().is_some_and(is_version) || digest.is_some(), "which version of its source"),
            (known(licence), "its licence"),
            (known(install), "how to install it"),
            (identified, "a digest of what was run, or the versions of what it ran inside"),
            (is_version(&evaluator.commit), "the evaluator's commit"),
            (bundle.run.spec.evaluation.cases.iter().all(|case| !case.samples_ns.is_empty()), "samples of every case"),
        ];
        let missing = facts.into_iter().filter(|(there, _)| !there).map(|(_, what)| what.to_owned());
        let missing: Vec<String> = missing.collect();
        let trust = if missing.is_empty() { Trust::Reproducible } else { Trust::Reported };
        Self { trust, missing }
    }
}

/// Whether a commit names sources: those that were changed after it are nowhere to be had.
fn is_version(commit: &str) -> bool {
    commit != "unknown" && !commit.ends_with("-dirty")
}

#[cfg(test)]
mod tests {
    use super::is_version;

    #[test]
    fn sources_that_were_changed_after_their_commit_are_no_version() {
        assert!(is_version("1a2d60212345"));
        assert!(!is_version("1a2d60212345-dirty"));
        assert!(!is_version("unknown"));
    }
}

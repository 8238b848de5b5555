//! Which implementation to take for a problem, a device and a mode, and why not the others.

mod answer;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::trust::Trust;

use super::run::Estimate;

/// What somebody needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The operation: identity, first digits of it, slug or alias.
    pub operation: String,
    /// Variable axes, such as `seq_len` and `batch_size`; empty asks for the whole suite.
    #[serde(default)]
    pub axes: BTreeMap<String, u64>,
    /// A device's name or slug, or a kind (`cpu`, `cuda`).
    pub device: String,
    /// `ieee`, `split` or `fast`; `None` takes any.
    #[serde(default)]
    pub mode: Option<String>,
    /// The least trust to accept; `None` takes any.
    #[serde(default)]
    pub trust: Option<Trust>,
}

/// The answer: those that fit, ranked, and those that do not, each with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolution {
    /// The operation that was meant.
    pub operation: Digest,
    /// The device that was meant, by its own name; `None` where no run is on such a device.
    pub device: Option<String>,
    /// What the times are of, in words: a case, or the suite, or the nearest case.
    pub basis: String,
    /// The case that the times are of; `None` for the suite.
    pub case: Option<String>,
    /// Ranked per cohort: times of different cohorts are not set against each other.
    pub cohorts: Vec<ResolvedCohort>,
    /// Implementations that do not fit, and why.
    pub excluded: Vec<Exclusion>,
}

/// The answer inside one cohort.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResolvedCohort {
    /// The cohort.
    pub cohort: Digest,
    /// The device's name.
    pub device: String,
    /// How operands are rounded.
    pub mode: &'static str,
    /// What sets it apart from the others, in words.
    pub about: String,
    /// Fastest first.
    pub ranked: Vec<Resolved>,
}

/// An implementation that fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// Ties share a rank.
    pub rank: usize,
    /// Identity of the implementation.
    pub implementation: Digest,
    /// Its name.
    pub name: String,
    /// The run that the time is of.
    pub run: Digest,
    /// The time, in ns.
    pub time_ns: Estimate,
    /// Its time over that of the first.
    pub ratio_to_first: Estimate,
    /// How far the run can be trusted.
    pub trust: Trust,
    /// SPDX expression.
    pub licence: Option<String>,
    /// A command that installs it; `None` where nobody gave one.
    pub install: Option<String>,
    /// What is called.
    pub entry_point: String,
}

/// An implementation that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exclusion {
    /// Identity of the implementation, or of the external run.
    pub id: Digest,
    /// Its name.
    pub name: String,
    /// Every reason, a sentence each.
    pub reasons: Vec<String>,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// No such operation.
    #[error("operation: found {found:?}, expected one of {known}")]
    Operation {
        /// What was asked for.
        found: String,
        /// The slugs that there are.
        known: String,
    },
    /// An axis that the operation does not have, or of size 0.
    #[error("axes.{axis}: found {found}, expected {expected}")]
    Axis {
        /// The axis.
        axis: String,
        /// What was given.
        found: String,
        /// What should be.
        expected: String,
    },
    /// No such mode.
    #[error("mode: found {found:?}, expected ieee, split or fast")]
    Mode {
        /// What was asked for.
        found: String,
    },
}

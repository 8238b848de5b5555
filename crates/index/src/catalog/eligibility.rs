//! Eligibility: the one function that decides what ranks, for pages, API, export and history alike.

use kernelproof_eval::evaluation::Status;
use serde::{Deserialize, Serialize};

use crate::correction::Action;
use crate::identity::Digest;

use super::correction::CorrectionEntry;
use super::run::{CaseFacts, RunFacts};

/// What a reader must know first about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// It ranks.
    Eligible,
    /// All is right with it, and it does not rank by the rules (quick, incomplete, throttled, ...).
    Unranked,
    /// At least one case did not pass.
    Failed,
    /// A correction names a later run in its stead.
    Superseded,
    /// It was taken back; it stays visible with the reason.
    Retracted,
}

/// Whether a run ranks, and why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Eligibility {
    /// What a reader must know first.
    pub status: RunStatus,
    /// Every reason why it does not rank; empty exactly when it does.
    pub reasons: Vec<Reason>,
}

/// One reason why a run does not rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Reason {
    /// A correction took it back.
    Retracted {
        /// Why.
        why: String,
        /// The correction.
        correction: Digest,
    },
    /// A correction names another run in its stead.
    Superseded {
        /// The other run.
        by: Digest,
        /// Why.
        why: String,
        /// The correction.
        correction: Digest,
    },
    /// A case did not pass.
    CaseFailed {
        /// The suite's name of it.
        case: String,
        /// How it ended.
        status: Status,
        /// What was said.
        detail: Option<String>,
    },
    /// Not by the full protocol.
    Quick,
    /// Cases of the suite are missing.
    Incomplete {
        /// Cases that it has.
        found: usize,
        /// Cases of the suite.
        expected: usize,
    },
    /// The evaluator was not an optimised build.
    DebugEvaluator,
    /// Others took the machine.
    Throttled {
        /// The suite's name of the case.
        case: String,
    },
    /// A time of 0, or none.
    NoTime {
        /// The suite's name of the case.
        case: String,
    },
    /// Nobody knows what it ran on.
    UnknownDevice,
}

impl Eligibility {
    /// Whether it ranks.
    pub fn ranks(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Retracted { why, .. } => write!(f, "retracted: {why}"),
            Self::Superseded { by, why, .. } => write!(f, "superseded by run {}: {why}", by.short()),
            Self::CaseFailed { case, status, detail: None } => write!(f, "case {case} did not pass: {status}"),
            Self::CaseFailed { case, status, detail: Some(detail) } => {
                write!(f, "case {case} did not pass: {status}: {detail}")
            }
            Self::Quick => f.write_str("a quick run shows that things work and never ranks"),
            Self::Incomplete { found, expected } => write!(f, "has {found} of the suite's {expected} cases"),
            Self::DebugEvaluator => f.write_str("the evaluator was not an optimised build"),
            Self::Throttled { case } => write!(f, "case {case} ran while others took the machine"),
            Self::NoTime { case } => write!(f, "case {case} has no time above 0 ns"),
            Self::UnknownDevice => f.write_str("the device is not known"),
        }
    }
}

/// Whether a run ranks. Everything that ranks, shows or exports runs asks here.
///
/// `suite_cases` is the number of cases of its suite; `corrections` are those that name the run.
pub fn eligibility<'a>(
    run: &RunFacts,
    suite_cases: usize,
    corrections: impl IntoIterator<Item = &'a CorrectionEntry>,
) -> Eligibility {
    let mut reasons: Vec<Reason> = corrections.into_iter().map(Reason::of).collect();
    reasons.extend(run.cases.iter().filter_map(Reason::of_case));
    if run.protocol.quick {
        reasons.push(Reason::Quick);
    }
    if run.cases.len() < suite_cases {
        reasons.push(Reason::Incomplete { found: run.cases.len(), expected: suite_cases });
    }
    if run.protocol.evaluator.profile != "release" {
        reasons.push(Reason::DebugEvaluator);
    }
    if matches!(run.environment.device.trim().to_lowercase().as_str(), "" | "unknown") {
        reasons.push(Reason::UnknownDevice);
    }
    let throttled = run.cases.iter().filter(|case| case.throttled);
    reasons.extend(throttled.map(|case| Reason::Throttled { case: case.name.clone() }));
    Eligibility { status: RunStatus::of(&reasons), reasons }
}

impl Reason {
    /// What a correction says of its target.
    pub(crate) fn of(CorrectionEntry { id, spec }: &CorrectionEntry) -> Self {
        let (why, correction) = (spec.reason.clone(), *id);
        match spec.action {
            Action::Retract => Self::Retracted { why, correction },
            Action::Supersede { by } => Self::Superseded { by, why, correction },
        }
    }

    fn of_case(case: &CaseFacts) -> Option<Self> {
        let (name, detail) = (case.name.clone(), case.detail.clone());
        match case.status {
            Status::Passed => (!case.has_time()).then_some(Self::NoTime { case: name }),
            status => Some(Self::CaseFailed { case: name, status, detail }),
        }
    }
}

impl RunStatus {
    fn of(reasons: &[Reason]) -> Self {
        let any = |is: fn(&Reason) -> bool| reasons.iter().any(is);
        if reasons.is_empty() {
            Self::Eligible
        } else if any(|reason| matches!(reason, Reason::Retracted { .. })) {
            Self::Retracted
        } else if any(|reason| matches!(reason, Reason::Superseded { .. })) {
            Self::Superseded
        } else if any(|reason| matches!(reason, Reason::CaseFailed { .. } | Reason::NoTime { .. })) {
            Self::Failed
        } else {
            Self::Unranked
        }
    }
}

//! Which implementation to take for a problem, a device and a mode, and why not the others.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::operation::Axis;
use crate::trust::Trust;

use super::Catalog;
use super::cohort::{CohortEntry, mode_name};
use super::implementation::ImplementationEntry;
use super::operation::OperationEntry;
use super::run::{CaseFacts, Estimate, RunEntry};

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

const MODES: [&str; 3] = ["ieee", "split", "fast"];

impl Catalog {
    /// Which implementations fit, fastest first, and why the others do not.
    ///
    /// # Errors
    /// When the operation, an axis or the mode is not known; then there is nothing to rank.
    pub fn resolve(&self, question: &Question) -> Result<Resolution, ResolveError> {
        let operation = self.operation(&question.operation).ok_or_else(|| ResolveError::Operation {
            found: question.operation.clone(),
            known: self.operations().iter().map(|entry| entry.slug.clone()).collect::<Vec<_>>().join(", "),
        })?;
        if let Some(found) = question.mode.as_ref().filter(|mode| !MODES.contains(&mode.as_str())) {
            return Err(ResolveError::Mode { found: found.clone() });
        }
        check_axes(operation, &question.axes)?;
        let basis = Basis::of(operation, &question.axes);
        let asked = Asked { catalog: self, question, case: basis.case.as_deref() };
        let fits = |cohort: &&CohortEntry| asked.device_fits(&cohort.key.device, &cohort.key.device_kind);
        let here: Vec<&CohortEntry> = self.cohorts_of(operation.id).filter(fits).collect();
        let devices = super::build::sorted(here.iter().map(|cohort| cohort.key.device.clone()));
        let cohorts: Vec<ResolvedCohort> = here.iter().filter_map(|cohort| asked.ranked(cohort)).collect();
        let mut excluded: Vec<Exclusion> = self
            .implementations_of(operation.id)
            .filter(|entry| !cohorts.iter().flat_map(|cohort| &cohort.ranked).any(|row| row.implementation == entry.id))
            .map(|entry| asked.exclusion(entry))
            .collect();
        excluded.extend(asked.reported(operation.id));
        Ok(Resolution {
            operation: operation.id,
            device: devices.into_iter().next(),
            basis: basis.about,
            case: basis.case,
            cohorts,
            excluded,
        })
    }
}

fn check_axes(operation: &OperationEntry, axes: &BTreeMap<String, u64>) -> Result<(), ResolveError> {
    let variable = |name: &String| matches!(operation.spec.axes.get(name), Some(Axis::Variable { .. }));
    for (axis, size) in axes {
        let wrong = |expected: String| ResolveError::Axis { axis: axis.clone(), found: size.to_string(), expected };
        match operation.spec.axes.get(axis) {
            Some(Axis::Variable { .. }) if *size > 0 => {}
            Some(Axis::Variable { .. }) => return Err(wrong("at least 1".to_owned())),
            Some(Axis::Constant { value, .. }) if value == size => {}
            Some(Axis::Constant { value, .. }) => return Err(wrong(format!("{value}: the operation's constant"))),
            Some(Axis::Derived { expression, .. }) => return Err(wrong(format!("none: it follows from {expression}"))),
            None => {
                let known: Vec<&str> =
                    operation.spec.axes.keys().filter(|name| variable(name)).map(String::as_str).collect();
                return Err(wrong(format!("one of the axes {}", known.join(", "))));
            }
        }
    }
    Ok(())
}

/// What the times of an answer are of.
struct Basis {
    case: Option<String>,
    about: String,
}

impl Basis {
    /// The suite for no axes; the case with exactly these; otherwise the case whose sizes are nearest, each axis as a ratio.
    fn of(operation: &OperationEntry, axes: &BTreeMap<String, u64>) -> Self {
        let variable: BTreeMap<&str, u64> = axes
            .iter()
            .filter(|(name, _)| matches!(operation.spec.axes.get(*name), Some(Axis::Variable { .. })))
            .map(|(name, size)| (name.as_str(), *size))
            .collect();
        let cases = operation.suites.iter().flat_map(|suite| &suite.spec.cases);
        let distance = |case: &&crate::suite::SuiteCase| {
            let of = |(name, size): (&&str, &u64)| {
                let found = case.axes.get(*name).copied().unwrap_or(1);
                (found as f64 / *size as f64).ln().abs()
            };
            variable.iter().map(of).sum::<f64>()
        };
        let nearest = cases.min_by(|one, other| distance(one).total_cmp(&distance(other)));
        match nearest {
            Some(case) if !variable.is_empty() => {
                let exact = distance(&case) == 0.0 && variable.len() == case.axes.len();
                let about = if exact {
                    format!("case {} has exactly these axes", case.name)
                } else {
                    format!("no case has these axes; times are of {}, the nearest", case.name)
                };
                Self { case: Some(case.name.clone()), about }
            }
            _ => Self { case: None, about: "geometric mean over the suite".to_owned() },
        }
    }
}

struct Asked<'a> {
    catalog: &'a Catalog,
    question: &'a Question,
    case: Option<&'a str>,
}

impl Asked<'_> {
    fn device_fits(&self, device: &str, kind: &str) -> bool {
        let asked = self.question.device.trim();
        let known = self.catalog.device(device).is_some_and(|entry| entry.slug == asked);
        asked.is_empty() || asked.eq_ignore_ascii_case(device) || asked.eq_ignore_ascii_case(kind) || known
    }

    fn mode_fits(&self, mode: &str) -> bool {
        self.question.mode.as_deref().is_none_or(|asked| asked == mode)
    }

    fn time_ns(&self, run: &RunEntry) -> Option<Estimate> {
        match self.case {
            Some(case) => run.facts.case(case).and_then(CaseFacts::time_ns),
            None => run.facts.time_ns(),
        }
    }

    fn trusted(&self, run: &RunEntry) -> bool {
        self.question.trust.is_none_or(|least| run.trust.level >= least)
    }

    /// The fastest run of each implementation that fits, ranked as a cohort ranks.
    fn ranked(&self, cohort: &CohortEntry) -> Option<ResolvedCohort> {
        if !self.mode_fits(cohort.key.mode) {
            return None;
        }
        let mut best = BTreeMap::<Digest, (&RunEntry, Estimate)>::new();
        for run in cohort.runs.iter().filter_map(|id| self.catalog.run(id)) {
            let Some(time) = self.time_ns(run).filter(|_| run.eligibility.ranks() && self.trusted(run)) else {
                continue;
            };
            let entry = best.entry(run.facts.implementation_id).or_insert((run, time));
            if time.estimate < entry.1.estimate {
                *entry = (run, time);
            }
        }
        let mut rows: Vec<(&RunEntry, Estimate)> = best.into_values().collect();
        rows.sort_by(|one, other| one.1.estimate.total_cmp(&other.1.estimate));
        let first = rows.first()?.1;
        let mut leader = (first, 1);
        let row = |(index, (run, time)): (usize, (&RunEntry, Estimate))| {
            if time.over(leader.0).is_some_and(|ratio| ratio.differs_by(cohort.noise.share)) {
                leader = (time, index + 1);
            }
            let spec = &run.facts.implementation;
            Resolved {
                rank: leader.1,
                implementation: run.facts.implementation_id,
                name: spec.name.clone(),
                run: run.facts.id,
                time_ns: time,
                ratio_to_first: time.over(first).filter(|_| index > 0).unwrap_or(Estimate::exact(1.0)),
                trust: run.trust.level,
                licence: spec.licence.clone(),
                install: spec.install.clone(),
                entry_point: spec.entry_point.clone(),
            }
        };
        Some(ResolvedCohort {
            cohort: cohort.id,
            device: cohort.key.device.clone(),
            mode: cohort.key.mode,
            about: cohort.key.title(),
            ranked: rows.into_iter().enumerate().map(row).collect(),
        })
    }

    /// Why an implementation is in no ranking of the answer.
    fn exclusion(&self, entry: &ImplementationEntry) -> Exclusion {
        let mut reasons = Vec::new();
        let runs: Vec<&RunEntry> = entry.runs.iter().filter_map(|id| self.catalog.run(id)).collect();
        let here = |run: &&&RunEntry| self.device_fits(&run.facts.environment.device, &run.facts.device_kind);
        let mode = mode_name(entry.spec.mode);
        if !self.mode_fits(mode) {
            reasons.push(format!("it computes in mode {mode}"));
        }
        let here: Vec<&&RunEntry> = runs.iter().filter(here).collect();
        if here.is_empty() {
            reasons.push(format!("no run on {}; runs on {}", self.question.device, entry.devices.join(", ")));
        }
        for run in here {
            let slug = &run.slug;
            let own = run.eligibility.reasons.iter().map(|reason| format!("run {slug}: {reason}"));
            reasons.extend(own);
            if let Some(least) = self.question.trust.filter(|_| !self.trusted(run)) {
                let names = |trust: Trust| format!("{trust:?}").to_lowercase();
                reasons.push(format!("run {slug}: is {}, asked for {}", names(run.trust.level), names(least)));
            }
        }
        if reasons.is_empty() {
            reasons.push("no time for these axes".to_owned());
        }
        Exclusion { id: entry.id, name: entry.spec.name.clone(), reasons }
    }

    /// Figures of others never rank: their samples and rules are not known here.
    fn reported(&self, operation: Digest) -> Vec<Exclusion> {
        let of = |table: &super::SourceTable| Exclusion {
            id: table.rows.first().map_or(operation, |row| row.external),
            name: format!("{} results on {}", table.rows.len(), table.hardware),
            reasons: vec![format!(
                "reported by {} under {}: another protocol, no samples, no ratio",
                table.document, table.protocol
            )],
        };
        self.catalog.sources_of(operation).map(of).collect()
    }
}

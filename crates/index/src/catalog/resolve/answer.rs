//! How a question is answered: cohort by cohort, and with a reason for whoever is left out.

use std::collections::{BTreeMap, BTreeSet};

use super::{Exclusion, Question, Resolution, ResolveError, Resolved, ResolvedCohort};
use crate::catalog::cohort::{CohortEntry, mode_name};
use crate::catalog::{
    CaseFacts, Catalog, DeviceEntry, Estimate, ImplementationEntry, OperationEntry, RunEntry, SourceTable,
};
use crate::identity::Digest;
use crate::operation::Axis;
use crate::trust::Trust;

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
        let asked = Asked::new(self, question, basis.case.as_deref());
        let fits = |cohort: &&CohortEntry| asked.device_fits(&cohort.key.device);
        let here: Vec<&CohortEntry> = self.cohorts_of(operation.id).filter(fits).collect();
        let devices = super::super::build::sorted(here.iter().map(|cohort| cohort.key.device.clone()));
        let cohorts: Vec<ResolvedCohort> = here.iter().filter_map(|cohort| asked.ranked(cohort)).collect();
        let ranked: BTreeSet<Digest> =
            cohorts.iter().flat_map(|cohort| &cohort.ranked).map(|row| row.implementation).collect();
        let mut excluded: Vec<Exclusion> = self
            .implementations_of(operation.id)
            .filter(|entry| !ranked.contains(&entry.id))
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

/// A question with what was found out about it once.
struct Asked<'a> {
    catalog: &'a Catalog,
    question: &'a Question,
    case: Option<&'a str>,
    /// Names of the devices that were meant.
    devices: BTreeSet<&'a str>,
}

/// The latest runs of an implementation say why it does not fit; thousands of older ones say the same.
const MOST_RUNS: usize = 8;

impl<'a> Asked<'a> {
    fn new(catalog: &'a Catalog, question: &'a Question, case: Option<&'a str>) -> Self {
        let asked = question.device.trim();
        let fits = |entry: &&DeviceEntry| {
            let names = [&entry.name, &entry.kind, &entry.slug];
            asked.is_empty() || names.iter().any(|name| asked.eq_ignore_ascii_case(name))
        };
        let devices = catalog.devices().iter().filter(fits).map(|entry| entry.name.as_str()).collect();
        Self { catalog, question, case, devices }
    }

    fn device_fits(&self, device: &str) -> bool {
        self.devices.contains(device)
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
        // The fastest of all are known beforehand; those of a trust are not.
        let fastest: Vec<Digest> = match (self.question.trust, self.case) {
            (Some(_), _) => cohort.runs.clone(),
            (None, Some(case)) => cohort.fastest_on(case).to_vec(),
            (None, None) => cohort.ranking.iter().map(|row| row.run).collect(),
        };
        for run in fastest.iter().filter_map(|id| self.catalog.run(id)) {
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
        let mode = mode_name(entry.spec.mode);
        if !self.mode_fits(mode) {
            reasons.push(format!("it computes in mode {mode}"));
        }
        if !entry.devices.iter().any(|device| self.device_fits(device)) {
            reasons.push(format!("no run on {}; runs on {}", self.question.device, entry.devices.join(", ")));
        }
        let runs = entry.runs.iter().filter_map(|id| self.catalog.run(id));
        let here = runs.filter(|run| self.device_fits(&run.facts.environment.device));
        for run in here.take(MOST_RUNS) {
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
        let of = |table: &SourceTable| Exclusion {
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

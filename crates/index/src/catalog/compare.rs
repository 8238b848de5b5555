//! Runs beside each other: a ratio inside one cohort, the difference in words across cohorts.

use serde::Serialize;

use crate::identity::Digest;

use super::Catalog;
use super::cohort::CohortKey;
use super::run::{CaseFacts, Estimate, RunEntry, RunFacts};

/// Runs beside each other, the first as the base.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The run that the others are held against.
    pub base: Digest,
    /// The others, in the order asked for.
    pub others: Vec<Compared>,
}

/// One run against the base.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The run.
    pub run: Digest,
    /// In what the cohorts differ; empty when it is one.
    pub differences: Vec<CohortDifference>,
    /// All differences as one sentence; `None` when there are none.
    pub sentence: Option<String>,
    /// What may explain a ratio although the cohort is one: system, software, source, evaluator.
    pub circumstances: Vec<CohortDifference>,
    /// Its time over that of the base, geometric mean over the cases that passed in both; `None` across cohorts.
    pub ratio: Option<Estimate>,
    /// Whether the interval excludes 1 by more than the cohort's noise; `None` across cohorts.
    pub distinguishable: Option<bool>,
    /// Case by case; empty across cohorts.
    pub cases: Vec<ComparedCase>,
}

/// A respect in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CohortDifference {
    /// What differs.
    pub what: &'static str,
    /// In the base.
    pub base: String,
    /// In the other.
    pub other: String,
}

/// One case of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedCase {
    /// The suite's name.
    pub name: String,
    /// Time of the other over that of the base; `None` unless it passed in both.
    pub ratio: Option<Estimate>,
}

impl Catalog {
    /// The first run as the base and the others against it, in the order given. `None` when one is not known, or none is given.
    pub fn compare(&self, runs: &[Digest]) -> Option<Comparison> {
        let runs: Vec<&RunEntry> = runs.iter().map(|id| self.run(id)).collect::<Option<_>>()?;
        let (base, others) = runs.split_first()?;
        let others = others.iter().map(|other| self.compared(base, other)).collect();
        Some(Comparison { base: base.facts.id, others })
    }

    fn compared(&self, base: &RunEntry, other: &RunEntry) -> Compared {
        let differences = differences(&CohortKey::of(&base.facts), &CohortKey::of(&other.facts));
        let one_cohort = differences.is_empty();
        let cases = if one_cohort { cases(&base.facts, &other.facts) } else { Vec::new() };
        let ratio = Estimate::geometric_mean(cases.iter().filter_map(|case| case.ratio));
        let noise = self.cohort(&base.cohort).map(|cohort| cohort.noise.share);
        let sentence = differences.iter().map(|difference| {
            let CohortDifference { what, base, other } = difference;
            format!("{what}: {base} and {other}")
        });
        let sentence = sentence.collect::<Vec<_>>().join("; ");
        Compared {
            run: other.facts.id,
            sentence: (!one_cohort).then(|| format!("no ratio across cohorts; they differ in {sentence}")),
            differences,
            circumstances: circumstances(&base.facts, &other.facts),
            distinguishable: ratio.zip(noise).map(|(ratio, noise)| ratio.differs_by(noise)),
            ratio,
            cases,
        }
    }
}

fn cases(base: &RunFacts, other: &RunFacts) -> Vec<ComparedCase> {
    let compared = |case: &CaseFacts| {
        let found = other.case(&case.name).filter(|found| found.has_time() && case.has_time());
        let ratio = found.and_then(|found| found.time_ns()?.over(case.time_ns()?));
        ComparedCase { name: case.name.clone(), ratio }
    };
    base.cases.iter().map(compared).collect()
}

fn differences(base: &CohortKey, other: &CohortKey) -> Vec<CohortDifference> {
    let of = |key: &CohortKey| {
        [
            ("operation", key.operation.short()),
            ("suite", key.suite.short()),
            ("device", key.device.clone()),
            ("kind of device", key.device_kind.clone()),
            ("threads", key.threads.to_string()),
            ("mode", key.mode.to_owned()),
            ("protocol", key.protocol.clone()),
            ("quick", if key.quick { "yes" } else { "no" }.to_owned()),
            ("timer", key.timer.clone()),
            ("timed calls", key.timed_calls.to_string()),
            ("bytes flushed", key.flush_bytes.to_string()),
        ]
    };
    between(of(base), of(other))
}

fn circumstances(base: &RunFacts, other: &RunFacts) -> Vec<CohortDifference> {
    let of = |run: &RunFacts| {
        let (environment, implementation) = (&run.environment, &run.implementation);
        let evaluator = &run.protocol.evaluator;
        let software = environment.software.iter().map(|(name, version)| format!("{name} {version}"));
        [
            ("implementation", implementation.name.clone()),
            ("source", implementation.source.commit.clone().unwrap_or_else(|| "unknown".to_owned())),
            ("software", software.collect::<Vec<_>>().join(", ")),
            ("processor", environment.cpu.clone()),
            ("system", format!("{}, {}", environment.os, environment.kernel)),
            ("evaluator", evaluator.commit.clone()),
            ("compiler", evaluator.rustc.clone()),
        ]
    };
    between(of(base), of(other))
}

fn between<const ROWS: usize>(
    base: [(&'static str, String); ROWS],
    other: [(&'static str, String); ROWS],
) -> Vec<CohortDifference> {
    let pairs = base.into_iter().zip(other).filter(|((_, base), (_, other))| base != other);
    pairs.map(|((what, base), (_, other))| CohortDifference { what, base, other }).collect()
}

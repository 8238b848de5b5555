//! Cohorts: which times may be set against each other, and in what two runs differ where they may not.

use kernelproof_eval::evaluation::{CaseResult, Evaluation};
use kernelproof_eval::statistics::{Interval, Pair, geometric_mean_of_separate_ratios};
use serde::Serialize;

/// One respect in which two runs differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What differs.
    pub what: &'static str,
    /// In the first run.
    pub first: String,
    /// In the second run.
    pub second: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} and {}", self.what, self.first, self.second)
    }
}

/// In what the cohorts of two runs differ; a ratio of their times means something only if it is empty. Operation and suite
/// follow from the cases, which the caller pairs.
pub fn differences(first: &Evaluation, second: &Evaluation) -> Vec<Difference> {
    let of = |run: &Evaluation| {
        let (protocol, implementation) = (&run.protocol, &run.implementation);
        [
            ("device", run.environment.device.clone()),
            ("kind of device", implementation.device.clone()),
            ("threads", implementation.threads.to_string()),
            ("precision", format!("{:?}", implementation.precision).to_lowercase()),
            ("protocol", protocol.version.clone()),
            ("quick", protocol.quick.to_string()),
            ("timer", protocol.timer.clone()),
            ("timed calls", protocol.timed_calls.to_string()),
            ("bytes flushed", protocol.flush_bytes.to_string()),
        ]
    };
    between(of(first), of(second))
}

/// What else changed and may explain a ratio: software, system, the implementation's source and binaries.
pub fn circumstances(first: &Evaluation, second: &Evaluation) -> Vec<Difference> {
    let of = |run: &Evaluation| {
        let (environment, implementation) = (&run.environment, &run.implementation);
        [
            ("source", format!("{:?}", implementation.source.commit.as_deref().unwrap_or("unknown"))),
            ("binaries", format!("{:?}", implementation.binaries)),
            ("runtime", format!("{:?}", implementation.runtime)),
            ("build flags", format!("{:?}", implementation.build_flags)),
            ("processor", environment.cpu.clone()),
            ("system", format!("{}, {}", environment.os, environment.kernel)),
            ("evaluator", run.protocol.evaluator.commit.clone()),
            ("compiler", run.protocol.evaluator.rustc.clone()),
        ]
    };
    between(of(first), of(second))
}

fn between<const ROWS: usize>(
    first: [(&'static str, String); ROWS],
    second: [(&'static str, String); ROWS],
) -> Vec<Difference> {
    let pairs = first.into_iter().zip(second).filter(|((_, first), (_, second))| first != second);
    pairs.map(|((what, first), (_, second))| Difference { what, first, second }).collect()
}

/// How the times of a run that was repeated compare with those on record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeated {
    /// Time here over time on record, geometric mean over the cases that passed in both, with its 95 % interval.
    pub ratio: Option<Interval>,
    /// The same case by case.
    pub cases: Vec<RepeatedCase>,
}

/// One case of a repeated run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepeatedCase {
    /// Name of the case.
    pub name: String,
    /// Time here over time on record; `None` unless it passed in both.
    pub ratio: Option<Interval>,
}

impl Repeated {
    /// Compares two runs of one cohort. `None` where [`differences`] finds any.
    pub fn of(here: &Evaluation, recorded: &Evaluation) -> Option<Self> {
        if !differences(recorded, here).is_empty() {
            return None;
        }
        let other = |case: &CaseResult| here.cases.iter().find(|other| other.problem == case.problem);
        let pairs: Vec<(&CaseResult, Option<Pair<'_>>)> =
            recorded.cases.iter().map(|case| (case, other(case).and_then(|here| pair(here, case)))).collect();
        let of_case = |(case, pair): &(&CaseResult, Option<Pair<'_>>)| RepeatedCase {
            name: case.name.clone(),
            ratio: pair.and_then(|pair| geometric_mean_of_separate_ratios(&[pair])),
        };
        let passed: Vec<Pair<'_>> = pairs.iter().filter_map(|(_, pair)| *pair).collect();
        Some(Self { ratio: geometric_mean_of_separate_ratios(&passed), cases: pairs.iter().map(of_case).collect() })
    }
}

impl Difference {
    /// All of them as one sentence.
    pub fn sentence(differences: &[Self]) -> String {
        differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// The share by which a time may differ according to an interval of its ratio: the end that is farther from 1.
pub fn within(interval: &Interval) -> f64 {
    (interval.high - 1.0).abs().max((interval.low - 1.0).abs())
}

fn pair<'a>(here: &'a CaseResult, recorded: &'a CaseResult) -> Option<Pair<'a>> {
    here.median_ns().and(recorded.median_ns())?;
    Some(Pair { numerator: &here.samples_ns, denominator: &recorded.samples_ns })
}

#[cfg(test)]
mod tests {
    use kernelproof_eval::evaluation::Status;

    use super::*;
    use crate::testing::example::evaluation;

    #[test]
    fn the_same_run_agrees_with_itself() {
        let repeated = Repeated::of(&evaluation(), &evaluation()).expect("one cohort");
        let ratio = repeated.ratio.expect("both passed");
        assert!((ratio.estimate - 1.0).abs() < 1e-12 && within(&ratio) < 0.01, "{ratio:?}");
        assert_eq!(repeated.cases.len(), 2);
    }

    #[test]
    fn another_device_or_protocol_is_named_and_gives_no_ratio() {
        let mut other = evaluation();
        other.environment.device = "Another CPU".to_owned();
        other.protocol.version = "example.protocol/2".to_owned();
        assert_eq!(Repeated::of(&other, &evaluation()), None);
        let sentence = Difference::sentence(&differences(&evaluation(), &other));
        assert_eq!(
            sentence,
            "device: Example CPU and Another CPU; protocol: example.protocol/1 and example.protocol/2"
        );
    }

    #[test]
    fn another_kernel_is_a_circumstance() {
        let mut other = evaluation();
        other.environment.kernel = "7.0".to_owned();
        assert!(Repeated::of(&other, &evaluation()).is_some());
        assert_eq!(circumstances(&evaluation(), &other)[0].what, "system");
    }

    #[test]
    fn a_case_that_fails_here_has_no_ratio() {
        let mut here = evaluation();
        here.cases[1].status = Status::Crashed;
        let repeated = Repeated::of(&here, &evaluation()).expect("one cohort");
        assert!(repeated.cases[0].ratio.is_some() && repeated.cases[1].ratio.is_none());
    }
}

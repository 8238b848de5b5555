//! Whether a run did everything that its protocol asks for, and whether its verdicts follow from what was seen.

use std::collections::BTreeSet;

use kernelproof_eval::check::{Agreement, Bounds, Failure};
use kernelproof_eval::evaluation::{Audit, BEYOND_CEILINGS, CaseResult, Evaluation, Origin, ProtocolFacts, Status};
use qkv_rope_op::{Problem, Tensor};

use crate::suite::Suite;

/// What is missing or contradicts itself, a sentence each.
pub(super) fn findings(suite: &Suite, evaluation: &Evaluation) -> Vec<String> {
    let each = evaluation.cases.iter().flat_map(|case| {
        let mut found = Found { case: case.name.clone(), findings: Vec::new() };
        identity(suite, evaluation, case, &mut found);
        checks(&evaluation.protocol, case, &mut found);
        timing(&evaluation.protocol, case, &mut found);
        possible(evaluation, case, &mut found);
        found.findings
    });
    each.collect()
}

struct Found {
    case: String,
    findings: Vec<String>,
}

impl Found {
    fn unless(&mut self, holds: bool, field: &str, found: impl std::fmt::Display, expected: impl std::fmt::Display) {
        if !holds {
            let case = &self.case;
            self.findings.push(format!("spec.evaluation.cases.{case}.{field}: found {found}, expected {expected}"));
        }
    }
}

/// The case is the suite's, with the suite's bounds.
fn identity(suite: &Suite, evaluation: &Evaluation, case: &CaseResult, found: &mut Found) {
    let precision = evaluation.implementation.precision;
    let listed = suite.cases.iter().find(|listed| listed.name == case.name).and_then(|listed| listed.case().ok());
    let Some(listed) = listed else {
        found.unless(false, "name", format!("{:?}", case.name), "a case of the suite");
        return;
    };
    let id = listed.id();
    found.unless(case.id.as_ref() == Some(&id), "id", format!("{:?}", case.id), &id);
    let problem = Problem { precision, ..Problem::new(listed.dims()) };
    found.unless(
        case.problem == problem,
        "problem",
        case.problem.dims,
        "the suite's, for the implementation's precision",
    );
    let bounds = suite.bounds.iter().find(|bounds| bounds.mode == precision).map(|bounds| bounds.bounds);
    found.unless(bounds == Some(case.bounds), "bounds", format!("{:?}", case.bounds), "the suite's");
}

/// The rounds and the audited call: all there, and judged as their figures demand.
fn checks(protocol: &ProtocolFacts, case: &CaseResult, found: &mut Found) {
    let passed = case.status == Status::Passed;
    let seeds: BTreeSet<u64> = case.rounds.iter().map(|round| round.seed).collect();
    found.unless(seeds.len() == case.rounds.len(), "rounds", "a seed twice", "other inputs in every round");
    let rounds = protocol.check_rounds as usize;
    found.unless(!passed || case.rounds.len() == rounds, "rounds", case.rounds.len(), rounds);
    for (index, round) in case.rounds.iter().enumerate() {
        judged(&format!("rounds[{index}]"), &round.agreements, &round.failures, case, found);
    }
    match &case.audit {
        Some(Audit { call, agreements, failures }) => {
            found.unless(*call < protocol.timed_calls, "audit.call", call, "a timed call");
            judged("audit", agreements, failures, case, found);
        }
        None => found.unless(!passed, "audit", "nothing", "the audited call of a case that passed"),
    }
}

fn judged(field: &str, agreements: &[Agreement], failures: &[Failure], case: &CaseResult, found: &mut Found) {
    let demanded = agreements.iter().flat_map(|agreement| agreement.failures(&case.bounds, false));
    let missing: Vec<String> =
        demanded.filter(|failure| !failures.contains(failure)).map(|failure| failure.to_string()).collect();
    let failures_field = format!("{field}.failures");
    found.unless(missing.is_empty(), &failures_field, "none", format!("{missing:?}, which follow from the figures"));
    if case.status == Status::Passed {
        found.unless(failures.is_empty(), &failures_field, failures.len(), "none in a case that passed");
        let tensors: Vec<Tensor> = agreements.iter().map(|agreement| agreement.tensor).collect();
        found.unless(tensors == Tensor::OUTPUTS, field, format!("{tensors:?}"), "all four outputs");
        figures_are_possible(field, agreements, &case.bounds, found);
    }
}

/// Errors are not negative, and something was compared.
fn figures_are_possible(field: &str, agreements: &[Agreement], bounds: &Bounds, found: &mut Found) {
    for Agreement { tensor, compared, normwise, conditioned, componentwise, matched, .. } in agreements {
        let field = format!("{field}.{tensor}");
        found.unless(*compared > 0, &field, "nothing compared", "elements");
        let errors = [*normwise, *conditioned, *componentwise];
        found.unless(errors.iter().all(|error| *error >= 0.0), &field, format!("errors {errors:?}"), "0 or more");
        let enough = (1.0 - bounds.unmatched..=1.0).contains(matched);
        found.unless(enough, &field, matched, "a ratio of matched elements that passes");
    }
}

/// A case that passed took at least the time that the device needs.
fn possible(evaluation: &Evaluation, case: &CaseResult, found: &mut Found) {
    for origin in [Origin::Measured, Origin::Datasheet] {
        let share = evaluation.share_of_light(case, origin).unwrap_or(0.0);
        let expected =
            format!("at most {BEYOND_CEILINGS} of what the device can do ({origin:?} ceilings)").to_lowercase();
        found.unless(share <= BEYOND_CEILINGS, "samples_ns", format!("{share:.2}"), expected);
    }
}

/// The samples: all there when the case passed, none of 0 ns.
fn timing(protocol: &ProtocolFacts, case: &CaseResult, found: &mut Found) {
    let (samples, expected) = (case.samples_ns.len(), protocol.timed_calls as usize);
    let passed = case.status == Status::Passed;
    found.unless(!passed || samples == expected, "samples_ns", format!("{samples} samples"), expected);
    found.unless(samples <= expected, "samples_ns", format!("{samples} samples"), format!("at most {expected}"));
    found.unless(!passed || case.samples_ns.iter().all(|&sample| sample > 0), "samples_ns", "a sample of 0 ns", "time");
    found.unless(passed == case.detail.is_none(), "detail", format!("{:?}", case.detail), "words unless it passed");
    let calls = case.telemetry.iter().map(|telemetry| telemetry.after_calls);
    found.unless(calls.is_sorted(), "telemetry", "times that go back", "the order of calls");
}

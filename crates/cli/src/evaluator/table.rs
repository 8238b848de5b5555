//! An evaluation as a person reads it.

use kernelproof_eval::evaluation::{Aggregates, CaseResult, Evaluation, Origin};

use super::exploits::{Kind, SelfTest};
use crate::report::table::{Table, milliseconds};

const NONE: &str = "-";

/// A line for each case, then the aggregates.
pub(crate) fn text(evaluation: &Evaluation) -> String {
    let mut table =
        Table::new(&["case", "verdict", "median ms", "GFLOP/s", "of light", "worst error", "headroom", "same bits"]);
    for case in &evaluation.cases {
        table.row(row(evaluation, case));
    }
    let lines = [heading(evaluation), String::new(), table.to_string(), String::new(), foot(evaluation)];
    let why = evaluation.cases.iter().filter_map(|case| Some(format!("\n{}: {}", case.name, case.detail.as_ref()?)));
    lines.join("\n") + &why.collect::<String>()
}

fn heading(evaluation: &Evaluation) -> String {
    let implementation = &evaluation.implementation;
    let quick = if evaluation.protocol.quick { ", quick: shows that it works, never ranks" } else { "" };
    format!(
        "{}, {} threads, {} on {}{quick}",
        implementation.name,
        implementation.threads,
        serde_json::to_value(implementation.precision)
            .ok()
            .and_then(|name| Some(name.as_str()?.to_owned()))
            .unwrap_or_default(),
        evaluation.environment.device
    )
}

fn row(evaluation: &Evaluation, case: &CaseResult) -> [String; 8] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    let median_ns = case.median_ns();
    let agreements = case.rounds.iter().flat_map(|round| &round.agreements);
    let worst = agreements.map(|agreement| agreement.normwise).max_by(f64::total_cmp);
    let throttled = if case.throttled() { " (throttled)" } else { "" };
    let same = case.rounds.first().and_then(|round| round.repeatable);
    [
        case.name.clone(),
        format!("{}{throttled}", case.status),
        or_none(median_ns.map(milliseconds)),
        or_none(median_ns.map(|time_ns| format!("{:.1}", case.cost().flops as f64 / time_ns))),
        or_none(evaluation.share_of_light(case, Origin::Measured).map(percent)),
        or_none(worst.map(|worst| format!("{worst:.1e}"))),
        or_none(case.headroom().map(|headroom| percent(headroom.normwise.min(headroom.componentwise)))),
        or_none(same.map(|same| if same { "yes" } else { "no" }.to_owned())),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn foot(evaluation: &Evaluation) -> String {
    let measured = evaluation.aggregates(Origin::Measured);
    let mut lines = vec![format!("{} of {} cases passed", measured.passed, measured.cases)];
    lines.extend(measured.geometric_mean_ns.map(|mean| format!("geometric mean {} ms", milliseconds(mean))));
    lines.extend(measured.arithmetic_mean_ns.map(|mean| format!("arithmetic mean {} ms", milliseconds(mean))));
    lines.push(match evaluation.protocol.evaluator.mutation_score {
        Some([right, all]) => format!("mutation score of this evaluator: {right} of {all}"),
        None => {
            "mutation score of this evaluator: not known, `kernelproof eval --self-test` was not run with it".to_owned()
        }
    });
    lines.extend(light("ceilings measured here", &measured));
    lines.extend(light("ceilings of the datasheet", &evaluation.aggregates(Origin::Datasheet)));
    if let (Some(score), Some(baseline)) = (measured.score, &evaluation.baseline) {
        lines.push(format!("score {score:.3} against {baseline}"));
    }
    lines.join("\n")
}

fn light(name: &str, aggregates: &Aggregates) -> Option<String> {
    let (share, worst) = (aggregates.share_of_light?, aggregates.worst_ratio?);
    Some(format!("{} of the speed of light by {name}, worst case {worst:.2} times it", percent(share)))
}

/// A line for each solution of the exploit suite, then the mutation score.
pub(crate) fn self_test(test: &SelfTest) -> String {
    let mut table = Table::new(&["solution", "runs in", "must be", "verdict", ""]);
    for finding in &test.findings {
        let place = match finding.kind {
            Kind::InProcess => "this process",
            Kind::Solution => "a worker",
        };
        let expected: Vec<&str> = finding.expected.iter().map(|status| status.name()).collect();
        let verdict = if finding.is_right() { "ok" } else { "WRONG" };
        let cells = [&finding.name, place, &expected.join(" or "), finding.found.name(), verdict];
        table.row(cells.map(str::to_owned));
    }
    let ((rejected, cheats), (accepted, honest)) = (test.score(true), test.score(false));
    let mut lines = vec![
        table.to_string(),
        String::new(),
        format!(
            "mutation score: {rejected} of {cheats} cheats rejected for the right reason, {accepted} of {honest} honest accepted"
        ),
    ];
    if test.device == "cpu" {
        lines.push(
            "does not apply to a CPU: unjoined streams, persisting L2, CUDA graphs, kernels in some calls only"
                .to_owned(),
        );
    }
    lines.extend(test.not_run.as_ref().map(|(count, why)| format!("not run: {count} solutions ({why})")));
    let wrong = test.findings.iter().filter(|finding| !finding.is_right());
    lines
        .extend(wrong.map(|finding| format!("{}: {}", finding.name, finding.detail.as_deref().unwrap_or("no detail"))));
    lines.join("\n")
}

//! What `check` found, as data and as a table.

use std::collections::BTreeMap;

use kernelproof_eval::check::Report;
use qkv_rope_op::{Problem, Recipe, Tensor};
use serde::Serialize;

use crate::machine::{Build, Machine};
use crate::report::table::Table;

/// One problem to check, with all that is needed to repeat it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Subject {
    /// The case's name, or its sizes and options.
    pub(super) name: String,
    pub(super) problem: Problem,
    pub(super) recipe: Recipe,
    pub(super) seed: u64,
    /// Whether it was drawn; the table then sums it up with its like.
    pub(super) random: bool,
}

/// A problem and what was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Checked {
    pub(super) subject: Subject,
    pub(super) report: Report,
}

/// One run of `check`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CheckRecord {
    schema: &'static str,
    /// Whether everything that was asked for was checked.
    pub(super) complete: bool,
    machine: Machine,
    build: Build,
    pub(super) checked: Vec<Checked>,
}

/// Some checks of one backend that share a row.
#[derive(Debug)]
struct Row<'a> {
    what: String,
    backend: &'a str,
    members: Vec<&'a Checked>,
}

impl CheckRecord {
    /// A record without checks.
    pub(super) fn new() -> Self {
        let (machine, build) = (Machine::here(), Build::this());
        Self { schema: "kernelproof.check/1", complete: false, machine, build, checked: Vec::new() }
    }

    /// Whether nothing was wrong.
    pub(super) fn passed(&self) -> bool {
        self.checked.iter().all(|checked| checked.report.passed())
    }

    /// The table, the verdict, and a line for each thing that was wrong.
    pub(super) fn text(&self) -> String {
        let header = ["case", "backend"].into_iter().chain(Tensor::OUTPUTS.map(Tensor::name)).chain(["verdict"]);
        let mut table = Table::new(&header.collect::<Vec<_>>());
        for row in self.rows() {
            table.row(row.cells());
        }
        let failed: Vec<&Checked> = self.checked.iter().filter(|checked| !checked.report.passed()).collect();
        let count = self.checked.len();
        let mut text = format!("{table}\n\n{} of {count} checks passed", count - failed.len());
        for checked in failed {
            let Checked { subject, report } = checked;
            for failure in &report.failures {
                let (name, backend) = (&subject.name, &report.backend);
                let (recipe, seed) = (subject.recipe, subject.seed);
                text.push_str(&format!("\n{name} by {backend}, {recipe} inputs of seed {seed}: {failure}"));
            }
        }
        if !self.complete {
            text.push_str("\nincomplete: stopped before everything was checked");
        }
        text
    }

    /// A row per case and backend, and a row per backend for all random problems.
    fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        let mut random: BTreeMap<&str, Vec<&Checked>> = BTreeMap::new();
        for checked in &self.checked {
            let backend = checked.report.backend.as_str();
            if checked.subject.random {
                random.entry(backend).or_default().push(checked);
            } else {
                rows.push(Row { what: checked.subject.name.clone(), backend, members: vec![checked] });
            }
        }
        rows.extend(random.into_iter().map(|(backend, members)| {
            let what = format!("{} random problems", members.len());
            Row { what, backend, members }
        }));
        rows
    }
}

impl Row<'_> {
    fn cells(&self) -> impl Iterator<Item = String> {
        let errors = Tensor::OUTPUTS.map(|tensor| {
            let worst = self.members.iter().filter_map(|checked| normwise(checked, tensor)).max_by(f64::total_cmp);
            worst.map_or_else(|| "-".to_owned(), |worst| format!("{worst:.2e}"))
        });
        let failed = self.members.iter().filter(|checked| !checked.report.passed()).count();
        let verdict = match failed {
            0 => "ok".to_owned(),
            _ if self.members.len() == 1 => "FAILED".to_owned(),
            _ => format!("FAILED {failed}"),
        };
        [self.what.clone(), self.backend.to_owned()].into_iter().chain(errors).chain([verdict])
    }
}

fn normwise(checked: &Checked, tensor: Tensor) -> Option<f64> {
    checked.report.agreements.iter().find(|agreement| agreement.tensor == tensor).map(|agreement| agreement.normwise)
}

#[cfg(test)]
mod tests {
    use kernelproof_eval::check::{Bounds, Depth, Failure};
    use qkv_rope_op::{Precision, SUITE};

    use super::*;

    fn checked(name: &str, backend: &str, random: bool, failures: Vec<Failure>) -> Checked {
        let problem = Problem::new(SUITE[0].dims());
        let report = Report {
            backend: backend.to_owned(),
            problem,
            depth: Depth::Full,
            bounds: Bounds::of(Precision::Ieee),
            agreements: Vec::new(),
            failures,
        };
        Checked { subject: Subject { name: name.to_owned(), problem, recipe: Recipe::Spread, seed: 7, random }, report }
    }

    #[test]
    fn failures_are_counted_and_say_how_to_repeat_them() {
        let unchanged = || Failure::InputChanged { tensor: Tensor::Cos };
        let mut record = CheckRecord::new();
        record.complete = true;
        record.checked = vec![
            checked("s128b2", "cpu-avx2", false, Vec::new()),
            checked(
                "s128b2",
                "cpu-portable",
                false,
                vec![unchanged(), Failure::AllZero { tensor: Tensor::GradKWeight }],
            ),
            checked("B=1 S=3", "cpu-avx2", true, Vec::new()),
            checked("B=1 S=4", "cpu-avx2", true, vec![unchanged()]),
        ];
        assert!(!record.passed());
        insta::assert_snapshot!(record.text());
    }
}

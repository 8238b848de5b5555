//! The README's figures are those of the records that it names.

use crate::files::Folder;

const README: &str = include_str!("../../../../README.md");

/// The last lines of a report: shares of the peak and ratios over all cases.
fn totals(record: &str) -> Vec<String> {
    let path = format!("{}/../../records/bench/{record}", env!("CARGO_MANIFEST_DIR"));
    let text = Folder::new().succeed(&["report", &path]);
    let totals = text.lines().filter(|line| line.contains("geometric mean of"));
    totals.map(str::to_owned).collect()
}

/// The first and the last number of a line's figures: over all cases, and the lowest.
fn figures(line: &str) -> [&str; 2] {
    let figures = line.rsplit_once(": ").expect("a name before the figures").1;
    let lowest = figures.rsplit_once("lowest ").expect("a lowest figure").1;
    [figures, lowest].map(|text| text.split_whitespace().next().expect("a number"))
}

#[test]
fn figures_are_those_of_the_records() {
    let bench = totals("2026-12-01-cpu-2-threads.json");
    let ours = bench.iter().filter(|line| line.contains("cpu-avx512"));
    let scaling = totals("2026-12-01-cpu-scaling.json");
    let quoted = ours.chain(scaling.iter().filter(|line| line.starts_with("time(")));
    let mut lines = 0;
    for line in quoted {
        for figure in figures(line) {
            assert!(README.contains(figure), "the README does not say {figure}, from: {line}");
        }
        lines += 1;
    }
    assert_eq!(lines, 5, "one share, three rivals, one scaling");
}

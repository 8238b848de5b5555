//! A record read as a table.

use kernelproof_eval::statistics::{Interval, Pair, geometric_mean, geometric_mean_of_ratios, ratio_of_medians};

use super::record::{BenchRecord, CaseRecord, ContestantRecord};
use super::table::{Table, milliseconds};

/// From this many tokens on, the project promises a share of the FMA peak.
const LARGE_TOKENS: usize = 1024;

/// The whole record as text: where it ran, a row per case and contestant, and the figures over all cases.
pub(crate) fn text(record: &BenchRecord) -> String {
    let mut parts = vec![heading(record), rows(record).to_string()];
    parts.extend(totals(record));
    parts.extend(failures(record));
    parts.extend(throttled(record));
    if !record.complete {
        parts.push("incomplete: stopped before all samples were taken".to_owned());
    }
    parts.join("\n\n")
}

fn heading(record: &BenchRecord) -> String {
    let (machine, build, protocol) = (&record.machine, &record.build, &record.protocol);
    let caches = match protocol.flush_bytes {
        0 => "caches left warm".to_owned(),
        bytes => format!("{} MiB written between calls", bytes >> 20),
    };
    format!(
        "{}{}, {} threads, {}, {}\nkernelproof {} ({}, {}, {}){}\n{} kept rounds, {} before them; contestants in turn, {caches}",
        gpu(record),
        machine.cpu,
        machine.threads_available,
        machine.isa,
        machine.os,
        build.version,
        build.commit,
        build.rustc,
        build.profile,
        rivals(record),
        protocol.sample_rounds,
        protocol.warmup_rounds,
    )
}

/// Cases in which the GPU was held back.
fn throttled(record: &BenchRecord) -> Option<String> {
    let names: Vec<&str> = record.cases.iter().filter(|case| case.throttled()).map(|case| case.name.as_str()).collect();
    (!names.is_empty()).then(|| format!("throttled by heat or power: {}", names.join(", ")))
}

/// The GPU, and how it was timed, on a line of its own.
fn gpu(record: &BenchRecord) -> String {
    let Some(gpu) = &record.gpu else { return String::new() };
    let driver = gpu.driver.as_deref().unwrap_or("unknown");
    let timer = record.cases.first().and_then(|case| Some(case.contestants.first()?.timer.as_str()));
    format!("{}, driver {driver}, CUDA {}; {}\n", gpu.name, gpu.cuda, timer.unwrap_or("nothing timed"))
}

/// What was wrong with outputs, a line each.
fn failures(record: &BenchRecord) -> Option<String> {
    let contestants = record.cases.iter().flat_map(|case| case.contestants.iter().map(move |one| (&case.name, one)));
    let lines: Vec<String> = contestants
        .flat_map(|(case, one)| one.failures.iter().map(move |what| format!("{case} by {}: {what}", one.label())))
        .collect();
    (!lines.is_empty()).then(|| format!("outputs that disagree with f64:\n{}", lines.join("\n")))
}

/// Names and versions of those who are not ours.
fn rivals(record: &BenchRecord) -> String {
    let contestants = record.cases.first().map_or(&[][..], |case| &case.contestants);
    let versions = contestants.iter().filter_map(|rival| Some(format!(", {} {}", rival.name, rival.version.as_ref()?)));
    versions.collect()
}

/// `1 case`, `2 cases`.
fn cases(count: usize) -> String {
    format!("{count} case{}", if count == 1 { "" } else { "s" })
}

fn rows(record: &BenchRecord) -> Table {
    // With nobody to compare with, the column of ratios would be empty.
    let compares = record.cases.iter().any(|case| case.contestants.len() > 1);
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| compares || !column.compares).collect();
    let mut table = Table::new(&columns.iter().map(|column| column.header).collect::<Vec<_>>());
    for case in &record.cases {
        for contestant in &case.contestants {
            let cell = |column: &&Column| (column.cell)(case, contestant).unwrap_or_else(|| "-".to_owned());
            table.row(columns.iter().map(cell));
        }
    }
    table
}

/// A column of the table; a cell that has no value shows a dash.
struct Column {
    header: &'static str,
    /// Whether it compares contestants.
    compares: bool,
    cell: fn(&CaseRecord, &ContestantRecord) -> Option<String>,
}

const COLUMNS: [Column; 10] = [
    plain("case", |case, _| Some(case.name.clone())),
    plain("tokens", |case, _| Some(case.problem.dims.tokens().to_string())),
    plain("contestant", |_, contestant| Some(contestant.name.clone())),
    plain("threads", |_, contestant| Some(contestant.threads.to_string())),
    plain("median ms", |_, contestant| contestant.median_ns().map(milliseconds)),
    plain("ns/token", |case, contestant| {
        let tokens = case.problem.dims.tokens().max(1);
        Some(format!("{:.0}", contestant.median_ns()? / tokens as f64))
    }),
    plain("GFLOP/s", |case, contestant| Some(format!("{:.1}", gflops(case, contestant)?))),
    plain("of peak", |case, contestant| Some(format!("{:.1} %", 100.0 * case.share_of_peak(contestant)?))),
    Column {
        header: "time / first",
        compares: true,
        cell: |case, contestant| Some(interval(ratio(case, contestant)?)),
    },
    plain("largest error", |_, contestant| {
        let error = contestant.normwise_errors.values().copied().max_by(f64::total_cmp)?;
        Some(format!("{error:.1e}{}", if contestant.agrees() { "" } else { " FAILED" }))
    }),
];

const fn plain(header: &'static str, cell: fn(&CaseRecord, &ContestantRecord) -> Option<String>) -> Column {
    Column { header, compares: false, cell }
}

/// Achieved GFLOP/s of a contestant: the two products' operations over its median time.
pub(crate) fn gflops(case: &CaseRecord, contestant: &ContestantRecord) -> Option<f64> {
    Some(case.cost().flops as f64 / contestant.median_ns()?)
}

fn pair<'a>(case: &'a CaseRecord, contestant: &'a ContestantRecord) -> Option<Pair<'a>> {
    let first = case.contestants.first()?;
    Some(Pair { numerator: &contestant.samples_ns, denominator: &first.samples_ns })
}

fn ratio(case: &CaseRecord, contestant: &ContestantRecord) -> Option<Interval> {
    if std::ptr::eq(case.contestants.first()?, contestant) {
        return None;
    }
    ratio_of_medians(pair(case, contestant)?)
}

fn interval(interval: Interval) -> String {
    format!("{:.3} [{:.3}, {:.3}]", interval.estimate, interval.low, interval.high)
}

/// Figures over all cases, one paragraph for shares of the peak and one for ratios.
fn totals(record: &BenchRecord) -> Vec<String> {
    let Some(first) = record.cases.first() else { return Vec::new() };
    let shares: Vec<String> = (0..first.contestants.len()).filter_map(|index| share_line(record, index)).collect();
    let ratios: Vec<String> = (1..first.contestants.len()).filter_map(|index| ratio_line(record, index)).collect();
    [shares, ratios].into_iter().filter(|lines| !lines.is_empty()).map(|lines| lines.join("\n")).collect()
}

fn share_line(record: &BenchRecord, index: usize) -> Option<String> {
    let shares = |at_least: usize| -> Vec<(f64, &str)> {
        let large = record.cases.iter().filter(|case| case.problem.dims.tokens() >= at_least);
        large.filter_map(|case| Some((case.share_of_peak(case.contestants.get(index)?)?, case.name.as_str()))).collect()
    };
    let all = shares(0);
    let mean = geometric_mean(&all.iter().map(|&(share, _)| share).collect::<Vec<_>>())?;
    let label = record.cases.first()?.contestants.get(index)?.label();
    let mut line = format!("{label}: {:.1} % of the FMA peak (geometric mean of {})", 100.0 * mean, cases(all.len()));
    if let Some((share, name)) = shares(LARGE_TOKENS).into_iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
        line.push_str(&format!(", lowest {:.1} % from {LARGE_TOKENS} tokens on ({name})", 100.0 * share));
    }
    Some(line)
}

fn ratio_line(record: &BenchRecord, index: usize) -> Option<String> {
    let ratios: Vec<(Pair<'_>, &str)> = record
        .cases
        .iter()
        .filter_map(|case| Some((pair(case, case.contestants.get(index)?)?, case.name.as_str())))
        .filter(|(pair, _)| ratio_of_medians(*pair).is_some())
        .collect();
    let pairs: Vec<Pair<'_>> = ratios.iter().map(|&(pair, _)| pair).collect();
    let mean = geometric_mean_of_ratios(&pairs)?;
    let lowest = ratios.iter().filter_map(|&(pair, name)| Some((ratio_of_medians(pair)?.estimate, name)));
    let (low, name) = lowest.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let contestants = &record.cases.first()?.contestants;
    Some(format!(
        "time({}) / time({}): {} (geometric mean of {}), lowest {low:.3} ({name})",
        contestants.get(index)?.label(),
        contestants.first()?.label(),
        interval(mean),
        cases(ratios.len()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_as_reviewed() {
        insta::assert_snapshot!(text(&BenchRecord::example()));
    }

    #[test]
    fn a_contestant_that_disagrees_is_named() {
        let mut record = BenchRecord::example();
        record.cases[0].contestants[1].failures = vec!["grad_k_weight: all zeros, the reference is not".to_owned()];
        let text = text(&record);
        assert!(text.contains("1.5e-7 FAILED"), "{text}");
        let last = "s128b2 by pytorch, 2 threads: grad_k_weight: all zeros, the reference is not";
        assert!(text.ends_with(last), "{text}");
    }

    #[test]
    fn an_incomplete_record_says_so_and_needs_no_samples() {
        let mut record = BenchRecord { complete: false, ..BenchRecord::example() };
        for contestant in &mut record.cases[0].contestants {
            contestant.samples_ns.clear();
        }
        record.cases[0].peaks.clear();
        let text = text(&record);
        assert!(text.ends_with("incomplete: stopped before all samples were taken"), "{text}");
        assert!(!text.contains("geometric"), "{text}");
    }
}

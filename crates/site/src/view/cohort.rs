//! Cohorts: the only places where times are set against each other.

use kernelproof_index::Digest;
use kernelproof_index::catalog::{Catalog, CohortEntry, RankingRow, RecordStep, RunStatus};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Interval, Maker, Standing, address};
use crate::plot::{History, HistoryPoint};

/// Runs that may be set against each other, and how they stand.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CohortView {
    /// First digits of the cohort's identity.
    pub slug: String,
    /// Its page.
    pub href: String,
    /// What all its runs have in common, in words.
    pub about: String,
    /// The device's own name.
    pub device: String,
    /// The device's page.
    pub device_href: Option<String>,
    /// Threads that each run was given.
    pub threads: u64,
    /// How operands are rounded.
    pub mode: &'static str,
    /// Version of the protocol.
    pub protocol: String,
    /// The protocol's page, as of the run that holds the record or the latest one.
    pub protocol_href: Option<String>,
    /// Who read the clock, and around what.
    pub timer: String,
    /// Timed calls per case.
    pub timed_calls: u64,
    /// Whether it is of quick runs, which never rank.
    pub quick: bool,
    /// Share by which two runs of one implementation differ; a difference within it is none.
    pub noise_share: f64,
    /// Pairs of runs that the share was taken from; 0 where it is assumed.
    pub noise_pairs: usize,
    /// Runs in it, eligible or not.
    pub runs: usize,
    /// Implementations that rank.
    pub contenders: usize,
    /// Eligible implementations, fastest first; pages that list several cohorts show the first of them.
    pub ranking: Vec<Rival>,
    /// The records it saw, oldest first.
    pub history: Vec<HistoryRow>,
    /// The history as a picture.
    #[serde(skip)]
    pub history_svg: Option<String>,
}

/// One implementation in a ranking.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Rival {
    /// 1 for the fastest; those that cannot be told apart share a rank.
    pub rank: usize,
    /// Whether others have the same rank.
    pub tied: bool,
    /// Who.
    pub implementation: Maker,
    /// Address of the run that the figures are of.
    pub run: String,
    /// Address of this run beside the first one.
    pub compare: Option<String>,
    /// Geometric mean over the suite, in ns.
    pub time_ns: Interval,
    /// Its time over that of the first.
    pub ratio_to_first: Interval,
    /// T_sol / T against measured ceilings, geometric mean over the suite.
    pub share_of_light: Option<f64>,
    /// When it was observed, UTC, RFC 3339.
    pub observed: String,
    /// Eligible runs of the implementation in this cohort.
    pub replicates: usize,
    /// How far the run can be trusted.
    pub trust: Standing,
}

/// A run that took the record.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct HistoryRow {
    /// When it was observed, UTC, RFC 3339.
    pub observed: String,
    /// Who.
    pub implementation: String,
    /// Address of the run.
    pub run: String,
    /// Its time, in ns.
    pub time_ns: Interval,
    /// Its time over that of the record before it.
    pub ratio_to_previous: Option<Interval>,
}

impl CohortView {
    /// A cohort with the first `most` of its ranking.
    pub fn of(catalog: &Catalog, cohort: &CohortEntry, most: usize) -> Self {
        let key = &cohort.key;
        let kept = cohort.ranking.first().map(|row| row.run).or(cohort.runs.last().copied());
        let protocol = kept.and_then(|run| catalog.run(&run)).map(|run| run.facts.protocol_id.short());
        let first = cohort.ranking.first().and_then(|row| slug(catalog, &row.run));
        let mut view = Self {
            slug: cohort.slug.clone(),
            href: address::cohort(&cohort.slug),
            about: about(cohort),
            device: key.device.clone(),
            device_href: catalog.device(&key.device).map(|device| address::device(&device.slug)),
            threads: key.threads,
            mode: key.mode,
            protocol: key.protocol.clone(),
            protocol_href: protocol.map(|digits| address::protocol(&digits)),
            timer: key.timer.clone(),
            timed_calls: key.timed_calls,
            quick: key.quick,
            noise_share: cohort.noise.share,
            noise_pairs: cohort.noise.replicates,
            runs: cohort.runs.len(),
            contenders: cohort.ranking.len(),
            ranking: cohort.ranking.iter().take(most).filter_map(|row| rival(catalog, row, first.as_deref())).collect(),
            history: cohort.history.iter().filter_map(|step| history_row(catalog, step)).collect(),
            history_svg: None,
        };
        view.history_svg = history_svg(catalog, cohort, &view);
        view
    }
}

/// What all runs of a cohort have in common, in words.
pub fn about(cohort: &CohortEntry) -> String {
    let key = &cohort.key;
    let threads = match (key.device_kind.as_str(), key.threads) {
        ("cpu", 1) => ", 1 thread".to_owned(),
        ("cpu", threads) => format!(", {threads} threads"),
        _ => String::new(),
    };
    let quick = if key.quick { ", quick runs" } else { "" };
    format!("{}{threads}, {}{quick}", key.device, key.mode)
}

fn slug(catalog: &Catalog, run: &Digest) -> Option<String> {
    catalog.run(run).map(|run| run.slug.clone())
}

fn rival(catalog: &Catalog, row: &RankingRow, first: Option<&str>) -> Option<Rival> {
    let run = catalog.run(&row.run)?;
    Some(Rival {
        rank: row.rank,
        tied: row.tied,
        implementation: Maker::of_run(catalog, run),
        run: address::run(&run.slug),
        compare: first.filter(|first| *first != run.slug).map(|first| address::compare(first, &run.slug)),
        time_ns: row.time_ns.into(),
        ratio_to_first: row.ratio_to_first.into(),
        share_of_light: run.facts.measured.share_of_light,
        observed: run.facts.observed.clone(),
        replicates: row.replicates,
        trust: Standing::of(catalog, &run.trust),
    })
}

fn history_row(catalog: &Catalog, step: &RecordStep) -> Option<HistoryRow> {
    let run = catalog.run(&step.run)?;
    Some(HistoryRow {
        observed: step.observed.clone(),
        implementation: run.facts.implementation.name.clone(),
        run: address::run(&run.slug),
        time_ns: step.time_ns.into(),
        ratio_to_previous: step.ratio_to_previous.map(Interval::from),
    })
}

/// More dots than this say no more.
const MOST_DOTS: usize = 500;

fn history_svg(catalog: &Catalog, cohort: &CohortEntry, view: &CohortView) -> Option<String> {
    let runs: Vec<_> = cohort.runs.iter().filter_map(|id| catalog.run(id)).collect();
    let eligible: Vec<_> = runs.iter().filter(|run| run.eligibility.status == RunStatus::Eligible).collect();
    let is_record = |id: &Digest| cohort.history.iter().any(|step| step.run == *id);
    let latest = eligible.len().saturating_sub(MOST_DOTS);
    let points: Vec<HistoryPoint<'_>> = eligible
        .into_iter()
        .enumerate()
        .filter_map(|(index, run)| {
            let record = is_record(&run.facts.id);
            let wanted = record || index >= latest;
            Some(HistoryPoint {
                at_s: seconds(&run.facts.observed)?,
                value_ns: run.facts.time_ns().filter(|_| wanted)?.estimate,
                name: &run.facts.implementation.name,
                record,
            })
        })
        .collect();
    let id = format!("history-{}", cohort.slug);
    History { id: &id, title: &format!("Record history: {}", view.about), points: &points }.svg()
}

/// Seconds since 1970 of an RFC 3339 time or a day.
pub(super) fn seconds(time: &str) -> Option<f64> {
    let whole = time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second);
    let of_day = || format!("{time}T00:00:00Z").parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second);
    whole.or_else(of_day).map(|seconds| seconds as f64)
}

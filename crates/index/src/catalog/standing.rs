//! How the eligible runs of one cohort stand: noise, ranking, and the records that fell.

use std::collections::BTreeMap;

use super::cohort::{Noise, RankingRow, RecordStep};
use super::run::{Estimate, RunEntry, RunFacts};
use crate::identity::Digest;

/// What is assumed of a machine on which nothing was run twice: the half-width of A against A that the evaluator's authors
/// saw at T = 1024 was 1.3 to 2.0 %.
const ASSUMED_NOISE: f64 = 0.02;

/// An eligible run and its time.
#[derive(Clone, Copy)]
pub(super) struct Timed<'a> {
    run: &'a RunFacts,
    time_ns: Estimate,
}

impl<'a> Timed<'a> {
    pub(super) fn of(run: &'a RunEntry) -> Option<Self> {
        let time_ns = run.facts.time_ns().filter(|_| run.eligibility.ranks())?;
        Some(Self { run: &run.facts, time_ns })
    }
}

impl Noise {
    /// Pooled over the runs of each implementation: 95 % of the differences between two of them are smaller.
    pub(super) fn of(eligible: &[Timed<'_>]) -> Self {
        let mut groups = BTreeMap::<Digest, Vec<f64>>::new();
        for Timed { run, time_ns } in eligible {
            groups.entry(run.implementation_id).or_default().push(time_ns.estimate.ln());
        }
        let (mut squares, mut freedom) = (0.0, 0);
        for times in groups.values().filter(|times| times.len() > 1) {
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            squares += times.iter().map(|time| (time - mean) * (time - mean)).sum::<f64>();
            freedom += times.len() - 1;
        }
        if freedom == 0 {
            return Self { share: ASSUMED_NOISE, replicates: 0 };
        }
        let deviation = (squares / freedom as f64).sqrt();
        let share = (1.96 * std::f64::consts::SQRT_2 * deviation).exp_m1();
        Self { share: share.max(ASSUMED_NOISE), replicates: freedom }
    }
}

/// The fastest eligible run of each implementation, fastest first. Whoever cannot be told apart from the first of a group
/// belongs to it.
pub(super) fn ranking(eligible: &[Timed<'_>], noise: Noise) -> Vec<RankingRow> {
    let mut best = BTreeMap::<Digest, (Timed<'_>, usize)>::new();
    for timed in eligible {
        let entry = best.entry(timed.run.implementation_id).or_insert((*timed, 0));
        entry.1 += 1;
        if timed.time_ns.estimate < entry.0.time_ns.estimate {
            entry.0 = *timed;
        }
    }
    let mut rows: Vec<(Timed<'_>, usize)> = best.into_values().collect();
    // Stable: equal times keep the order of identities, which is that of the map.
    rows.sort_by(|one, other| one.0.time_ns.estimate.total_cmp(&other.0.time_ns.estimate));
    let Some(first) = rows.first().map(|(timed, _)| timed.time_ns) else { return Vec::new() };
    let (mut ranking, mut leader) = (Vec::<RankingRow>::with_capacity(rows.len()), (first, 1));
    for (index, (Timed { run, time_ns }, replicates)) in rows.into_iter().enumerate() {
        if time_ns.over(leader.0).is_some_and(|ratio| ratio.differs_by(noise.share)) {
            leader = (time_ns, index + 1);
        }
        let ratio = time_ns.over(first).filter(|_| index > 0).unwrap_or(Estimate::exact(1.0));
        ranking.push(RankingRow {
            rank: leader.1,
            tied: false,
            implementation: run.implementation_id,
            run: run.id,
            time_ns,
            ratio_to_first: ratio,
            replicates,
        });
    }
    for group in ranking.chunk_by_mut(|one, other| one.rank == other.rank) {
        let tied = group.len() > 1;
        group.iter_mut().for_each(|row| row.tied = tied);
    }
    ranking
}

/// The fastest eligible run of each implementation on each case, by the case's name.
pub(super) fn best_by_case(eligible: &[Timed<'_>]) -> BTreeMap<String, Vec<Digest>> {
    let mut best = BTreeMap::<&str, BTreeMap<Digest, (f64, Digest)>>::new();
    for Timed { run, .. } in eligible {
        for case in &run.cases {
            let Some(time_ns) = case.time_ns() else { continue };
            let entry = best.entry(&case.name).or_default().entry(run.implementation_id).or_insert((f64::MAX, run.id));
            if time_ns.estimate < entry.0 {
                *entry = (time_ns.estimate, run.id);
            }
        }
    }
    let runs = |(case, best): (&str, BTreeMap<Digest, (f64, Digest)>)| {
        (case.to_owned(), best.into_values().map(|(_, run)| run).collect())
    };
    best.into_iter().map(runs).collect()
}

/// The runs that took the record, in the order of (observed, id) whatever the order in which they arrived. A record falls
/// only to a run that is faster by more than the noise, so an equal time keeps the older one.
pub(super) fn history(eligible: &[Timed<'_>], noise: Noise) -> Vec<RecordStep> {
    let mut steps = Vec::<RecordStep>::new();
    for Timed { run, time_ns } in eligible {
        let ratio = match steps.last() {
            None => None,
            Some(held) => match time_ns.over(held.time_ns) {
                Some(ratio) if ratio.estimate < 1.0 && ratio.differs_by(noise.share) => Some(ratio),
                _ => continue,
            },
        };
        steps.push(RecordStep {
            observed: run.observed.clone(),
            run: run.id,
            implementation: run.implementation_id,
            time_ns: *time_ns,
            ratio_to_previous: ratio,
        });
    }
    steps
}

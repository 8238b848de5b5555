use super::*;
use crate::trust::Trust;
use crate::verify;

#[test]
fn the_example_has_one_of_everything() {
    let (catalog, documents) = Catalog::example_with_documents();
    let operation = &catalog.operations()[0];
    assert_eq!(operation.slug, "qkv-rope-backward");
    let statuses: Vec<RunStatus> = catalog.runs().iter().map(|run| run.eligibility.status).collect();
    for status in [RunStatus::Eligible, RunStatus::Unranked, RunStatus::Failed, RunStatus::Retracted] {
        assert!(statuses.contains(&status), "{status:?}");
    }
    let trusts: Vec<Trust> = catalog.runs().iter().map(|run| run.trust.level).collect();
    for trust in [Trust::Reported, Trust::Reproducible, Trust::Verified, Trust::Replicated] {
        assert!(trusts.contains(&trust), "{trust:?} in {trusts:?}");
    }
    assert!(catalog.runs().iter().any(|run| run.trust.stale.is_some()));
    let cohort = catalog.cohorts_of(operation.id).find(|cohort| cohort.ranking.len() > 2).expect("the CPU's cohort");
    let ranks: Vec<(usize, bool)> = cohort.ranking.iter().map(|row| (row.rank, row.tied)).collect();
    assert_eq!(ranks, [(1, true), (1, true), (3, false)]);
    assert_eq!(catalog.current_records(operation.id).count(), 3);
    assert_eq!(catalog.sources_of(operation.id).next().map(|table| table.rows.len()), Some(2));
    assert!(!catalog.coverage(operation.id).expect("it is known").challenges.is_empty());
    let run = &catalog.runs()[0];
    assert!(evaluation(&documents, &run.facts.id).expect("it is readable").is_some());
    assert_eq!(catalog.run_named(&run.facts.name), Some(run));
    assert_eq!(catalog.run_named(&run.slug), Some(run));
    assert_eq!(catalog.run_named(&run.slug[..7]), None);
    assert!(!catalog.search("rope", 10).is_empty());
}

#[test]
fn the_runs_of_the_example_verify() {
    for recipe in [testing_recipe(false), testing_recipe(true)] {
        let bundle = crate::testing::generate::bundle(&recipe);
        let parent = tempfile::tempdir().expect("a temporary folder");
        let written = crate::bundle::write(&bundle, parent.path()).expect("it is writable");
        let (verification, _) = verify(written.folder()).expect("it is a bundle");
        assert_eq!(verification.findings, Vec::<String>::new());
    }
}

fn testing_recipe(failed: bool) -> crate::testing::generate::Recipe {
    let failed = failed.then_some((3, kernelproof_eval::evaluation::Status::TimedOut));
    crate::testing::generate::Recipe { failed, ..Default::default() }
}

#[test]
fn the_order_of_facts_does_not_show() {
    let (facts, _) = super::example::example_facts();
    let expected = Catalog::build(facts.clone());
    for turn in 0..4 {
        let mut other = facts.clone();
        other.runs.rotate_left(3 * turn);
        other.runs.reverse();
        other.externals.reverse();
        // What is listed twice is there once.
        other.runs.push(other.runs[turn].clone());
        other.corrections.push(other.corrections[0].clone());
        assert_eq!(Catalog::build(other), expected);
    }
}

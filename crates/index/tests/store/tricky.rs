//! Data that a page, a ranking or a history could get wrong.

use kernelproof_eval::evaluation::{Evaluation, Status};
use kernelproof_index::bundle::{Attached, Files, SUMS};
use kernelproof_index::catalog::{CohortEntry, Reason, RunEntry, RunStatus};
use kernelproof_index::correction::Action;
use kernelproof_index::testing::generate::{Recipe, bundle, evaluation};
use kernelproof_index::trust::Trust;
use kernelproof_index::{Bundle, Catalog, Digest};

use crate::support::{Place, assert_finds, recipe};

/// The bundle of an evaluation that was changed after it was made up.
fn changed(recipe: &Recipe, change: impl FnOnce(&mut Evaluation)) -> Bundle {
    let mut evaluation = evaluation(recipe);
    change(&mut evaluation);
    let logs = [("evaluation.log".to_owned(), b"made up\n".to_vec())].into();
    Bundle::of(evaluation, Attached { solution: None, logs }).expect("it can be told")
}

fn run(catalog: &Catalog, id: Digest) -> &RunEntry {
    catalog.run(&id).expect("it is stored")
}

fn only_cohort(catalog: &Catalog) -> &CohortEntry {
    let [cohort] = catalog.cohorts() else { panic!("one cohort, found {}", catalog.cohorts().len()) };
    cohort
}

fn records(cohort: &CohortEntry) -> Vec<Digest> {
    cohort.history.iter().map(|step| step.run).collect()
}

#[test]
fn an_equal_time_keeps_the_older_record_and_shares_the_rank() {
    let place = Place::new();
    let same = |name: &str, day| Recipe { seed: 5, ..recipe(name, day, 30_000.0) };
    let older = place.add(&same("older", 1));
    place.add(&same("younger", 2));
    // At the very same moment the smaller identity is the older one.
    let moment = [place.add(&same("twin-a", 3)), place.add(&same("twin-b", 3))];
    place.import();
    let catalog = place.catalog();
    let cohort = only_cohort(&catalog);
    assert_eq!(records(cohort), [older]);
    assert!(cohort.ranking.iter().all(|row| row.rank == 1 && row.tied), "{:?}", cohort.ranking);
    let order: Vec<Digest> = catalog.runs().iter().map(|run| run.facts.id).filter(|id| moment.contains(id)).collect();
    assert!(order.is_sorted());
}

#[test]
fn a_late_arrival_is_placed_where_it_belongs() {
    let place = Place::new();
    let (first, last) = (place.add(&recipe("a", 1, 30_000.0)), place.add(&recipe("c", 20, 20_000.0)));
    place.import();
    assert_eq!(records(only_cohort(&place.catalog())), [first, last]);
    let late = place.add(&recipe("b", 10, 25_000.0));
    place.import();
    assert_eq!(records(only_cohort(&place.catalog())), [first, late, last]);
    // One that was faster before all others had run takes all their records.
    let earliest = Recipe { observed: "2025-12-31T23:59:59.999999999Z".to_owned(), ..recipe("z", 1, 10_000.0) };
    let earliest = place.add(&earliest);
    place.import();
    assert_eq!(records(only_cohort(&place.catalog())), [earliest]);
}

#[test]
fn moments_of_different_precision_are_in_their_order() {
    let place = Place::new();
    let at = |name: &str, observed: &str, scale| Recipe { observed: observed.to_owned(), ..recipe(name, 1, scale) };
    // As texts the second would come first.
    let first = place.add(&at("a", "2026-01-01T00:00:00Z", 30_000.0));
    let second = place.add(&at("b", "2026-01-01T00:00:00.5Z", 20_000.0));
    place.import();
    assert_eq!(records(only_cohort(&place.catalog())), [first, second]);
}

#[test]
fn a_retracted_record_stays_visible_and_the_one_before_holds_again() {
    let place = Place::new();
    let (first, wrong) = (place.add(&recipe("a", 1, 30_000.0)), place.add(&recipe("b", 2, 20_000.0)));
    place.import();
    assert_eq!(records(only_cohort(&place.catalog())), [first, wrong]);
    let correction = place.correct(wrong, Action::Retract, "it cached its output");
    place.import();
    let catalog = place.catalog();
    assert_eq!(records(only_cohort(&catalog)), [first]);
    let entry = run(&catalog, wrong);
    assert_eq!(entry.eligibility.status, RunStatus::Retracted);
    assert_eq!(entry.eligibility.reasons, [Reason::Retracted { why: "it cached its output".to_owned(), correction }]);
    assert!(only_cohort(&catalog).ranking.iter().all(|row| row.run != wrong));
}

#[test]
fn a_superseded_run_names_the_other_one() {
    let place = Place::new();
    let (old, new) = (place.add(&recipe("a", 1, 30_000.0)), place.add(&recipe("a", 2, 31_000.0)));
    place.correct(old, Action::Supersede { by: new }, "measured again");
    place.import();
    let catalog = place.catalog();
    assert_eq!(run(&catalog, old).eligibility.status, RunStatus::Superseded);
    assert_eq!(only_cohort(&catalog).ranking[0].run, new);
}

#[test]
fn a_correction_of_nothing_is_refused() {
    let place = Place::new();
    place.correct(Digest::of(b"none"), Action::Retract, "there is none");
    assert_finds(&place.problems(), "spec.target: no run sha256:");
}

#[test]
fn a_passed_case_of_0_ns_is_refused_and_a_failed_one_never_ranks() {
    let place = Place::new();
    place.add_bundle(&changed(&recipe("zero", 1, 30_000.0), |run| run.cases[2].samples_ns[0] = 0));
    assert_finds(&place.problems(), "s128b32.samples_ns: found a sample of 0 ns, expected time");
    let place = Place::new();
    let failed = Recipe { failed: Some((2, Status::ImpossibleTime)), ..recipe("fast", 1, 100.0) };
    let failed = place.add(&failed);
    let right = place.add(&recipe("right", 2, 30_000.0));
    place.import();
    let catalog = place.catalog();
    let entry = run(&catalog, failed);
    assert_eq!(entry.eligibility.status, RunStatus::Failed);
    let reason = entry.eligibility.reasons[0].to_string();
    assert_eq!(reason, "case s128b32 did not pass: impossible-time: made up");
    assert_eq!(entry.facts.time_ns(), None);
    assert_eq!(records(only_cohort(&catalog)), [right]);
}

#[test]
fn every_reason_not_to_rank_is_given() {
    let place = Place::new();
    let quick = Recipe { quick: true, cases: 3, ..recipe("quick", 1, 30_000.0) };
    let odd = changed(&quick, |run| {
        run.protocol.evaluator.profile = "debug".to_owned();
        let telemetry = &mut run.cases[0].telemetry;
        (telemetry[0].busy_ticks, telemetry[0].stolen_ticks) = (Some(0), Some(0));
        (telemetry[1].busy_ticks, telemetry[1].stolen_ticks) = (Some(90), Some(10));
    });
    let id = place.add_bundle(&odd);
    place.import();
    let catalog = place.catalog();
    let eligibility = &run(&catalog, id).eligibility;
    assert_eq!(eligibility.status, RunStatus::Unranked);
    let reasons: Vec<String> = eligibility.reasons.iter().map(ToString::to_string).collect();
    for expected in ["quick", "has 3 of the suite's 16 cases", "optimised build", "s128b2 ran while others"] {
        assert_finds(&reasons, expected);
    }
    assert_eq!(only_cohort(&catalog).ranking, []);
}

#[test]
fn a_run_without_a_licence_is_reported_and_ranks() {
    let place = Place::new();
    let id = place.add(&Recipe { licence: None, ..recipe("a", 1, 30_000.0) });
    place.add(&Recipe { licence: None, ..recipe("a", 2, 30_000.0) });
    place.import();
    let catalog = place.catalog();
    let entry = run(&catalog, id);
    assert_eq!((entry.trust.level, entry.eligibility.ranks()), (Trust::Reported, true));
    assert_eq!(entry.trust.missing, ["not known: its licence"]);
    assert_eq!(catalog.implementations()[0].availability.missing, ["no licence"]);
}

#[test]
fn two_protocols_are_two_cohorts_without_a_ratio() {
    let place = Place::new();
    let one = place.add(&recipe("a", 1, 30_000.0));
    let other = place.add(&Recipe { protocol: "example.protocol/2".to_owned(), ..recipe("a", 2, 20_000.0) });
    place.import();
    let catalog = place.catalog();
    assert_eq!(catalog.cohorts().len(), 2);
    assert_eq!(catalog.current_records(catalog.operations()[0].id).count(), 2);
    let comparison = catalog.compare(&[one, other]).expect("both are known");
    let compared = &comparison.others[0];
    assert_eq!((compared.ratio, compared.cases.len()), (None, 0));
    let expected = "no ratio across cohorts; they differ in protocol: example.protocol/1 and example.protocol/2";
    assert_eq!(compared.sentence.as_deref(), Some(expected));
    assert_eq!(catalog.compare(&[one, Digest::of(b"none")]), None);
}

#[test]
fn one_cohort_has_ratios() {
    let place = Place::new();
    let (one, other) = (place.add(&recipe("a", 1, 30_000.0)), place.add(&recipe("b", 2, 45_000.0)));
    place.import();
    let comparison = place.catalog().compare(&[one, other]).expect("both are known");
    let compared = &comparison.others[0];
    let ratio = compared.ratio.expect("one cohort");
    assert!(
        (ratio.estimate - 1.5).abs() < 0.01 && ratio.low < ratio.estimate && ratio.estimate < ratio.high,
        "{ratio:?}"
    );
    assert_eq!((compared.distinguishable, compared.cases.len(), &compared.sentence), (Some(true), 16, &None));
    assert_eq!(compared.circumstances[0].what, "implementation");
}

#[test]
fn the_same_run_in_two_folders_is_one() {
    let place = Place::new();
    place.add(&recipe("a", 1, 30_000.0));
    let runs = place.records_path().join("runs");
    let from = std::fs::read_dir(&runs).expect("it is there").next().expect("one run").expect("readable").path();
    let to = runs.join("copy");
    std::fs::create_dir(&to).expect("it is writable");
    for entry in std::fs::read_dir(from).expect("it is there") {
        let path = entry.expect("it is readable").path();
        std::fs::copy(&path, to.join(path.file_name().expect("it has a name"))).expect("it is writable");
    }
    let report = place.import();
    assert_eq!((report.runs.new, report.runs.already), (1, 1));
    assert_eq!(place.catalog().runs().len(), 1);
}

#[test]
fn an_unknown_device_is_shown_and_never_ranks() {
    let place = Place::new();
    let id = place.add(&Recipe { device: "unknown".to_owned(), ..recipe("a", 1, 30_000.0) });
    place.import();
    let catalog = place.catalog();
    assert_eq!(run(&catalog, id).eligibility.reasons, [Reason::UnknownDevice]);
    assert_eq!(catalog.devices()[0].slug, "unknown");
}

#[test]
fn a_million_samples_are_stored_and_summed_up() {
    let place = Place::new();
    let calls = 62_500;
    let id = place.add(&Recipe { timed_calls: calls, ..recipe("a", 1, 30_000.0) });
    place.import();
    let catalog = place.catalog();
    let facts = &run(&catalog, id).facts;
    let samples: u64 = facts.cases.iter().filter_map(|case| case.samples).map(|samples| samples.count).sum();
    assert_eq!(samples, 1_000_000);
    let store = place.store();
    let whole = kernelproof_index::catalog::evaluation(&store, &id).expect("it is readable").expect("it is stored");
    assert_eq!(whole.cases[0].samples_ns.len(), calls as usize);
    let archive = kernelproof_index::intake::pack(&Files::new(store.bundle_files(&id).expect("it is readable")));
    let sender = kernelproof_index::token::Submitter::known_as("ada");
    let accepted =
        kernelproof_index::intake::submit(&store, &sender, &archive.expect("it fits"), "2026-02-01T00:00:00Z");
    assert!(accepted.expect("it is right").already);
}

/// What an attacker would like a page to show.
const HTML: &str = "<script>alert(\"1\")</script>&amp;'\u{202e}\u{1f600} Ω 名前 \u{0}";

#[test]
fn html_and_unicode_in_every_text_are_kept_as_they_are() {
    let place = Place::new();
    let odd = changed(&recipe("a", 1, 30_000.0), |run| {
        let implementation = &mut run.implementation;
        implementation.name = HTML.to_owned();
        implementation.author = Some(HTML.to_owned());
        implementation.languages = vec![HTML.to_owned()];
        implementation.licence = Some(HTML.to_owned());
        implementation.install = Some(HTML.to_owned());
        implementation.entry_point = HTML.to_owned();
        implementation.source.repository = Some(HTML.to_owned());
        implementation.source.commit = Some(HTML.to_owned());
        implementation.runtime.insert(HTML.to_owned(), HTML.to_owned());
        implementation.device = HTML.to_owned();
        run.environment.device = HTML.to_owned();
        run.environment.cpu = HTML.to_owned();
        run.environment.os = HTML.to_owned();
        run.protocol.version = HTML.to_owned();
        run.protocol.timer = HTML.to_owned();
        run.command = vec![HTML.replace('/', "")];
        run.baseline = Some(HTML.to_owned());
        run.cases[0].status = Status::WrongValues;
        run.cases[0].detail = Some(HTML.to_owned());
        run.cases[0].samples_ns.clear();
    });
    let id = place.add_bundle(&odd);
    place.correct(id, Action::Retract, HTML);
    place.import();
    let catalog = place.catalog();
    let entry = run(&catalog, id);
    assert_eq!(entry.facts.implementation.name, HTML);
    assert_eq!(entry.facts.cases[0].detail.as_deref(), Some(HTML));
    let slugs =
        [&entry.slug, &catalog.implementations()[0].slug, &catalog.devices()[0].slug, &catalog.cohorts()[0].slug];
    for slug in slugs {
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        assert!(!slug.is_empty() && slug.chars().all(plain), "{slug}");
    }
    assert_eq!(catalog.search("名前", 10).len(), 3, "the implementation, its device and its run");
    // In JSON nothing of it can end a script element's text or steer a terminal unnoticed: it is one escaped string.
    let json = serde_json::to_string(entry).expect("it is plain data");
    assert!(!json.contains('\u{0}'));
}

#[test]
fn a_number_that_is_a_text_is_refused() {
    let place = Place::new();
    let files = bundle(&recipe("a", 1, 30_000.0)).files().expect("it is plain data");
    let folder = place.records_path().join("runs/smuggled");
    std::fs::create_dir_all(&folder).expect("it is writable");
    let text = String::from_utf8(files.all()["run.json"].clone()).expect("it is text");
    let at = text.find("\"samples_ns\":[").expect("it has samples") + "\"samples_ns\":[".len();
    let end = at + text[at..].find(',').expect("several");
    for smuggled in ["\"NaN\"", "NaN", "1e999", "-1", "1.5", "9007199254740993", "null"] {
        let mut all = files.all().clone();
        all.insert("run.json".to_owned(), format!("{}{smuggled}{}", &text[..at], &text[end..]).into_bytes());
        let altered = Files::new(all);
        for (name, text) in altered.all() {
            std::fs::write(folder.join(name), text).expect("it is writable");
        }
        std::fs::write(folder.join(SUMS), altered.sums()).expect("it is writable");
        assert_finds(&place.problems(), "run.json: ");
    }
}

#[test]
fn a_record_that_was_not_run_on_the_current_driver_says_so() {
    let place = Place::new();
    let on = |name: &str, day, driver: &str| Recipe { driver: Some(driver.to_owned()), ..recipe(name, day, 30_000.0) };
    let old = place.add(&on("a", 1, "570.1"));
    place.import();
    assert_eq!(run(&place.catalog(), old).trust.stale, None);
    let other = place.add(&on("b", 2, "580.2"));
    place.import();
    let stale = run(&place.catalog(), old).trust.stale.clone().expect("the driver is another one now");
    assert_eq!(stale.to_string(), "not verified again on 580.2 (it ran on 570.1)");
    assert_eq!(stale.seen_in, other);
    // The same implementation runs again on the new driver with the same result: the old record is fresh, and verified.
    place.add(&on("a", 3, "580.2"));
    place.import();
    let catalog = place.catalog();
    let entry = run(&catalog, old);
    assert_eq!((&entry.trust.stale, entry.trust.level), (&None, Trust::Verified));
}

#[test]
fn a_second_machine_replicates() {
    let place = Place::new();
    let id = place.add(&recipe("a", 1, 30_000.0));
    place.add_bundle(&changed(&recipe("a", 2, 30_000.0), |run| run.environment.memory_bytes *= 2));
    place.import();
    let catalog = place.catalog();
    let trust = &run(&catalog, id).trust;
    assert_eq!((trust.level, trust.missing.len()), (Trust::Replicated, 0));
    assert_finds(&trust.because, "on a second machine");
}

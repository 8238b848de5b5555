//! Filled from records: idempotent, whole, and rebuilt as the same.

use std::fs;

use kernelproof_index::catalog::{Documents as _, RunStatus};
use kernelproof_index::check::check;
use kernelproof_index::import::{Mode, Records, import};
use kernelproof_index::store::StoreError;
use kernelproof_index::{Digest, Store};

use crate::support::{Place, assert_finds, committed, recipe};

#[test]
fn the_committed_records_make_an_index() {
    let place = Place::new();
    let store = place.store();
    let records = Records::at(&committed()).expect("they are records");
    let report = import(&store, &records, Mode::Add, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error:?}"));
    assert!(report.runs.new >= 6, "{report:?}");
    let catalog = store.catalog().expect("it is readable");
    let operation = catalog.operation("064_multi_head_qkv_projection_with_rope_backward").expect("it has this alias");
    assert_eq!(operation.slug, "qkv-rope-backward");
    assert!(catalog.current_records(operation.id).count() >= 1);
    assert!(catalog.runs().iter().any(|run| run.eligibility.status == RunStatus::Eligible));
    let findings = check(&store, Some(&records), &mut |_, _| {}).expect("it is readable");
    assert_eq!((findings.wrong, findings.differs), (Vec::new(), Vec::new()));
}

#[test]
fn importing_twice_changes_nothing() {
    let place = Place::new();
    let run = place.add(&recipe("one", 1, 30_000.0));
    assert_eq!(place.import().runs.new, 1);
    let before = place.catalog();
    let report = place.import();
    assert_eq!((report.runs.new, report.runs.already, report.definitions.new), (0, 1, 0));
    assert_eq!(place.catalog(), before, "and the generation is the same");
    place.add(&recipe("one", 2, 30_000.0));
    place.import();
    assert!(place.catalog().generation() > before.generation());
    let store = place.store();
    let text = store.file(&run, "run.json").expect("it is readable").expect("it is stored");
    assert_eq!(Digest::of(&text), run);
    assert_eq!(store.file(&run, "none.json").expect("it is readable"), None);
}

#[test]
fn one_bad_bundle_refuses_everything_and_all_that_is_wrong_is_named() {
    let place = Place::new();
    for day in 1..4 {
        place.add(&recipe("one", day, 30_000.0));
    }
    let runs = place.records_path().join("runs");
    let mut folders: Vec<_> =
        fs::read_dir(&runs).expect("it is there").map(|entry| entry.expect("readable").path()).collect();
    folders.sort();
    let log = folders[0].join("evaluation.log");
    fs::write(&log, "altered").expect("it is writable");
    fs::remove_file(folders[1].join("run.json")).expect("it is there");
    place.write("external/bad.jsonl", "{\"apiVersion\": 1}\n");
    place.write("corrections/readme.txt", "none");
    let problems = place.problems();
    assert_eq!(problems.len(), 4, "{problems:#?}");
    assert_finds(&problems, "evaluation.log: was altered");
    assert_finds(&problems, "run.json: is missing");
    assert_finds(&problems, "bad.jsonl:1: apiVersion");
    assert_finds(&problems, "readme.txt: is no .json file");
    assert_eq!(place.catalog().runs().len(), 0);
    assert_eq!(place.store().generation().expect("it is readable"), 0);
}

#[test]
fn folders_that_are_being_written_are_left_out() {
    let place = Place::new();
    place.add(&recipe("one", 1, 30_000.0));
    fs::create_dir(place.records_path().join("runs/.partial-x")).expect("it is writable");
    assert_eq!(place.import().runs.new, 1);
}

#[test]
fn a_rebuild_is_the_same_as_a_fresh_import_and_forgets_what_is_gone() {
    let place = Place::new();
    place.add(&recipe("one", 1, 30_000.0));
    place.import();
    fs::remove_dir_all(place.records_path().join("runs")).expect("it is there");
    let kept = place.add(&recipe("two", 2, 31_000.0));
    place.import();
    assert_eq!(place.catalog().runs().len(), 2, "an import forgets nothing");
    let findings = check(&place.store(), Some(&place.records()), &mut |_, _| {}).expect("it is readable");
    assert_finds(&findings.differs, "is no longer in the records");
    let before = place.catalog().generation();
    place.try_import(Mode::Rebuild).expect("all is right");
    let catalog = place.catalog();
    assert_eq!(catalog.runs().iter().map(|run| run.facts.id).collect::<Vec<_>>(), [kept]);
    assert!(catalog.generation() > before);
    let other = Place::new();
    other.add(&recipe("two", 2, 31_000.0));
    other.import();
    assert_eq!(other.catalog().runs(), catalog.runs());
}

#[test]
fn a_rebuild_that_fails_leaves_the_old_index() {
    let place = Place::new();
    place.add(&recipe("one", 1, 30_000.0));
    place.import();
    let before = place.catalog();
    place.write("operations/bad.json", "{}");
    place.try_import(Mode::Rebuild).expect_err("an operation is bad");
    assert_eq!(place.catalog(), before);
}

#[test]
fn metadata_may_be_edited_and_the_last_one_holds() {
    let place = Place::new();
    place.import();
    let path = place.records_path().join("operations/qkv-rope-backward.json");
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text.replacen("Backward pass", "Other title: backward pass", 1)).expect("it is writable");
    place.import();
    let catalog = place.catalog();
    assert_eq!(catalog.operations().len(), 1);
    assert!(catalog.operations()[0].title.starts_with("Other title"));
}

#[test]
fn databases_of_others_and_of_later_versions_are_left_alone() {
    let place = Place::new();
    let path = place.path().join("other.sqlite");
    let connection = rusqlite::Connection::open(&path).expect("it opens");
    connection.execute_batch("CREATE TABLE notes (text)").expect("it is writable");
    drop(connection);
    let error = Store::open(&path).expect_err("it is not ours");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    drop(place.store());
    let later = rusqlite::Connection::open(place.path().join("index.sqlite")).expect("it opens");
    later.pragma_update(None, "user_version", 99).expect("it is writable");
    drop(later);
    let error = Store::open(&place.path().join("index.sqlite")).expect_err("it is too new");
    assert!(error.to_string().contains("has schema version 99, this program knows up to 1"), "{error}");
    fs::write(place.path().join("text.sqlite"), "no database at all, but long enough to be read as one").expect("it");
    assert!(Store::open(&place.path().join("text.sqlite")).is_err());
    assert!(matches!(Store::open_existing(&place.path().join("none")), Err(StoreError::Missing { .. })));
    let refused = Records::at(place.path()).expect_err("it has no operations").to_string();
    assert!(refused.contains("is no folder of records"), "{refused}");
}

#[test]
fn what_is_not_imported_yet_is_a_difference_and_no_fault() {
    let place = Place::new();
    let run = place.add(&recipe("one", 1, 30_000.0));
    place.import();
    let differs = || {
        let findings = check(&place.store(), Some(&place.records()), &mut |_, _| {}).expect("it is readable");
        assert_eq!(findings.wrong, Vec::<String>::new());
        findings.differs
    };
    assert_eq!(differs(), Vec::<String>::new());
    place.add(&recipe("one", 2, 30_000.0));
    place.correct(run, kernelproof_index::correction::Action::Retract, "a neighbour");
    let seed = fs::read_to_string(committed().join("external/kernelindex-2026-08-24.jsonl")).expect("it is committed");
    place.write("external/seed.jsonl", &seed);
    assert_eq!(differs().len(), 31, "a run, a correction and 29 figures of others");
    place.import();
    assert_eq!(differs(), Vec::<String>::new());
}

#[test]
fn many_that_open_and_fill_one_file_at_once_wait_for_each_other() {
    let place = Place::new();
    for day in 1..4 {
        place.add(&recipe("one", day, 30_000.0));
    }
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                place.import();
                assert_eq!(place.catalog().runs().len(), 3);
            });
        }
    });
    assert_eq!(place.store().generation().expect("it is readable"), 1, "one of them did it");
}

#[test]
fn an_altered_blob_and_altered_facts_are_found() {
    let place = Place::new();
    let run = place.add(&recipe("one", 1, 30_000.0));
    place.import();
    let file = place.path().join("index.sqlite");
    let alter = |sql: &str| {
        let connection = rusqlite::Connection::open(&file).expect("it opens");
        // Whoever owns the file can drop the triggers; digests still tell.
        connection.execute_batch("DROP TRIGGER run_keeps; DROP TRIGGER blob_keeps;").ok();
        assert!(connection.execute(sql, []).expect("it is writable") > 0);
    };
    alter("UPDATE run SET facts = replace(facts, '\"matched\":1.0', '\"matched\":0.5')");
    let findings = check(&place.store(), None, &mut |_, _| {}).expect("it is readable");
    assert_finds(&findings.wrong, "the stored facts are not those of the bundle");
    alter("UPDATE blob SET deflated = substr(deflated, 1, length(deflated) - 9)");
    let findings = check(&place.store(), None, &mut |_, _| {}).expect("it is readable");
    assert_finds(&findings.wrong, "blob sha256:");
    assert!(place.store().file(&run, "run.json").is_err());
}

#[test]
fn readers_see_all_runs_while_the_index_is_rebuilt() {
    let place = Place::new();
    for day in 1..7 {
        place.add(&recipe("one", day, 30_000.0));
    }
    place.import();
    let reader = place.store();
    std::thread::scope(|scope| {
        let rebuild = scope.spawn(|| place.try_import(Mode::Rebuild).expect("all is right"));
        let mut looks = 0;
        while !rebuild.is_finished() || looks == 0 {
            assert_eq!(reader.catalog().expect("it is readable").runs().len(), 6);
            looks += 1;
        }
    });
    assert_eq!(reader.generation().expect("it is readable"), 2);
}

//! The export: the same bytes for the same contents, read back as the same, and every change to it found.

use std::io::Cursor;

use kernelproof_index::Store;
use kernelproof_index::correction::Action;
use kernelproof_index::export::export;
use kernelproof_index::import::{ImportError, import_export};
use kernelproof_index::intake::{pack, submit};
use kernelproof_index::testing::generate::bundle;
use kernelproof_index::token::Submitter;

use crate::support::{Place, committed, recipe};

fn exported(store: &Store) -> Vec<u8> {
    let mut text = Vec::new();
    export(store, &mut text, &mut |_, _| {}).expect("it is writable");
    text
}

fn filled(order: &[u32]) -> Place {
    let place = Place::new();
    for day in order {
        place.add(&recipe("one", *day, 30_000.0));
        place.import();
    }
    let sent = bundle(&recipe("sent", 20, 40_000.0));
    let archive = pack(&sent.files().expect("it is plain data")).expect("it is small");
    submit(&place.store(), &Submitter::known_as("ada"), &archive, "2026-01-21T00:00:00Z").expect("it is right");
    let external = std::fs::read_to_string(committed().join("external/kernelindex-2026-08-24.jsonl"));
    place.write("external/seed.jsonl", &external.expect("it is committed"));
    let target = place.add(&recipe("one", 1, 30_000.0));
    place.correct(target, Action::Retract, "a neighbour");
    place.import();
    place
}

fn import_of(text: &[u8]) -> (Place, Result<(), ImportError>) {
    let place = Place::new();
    let result = import_export(&place.store(), &mut Cursor::new(text), &mut |_| {});
    (place, result.map(drop))
}

#[test]
fn the_order_of_arrival_does_not_show_and_a_copy_is_the_same() {
    let (one, other) = (filled(&[1, 2, 3]), filled(&[3, 1, 2]));
    let text = exported(&one.store());
    assert_eq!(text, exported(&other.store()));
    let (copy, result) = import_of(&text);
    result.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(exported(&copy.store()), text);
    let (one, copy) = (one.catalog(), copy.catalog());
    assert_eq!(one.runs(), copy.runs());
    assert_eq!(one.cohorts(), copy.cohorts());
    assert_eq!(one.sources(), copy.sources());
    assert_eq!(one.corrections(), copy.corrections());
}

#[test]
fn an_altered_or_truncated_export_is_refused_whole() {
    let text = exported(&filled(&[1]).store());
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let mut wrong: Vec<Vec<u8>> = (0..lines.len()).map(|count| lines[..count].concat()).collect();
    wrong.push([&text[..], b"{}\n"].concat());
    wrong.push(lines.iter().skip(1).copied().collect::<Vec<_>>().concat());
    wrong.push([&lines[..2], &lines[3..]].concat().concat());
    for place in (0..text.len()).step_by(text.len() / 40) {
        let mut altered = text.clone();
        altered[place] ^= 1;
        wrong.push(altered);
    }
    let place = Place::new();
    let store = place.store();
    for text in wrong {
        import_export(&store, &mut Cursor::new(text), &mut |_| {}).expect_err("it is altered");
        assert_eq!(store.generation().expect("it is readable"), 0);
    }
}

#[test]
fn logs_need_not_be_text() {
    let place = Place::new();
    let mut odd = bundle(&recipe("odd", 1, 30_000.0));
    odd.logs.insert("evaluation.log".to_owned(), vec![0, 0xff, 0xfe, b'\n']);
    let attached = kernelproof_index::bundle::Attached { solution: None, logs: odd.logs.clone() };
    let evaluation = odd.run.spec.evaluation.clone();
    place.add_bundle(&kernelproof_index::Bundle::of(evaluation, attached).expect("it is consistent"));
    place.import();
    let text = exported(&place.store());
    let (copy, result) = import_of(&text);
    result.unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(exported(&copy.store()), text);
}

//! Submissions: stored once, as what their facts deserve, and refused with a reason when anything is wrong.

use kernelproof_index::catalog::Origin;
use kernelproof_index::import::Mode;
use kernelproof_index::intake::{MOST_ARCHIVE_BYTES, Refused, pack, submit};
use kernelproof_index::testing::generate::{Recipe, bundle};
use kernelproof_index::token::{Submitter, Token};
use kernelproof_index::trust::Trust;
use proptest::prelude::*;

use crate::support::{Place, recipe};

const RECEIVED: &str = "2026-02-01T00:00:00Z";

fn archive(recipe: &Recipe) -> Vec<u8> {
    pack(&bundle(recipe).files().expect("it is plain data")).expect("it is small")
}

fn ada() -> Submitter {
    Submitter::known_as("ada")
}

/// A place that knows the operation and the suite.
fn place() -> Place {
    let place = Place::new();
    place.import();
    place
}

/// Why an archive is refused.
#[track_caller]
fn refused(archive: &[u8]) -> String {
    let place = place();
    let refused = submit(&place.store(), &ada(), archive, RECEIVED).expect_err("something is wrong");
    assert!(!refused.is_ours(), "{refused}");
    assert_eq!(place.catalog().runs().len(), 0);
    refused.to_string()
}

#[test]
fn the_same_submission_twice_is_one_run() {
    let place = place();
    let archive = archive(&recipe("one", 1, 30_000.0));
    let first = submit(&place.store(), &ada(), &archive, RECEIVED).expect("it is right");
    assert_eq!((first.already, first.standing.trust), (false, Trust::Reproducible));
    let generation = place.store().generation().expect("it is readable");
    let again =
        submit(&place.store(), &Submitter::known_as("eve"), &archive, "2026-03-01T00:00:00Z").expect("it is no error");
    assert!(again.already);
    assert_eq!(place.store().generation().expect("it is readable"), generation);
    let catalog = place.catalog();
    let run = catalog.run(&first.run).expect("it is stored");
    let origin = Origin::Submission { submitter: "ada".to_owned(), received: RECEIVED.to_owned() };
    assert_eq!((&run.facts.origin, run.trust.level), (&origin, Trust::Reproducible));
}

#[test]
fn no_number_of_submissions_makes_a_run_verified() {
    let place = place();
    for (day, who) in [(1, "ada"), (2, "eve"), (3, "eve"), (4, "bob")] {
        let archive = archive(&recipe("one", day, 30_000.0));
        submit(&place.store(), &Submitter::known_as(who), &archive, RECEIVED).expect("it is right");
    }
    let catalog = place.catalog();
    assert!(catalog.runs().iter().all(|run| run.trust.level == Trust::Reproducible));
    // One run of this project's own that agrees makes all of them replicated; one that does not agree changes nothing.
    place.add(&recipe("one", 9, 45_000.0));
    place.import();
    assert!(place.catalog().runs().iter().all(|run| run.trust.level == Trust::Reproducible));
    place.add(&recipe("one", 10, 30_000.0));
    place.import();
    let replicated = place.catalog().runs().iter().filter(|run| run.trust.level == Trust::Replicated).count();
    assert_eq!(replicated, 5);
}

#[test]
fn a_submission_without_a_licence_is_reported() {
    let place = place();
    let unlicensed = Recipe { licence: None, ..recipe("one", 1, 30_000.0) };
    let accepted = submit(&place.store(), &ada(), &archive(&unlicensed), RECEIVED).expect("it is consistent");
    assert_eq!(accepted.standing.trust, Trust::Reported);
    assert_eq!(accepted.standing.missing, ["its licence"]);
}

#[test]
fn submissions_survive_a_rebuild_and_become_ours_when_committed() {
    let place = place();
    let sent = recipe("one", 1, 30_000.0);
    let run = submit(&place.store(), &ada(), &archive(&sent), RECEIVED).expect("it is right").run;
    let token = Token::of([7; 32]);
    place.store().add_token(&token, "ada", RECEIVED).expect("it is writable");
    let report = place.try_import(Mode::Rebuild).expect("all is right");
    assert_eq!(report.submissions, 1);
    assert!(matches!(place.catalog().run(&run).expect("it is kept").facts.origin, Origin::Submission { .. }));
    assert_eq!(place.store().submitter(&token).expect("it is readable"), Some(ada()));
    assert_eq!(place.add(&sent), run);
    place.import();
    assert_eq!(place.catalog().run(&run).expect("it is kept").facts.origin, Origin::Records);
    place.try_import(Mode::Rebuild).expect("all is right");
    assert_eq!(place.catalog().run(&run).expect("it is kept").facts.origin, Origin::Records);
}

#[test]
fn tokens_are_known_by_their_hash_and_can_be_taken_back() {
    let place = place();
    let store = place.store();
    let token = Token::of([0xa5; 32]);
    store.add_token(&token, "ada", RECEIVED).expect("it is writable");
    assert_eq!(Token::parse(token.reveal()).as_ref(), Ok(&token));
    assert_eq!(store.submitter(&token).expect("it is readable"), Some(ada()));
    assert_eq!(store.submitter(&Token::of([1; 32])).expect("it is readable"), None);
    for wrong in ["", "kernelproof_", "a5a5", &token.reveal().to_uppercase(), &format!("{} ", token.reveal())] {
        assert!(Token::parse(wrong).is_err(), "{wrong}");
    }
    assert_eq!(format!("{token:?}"), "Token(…)");
    drop(store);
    let file = std::fs::read(place.path().join("index.sqlite")).expect("it is readable");
    let needle = token.reveal().as_bytes();
    assert!(!file.windows(needle.len()).any(|window| window == needle), "the token is in the file");
    let store = place.store();
    assert_eq!(store.revoke_tokens("ada", RECEIVED, "lost").expect("it is writable"), 1);
    assert_eq!(store.revoke_tokens("ada", RECEIVED, "lost").expect("it is writable"), 0);
    assert_eq!(store.submitter(&token).expect("it is readable"), None);
}

#[test]
fn altered_and_inconsistent_bundles_are_refused_with_the_file() {
    let files = bundle(&recipe("one", 1, 30_000.0)).files().expect("it is plain data");
    let with = |name: &str, from: &str, to: &str| {
        let text = String::from_utf8(files.all()[name].clone()).expect("it is text");
        let mut all = files.all().clone();
        all.insert(name.to_owned(), text.replacen(from, to, 1).into_bytes());
        pack(&kernelproof_index::bundle::Files::new(all)).expect("it is small")
    };
    assert!(
        refused(&with("figures.json", "\"passed\": 16", "\"passed\": 17"))
            .contains("figures.json: is not what the samples give")
    );
    assert!(
        refused(&with("environment.json", "Example CPU", "Faster CPU")).contains("spec.environment: found sha256:")
    );
    let unknown = with("suite.json", "qkv-rope-backward", "another suite");
    assert!(refused(&unknown).contains("spec.suite: found sha256:"));
}

#[test]
fn a_suite_that_the_index_does_not_have_is_refused() {
    let empty = Place::new();
    let refusal = submit(&empty.store(), &ada(), &archive(&recipe("one", 1, 30_000.0)), RECEIVED);
    let refusal = refusal.expect_err("nothing is known yet");
    assert!(refusal.to_string().starts_with("operation.json: found sha256:"), "{refusal}");
}

fn tar(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, kind, contents) in entries {
        let mut header = tar::Header::new_gnu();
        // Not through `set_path`, which refuses what an attacker writes.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        if *kind == tar::EntryType::Symlink {
            header.set_link_name("/etc/hostname").expect("it is short");
        }
        header.set_cksum();
        builder.append(&header, *contents).expect("it is memory");
    }
    builder.into_inner().expect("it is memory")
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    use tar::EntryType::{Block, Fifo, GNUSparse, Link, Regular, Symlink};
    for name in [
        "../run.json",
        "/run.json",
        "a/../run.json",
        "a/b/run.json",
        "a/./../../run.json",
        "RUN.JSON",
        ".run.json",
        "run.sh",
    ] {
        let refusal = refused(&tar(&[(name, Regular, b"{}")]));
        assert!(refusal.starts_with("entry "), "{name}: {refusal}");
    }
    for kind in [Symlink, Link, Fifo, Block, GNUSparse] {
        let refusal = refused(&tar(&[("run.json", kind, b"")]));
        assert!(refusal.contains("is no regular file") || refusal.contains("no whole tar"), "{kind:?}: {refusal}");
    }
    assert!(refused(&tar(&[("run.json", Regular, b"1"), ("run.json", Regular, b"2")])).contains("is there twice"));
    assert!(
        refused(&tar(&[("a/run.json", Regular, b"1"), ("b/suite.json", Regular, b"2")])).contains("another folder")
    );
    assert!(refused(&tar(&[("run.json", Regular, b"{}")])).contains("it has no SHA256SUMS"));
}

/// Archives as `tar -C folder .` and `tar folder` make them.
#[test]
fn archives_of_any_tar_program_are_read() {
    let files = bundle(&recipe("one", 1, 30_000.0)).files().expect("it is plain data");
    let sums = files.sums();
    for folder in ["./", "2026-01-01-one/", ""] {
        let place = place();
        let all = files.all().iter().map(|(name, text)| (format!("{folder}{name}"), text.as_slice()));
        let all: Vec<_> = all.chain([(format!("{folder}SHA256SUMS"), sums.as_bytes())]).collect();
        let folders = [(folder, tar::EntryType::Directory, &b""[..])].into_iter().filter(|_| !folder.is_empty());
        let entries = all.iter().map(|(name, text)| (name.as_str(), tar::EntryType::Regular, *text));
        let archive = tar(&folders.chain(entries).collect::<Vec<_>>());
        let accepted = submit(&place.store(), &ada(), &archive, RECEIVED);
        assert!(!accepted.unwrap_or_else(|error| panic!("{folder}: {error}")).already);
    }
}

#[test]
fn sizes_that_lie_or_are_too_large_are_refused() {
    let mut lying = tar(&[("run.json", tar::EntryType::Regular, b"{}")]);
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..8].copy_from_slice(b"run.json");
    header.set_size(1 << 40);
    header.set_cksum();
    lying[..512].copy_from_slice(header.as_bytes());
    assert!(refused(&lying).contains("bytes of run.json: found 1099511627776"), "{}", refused(&lying));
    let large = refused(&vec![0; MOST_ARCHIVE_BYTES + 512]);
    assert_eq!(
        large,
        format!("the archive's bytes: found {}, expected at most {MOST_ARCHIVE_BYTES}", MOST_ARCHIVE_BYTES + 512)
    );
    let many: Vec<String> = (0..80).map(|number| format!("{number}.log")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), tar::EntryType::Regular, &b""[..])).collect();
    assert!(refused(&tar(&many)).contains("files in the archive: found 65, expected at most 64"));
    // What would need fifty times its size in memory.
    let mut files = bundle(&recipe("one", 1, 30_000.0)).files().expect("it is plain data").all().clone();
    files.insert("run.json".to_owned(), [b"[".as_slice(), &b"0,".repeat(3_000_000), b"0]"].concat());
    let archive = pack(&kernelproof_index::bundle::Files::new(files)).expect("it is small enough");
    assert!(refused(&archive).contains("values of run.json: found 3000001"));
}

#[test]
fn what_is_no_archive_is_refused() {
    for text in [&b""[..], b"{}", &[0; 511], &[0x1f; 1024], b"PK\x03\x04"] {
        assert!(refused(text).contains("is no whole tar archive"), "{text:?}");
    }
    assert!(refused(&[0; 1024]).contains("it has no SHA256SUMS"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_altered_byte_that_matters_and_any_truncation_is_refused(
        places in prop::collection::vec(any::<prop::sample::Index>(), 4),
        change in 1_u8..=255,
    ) {
        let whole = archive(&recipe("one", 1, 30_000.0));
        let run = bundle(&recipe("one", 1, 30_000.0)).run.digest().map_err(|_| ());
        let known = self::place();
        let store = known.store();
        for place in places {
            let place = place.index(whole.len());
            let cut = submit(&store, &ada(), &whole[..place], RECEIVED);
            let is_refused = matches!(cut, Err(Refused::Archive(_) | Refused::Bundle(_) | Refused::Findings { .. }));
            prop_assert!(is_refused);
            let mut altered = whole.clone();
            altered[place] ^= change;
            // Padding and unused fields of headers say nothing; whatever is accepted is the very run.
            match submit(&store, &ada(), &altered, RECEIVED) {
                Ok(accepted) => prop_assert_eq!(Ok(accepted.run), run),
                Err(refused) => prop_assert!(!refused.is_ours()),
            }
        }
    }
}

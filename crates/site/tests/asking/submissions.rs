//! Submissions, as everybody may send them.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use kernelproof_index::intake::pack;
use kernelproof_index::store::Store;
use kernelproof_index::testing::generate::{Recipe, bundle, fill};
use kernelproof_index::token::Token;
use kernelproof_site::Site;
use kernelproof_site::intake::{Intake, Limits};

use crate::{Answer, ask, get};

struct Open {
    site: Arc<Site>,
    store: Arc<Store>,
    token: Token,
    _folder: tempfile::TempDir,
}

/// A site whose index has one run, and somebody who may submit.
fn open(limits: Limits) -> Open {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(Store::open(&folder.path().join("index.sqlite")).expect("a store"));
    fill(&store, 1, &mut |_| {}).expect("it can be filled");
    let token = Token::of([7; 32]);
    store.add_token(&token, "someone", "2026-01-01T00:00:00Z").expect("it can be stored");
    let catalog = Arc::new(store.catalog().expect("it can be read"));
    let site = Site::new(catalog, store.clone()).with_intake(Intake::new(store.clone(), limits));
    Open { site: Arc::new(site), store, token, _folder: folder }
}

impl Open {
    fn send(&self, token: &str, body: Vec<u8>) -> Answer {
        let request = Request::post("/runs").header("authorization", format!("Bearer {token}"));
        ask(&self.site, request.body(Body::from(body)).expect("a request"))
    }

    fn runs(&self) -> usize {
        self.store.runs().expect("it can be read").len()
    }
}

fn archive(name: &str) -> Vec<u8> {
    let recipe = Recipe { name: name.to_owned(), ..Recipe::default() };
    pack(&bundle(&recipe).files().expect("plain data")).expect("it is small")
}

/// One entry of a tar archive (the ustar format, POSIX.1-1988), for names that no library writes.
fn entry(name: &str, kind: u8, text: &[u8]) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", text.len()).as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].copy_from_slice(b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut entry = header.to_vec();
    entry.extend_from_slice(text);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

#[test]
fn a_bundle_is_stored_once_and_shown_at_once() {
    let open = open(Limits::default());
    let before = open.site.catalog().generation();
    let answer = open.send(open.token.reveal(), archive("new"));
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let stored = answer.json();
    assert!(["reported", "reproducible"].contains(&stored["trust"].as_str().expect("a level")));
    assert!(open.site.catalog().generation() > before);
    let page = get(&open.site, stored["href"].as_str().expect("an address"));
    assert!(page.status == StatusCode::OK && page.text.contains("submitted by someone"), "{}", page.status);
    let again = open.send(open.token.reveal(), archive("new"));
    assert_eq!((again.status, again.json()["outcome"].as_str()), (StatusCode::OK, Some("known")));
    assert_eq!(open.runs(), 2);
}

#[test]
fn nobody_else_gets_in() {
    let open = open(Limits { wrong_tokens: 3, ..Limits::default() });
    let none = ask(&open.site, Request::post("/runs").body(Body::empty()).expect("a request"));
    assert_eq!(none.status, StatusCode::UNAUTHORIZED);
    for wrong in ["", "x", &"0".repeat(64)] {
        let answer = open.send(wrong, archive("new"));
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let other = Token::of([8; 32]);
    assert_eq!(open.send(other.reveal(), archive("new")).status, StatusCode::UNAUTHORIZED);
    let closed = open.send(open.token.reveal(), archive("new"));
    assert_eq!(closed.status, StatusCode::TOO_MANY_REQUESTS, "after three wrong tokens the address waits");
    assert_eq!(open.runs(), 1);
}

#[test]
fn what_is_no_bundle_is_refused_with_the_reason() {
    let open = open(Limits::default());
    let whole = archive("new");
    let mut altered = whole.clone();
    let digit =
        altered.windows(9).position(|window| window == b"\"specific" || window == b"samples_n").expect("samples");
    altered[digit + 13] ^= 1;
    let bodies = [
        ("nothing", Vec::new()),
        ("noise", vec![0x5a; 4096]),
        ("half", whole[..whole.len() / 2].to_vec()),
        ("altered", altered),
        ("a path upwards", [entry("../run.json", b'0', b"{}"), vec![0; 1024]].concat()),
        ("an absolute path", [entry("/etc/passwd", b'0', b"x"), vec![0; 1024]].concat()),
        ("a link", [entry("run.json", b'2', b""), vec![0; 1024]].concat()),
        ("a device", [entry("run.json", b'3', b""), vec![0; 1024]].concat()),
        ("a name twice", [entry("run.json", b'0', b"{}"), entry("run.json", b'0', b"{}"), vec![0; 1024]].concat()),
        ("a size that lies", [entry("run.json", b'0', &[0; 600])[..512].to_vec(), vec![0; 64]].concat()),
    ];
    for (what, body) in bodies {
        let answer = open.send(open.token.reveal(), body);
        let refused = [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY].contains(&answer.status);
        assert!(
            refused && answer.json()["detail"].as_str().is_some_and(|text| text.len() > 10),
            "{what}: {} {}",
            answer.status,
            answer.text
        );
    }
    assert_eq!(open.runs(), 1);
}

#[test]
fn too_large_packed_or_too_often_is_refused_before_it_is_read() {
    let limits = Limits { body_bytes: 10_000, per_window: 2, window: Duration::from_secs(60), ..Limits::default() };
    let open = open(limits);
    assert_eq!(open.send(open.token.reveal(), vec![0; 10_001]).status, StatusCode::PAYLOAD_TOO_LARGE);
    let announced = Request::post("/runs")
        .header("authorization", format!("Bearer {}", open.token.reveal()))
        .header("content-length", "99999999999")
        .body(Body::empty());
    assert_eq!(ask(&open.site, announced.expect("a request")).status, StatusCode::PAYLOAD_TOO_LARGE);
    let packed = Request::post("/runs")
        .header("authorization", format!("Bearer {}", open.token.reveal()))
        .header("content-encoding", "gzip")
        .body(Body::from("x"));
    assert_eq!(ask(&open.site, packed.expect("a request")).status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(open.send(open.token.reveal(), vec![0; 10]).status, StatusCode::BAD_REQUEST);
    assert_eq!(open.send(open.token.reveal(), vec![0; 10]).status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(open.runs(), 1);
}

#[test]
fn a_site_without_a_door_takes_nothing() {
    let open = open(Limits::default());
    let closed = Arc::new(Site::new(open.site.catalog(), open.store.clone()));
    let request = Request::post("/runs").header("authorization", format!("Bearer {}", open.token.reveal()));
    assert_eq!(
        ask(&closed, request.body(Body::from(archive("new"))).expect("a request")).status,
        StatusCode::NOT_FOUND
    );
}

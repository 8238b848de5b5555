//! Pages, twins and headers over the example catalog.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use kernelproof_index::catalog::Catalog;
use kernelproof_site::Site;

use crate::{ask, exported, get};

fn site() -> Arc<Site> {
    let (catalog, documents) = Catalog::example_with_documents();
    Arc::new(Site::new(Arc::new(catalog), Arc::new(documents)))
}

#[test]
fn every_link_has_an_answer_and_the_export_is_relative() {
    let files = exported(&site());
    for wanted in
        ["index.html", "operations/qkv-rope-backward.html", "operations/qkv-rope-backward.json", "records.atom"]
    {
        assert!(files.contains_key(wanted), "{wanted} is missing of {:?}", files.keys());
    }
    for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".html")) {
        for absolute in ["href=\"/", "src=\"/", "action=\"/", "src=\"http", "@import"] {
            assert!(!text.contains(absolute), "{path} has {absolute}");
        }
    }
    assert!(files[&format!("runs/{}", a_run(&files))].contains("../index.html"));
}

fn a_run(files: &std::collections::BTreeMap<String, String>) -> String {
    let mut runs = files.keys().filter_map(|path| path.strip_prefix("runs/"));
    runs.find(|path| path.ends_with(".html")).expect("there are runs").to_owned()
}

#[test]
fn a_page_and_its_twin_say_the_same() {
    let site = site();
    for page in
        ["/", "/operations", "/operations/qkv-rope-backward", "/devices", "/devices/example-cpu", "/methodology"]
    {
        let twin = if page == "/" { "/index.json".to_owned() } else { format!("{page}.json") };
        let html = get(&site, page);
        assert_eq!((html.status, html.header("content-type")), (StatusCode::OK, "text/html; charset=utf-8"), "{page}");
        assert!(html.text.contains(&format!("href=\"{twin}\"")), "{page} does not name its twin");
        let json = get(&site, &twin);
        assert_eq!((json.status, json.header("content-type")), (StatusCode::OK, "application/json"), "{twin}");
        let asked = Request::get(page).header("accept", "application/json").body(Body::empty()).expect("an address");
        assert_eq!(ask(&site, asked).json(), json.json());
    }
    let json = get(&site, "/operations/qkv-rope-backward.json").json();
    let fastest = &json["records"][0]["holder"];
    let shown = kernelproof_site::display::time(fastest["time_ns"]["estimate"].as_f64().expect("a time"), None);
    let page = get(&site, "/operations/qkv-rope-backward").text;
    assert!(page.contains(shown.digits.trim_end_matches('0')), "{shown} is not on the page");
}

#[test]
fn across_cohorts_there_is_a_sentence_and_no_ratio() {
    let site = site();
    let json = get(&site, "/operations/qkv-rope-backward.json").json();
    let slug = |cohort: usize| {
        let run = json["cohorts"][cohort]["ranking"][0]["run"].as_str().expect("an address").to_owned();
        run.trim_start_matches("/runs/").to_owned()
    };
    let across = get(&site, &format!("/compare/{}..{}.json", slug(0), slug(1))).json();
    assert!(across["others"][0]["ratio"].is_null());
    assert!(across["others"][0]["sentence"].as_str().is_some_and(|text| text.contains("device")));
    let same = json["cohorts"][0]["ranking"][1]["compare"].as_str().expect("an address").to_owned();
    let same = get(&site, &format!("{same}.json")).json();
    assert!(same["others"][0]["ratio"]["estimate"].is_number() && same["others"][0]["sentence"].is_null());
}

#[test]
fn resolve_ranks_and_gives_reasons() {
    let site = site();
    let found = get(&site, "/resolve.json?operation=qkv-rope-backward&device=cpu&mode=ieee&seq_len=1024&batch_size=2");
    let found = found.json();
    assert_eq!(found["cohorts"][0]["ranked"][0]["rank"], 1);
    assert!(found["excluded"].as_array().is_some_and(|all| all.iter().all(|row| row["reasons"][0].is_string())));
    for (question, named) in [
        ("operation=nothing", "operation"),
        ("operation=qkv-rope-backward&seq_len=x", "seq_len"),
        ("operation=qkv-rope-backward&mode=loose", "mode"),
        ("operation=qkv-rope-backward&trust=blind", "trust"),
    ] {
        let answer = get(&site, &format!("/resolve.json?{question}"));
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{question}");
        assert!(answer.json()["detail"].as_str().is_some_and(|detail| detail.contains(named)), "{}", answer.text);
    }
}

#[test]
fn search_finds_by_family_and_bounds_what_it_takes() {
    let site = site();
    let hits = get(&site, "/search.json?q=rope").json();
    assert_eq!(hits["hits"][0]["kind"], "operation");
    let long = get(&site, &format!("/search?q={}", "x".repeat(5000)));
    assert_eq!(long.status, StatusCode::OK);
    assert!(long.text.len() < 8000);
}

#[test]
fn every_answer_has_the_headers_that_protect() {
    let site = site();
    for path in
        ["/", "/nothing", "/openapi.json", "/records.atom", "/badges/operations/qkv-rope-backward/example-cpu.svg"]
    {
        let answer = get(&site, path);
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
    for page in exported(&site).values() {
        assert!(!page.contains("style=\"") && !page.contains("<style") && !page.contains(" onclick"), "{page}");
    }
}

#[test]
fn unchanged_pages_are_not_sent_again_and_names_that_are_no_names_are_not_found() {
    let site = site();
    let first = get(&site, "/methodology");
    let tag = first.header("etag").to_owned();
    let again = Request::get("/methodology").header("if-none-match", tag).body(Body::empty()).expect("an address");
    assert_eq!(ask(&site, again).status, StatusCode::NOT_MODIFIED);
    let run = a_run(&exported(&site));
    let run = run.trim_end_matches(".html");
    for path in
        ["/runs/..%2f..%2fetc%2fpasswd", "/files/x/..%2frun.json", "/assets/..%2flib.rs", "/runs/0", "/compare/a..b"]
    {
        assert_eq!(get(&site, path).status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(get(&site, &format!("/files/{run}/..%2Frun.json")).status, StatusCode::NOT_FOUND);
    assert_eq!(get(&site, &format!("/files/{run}/run.json")).status, StatusCode::OK);
    let post = Request::post("/methodology").body(Body::empty()).expect("an address");
    assert_eq!(ask(&site, post).status, StatusCode::METHOD_NOT_ALLOWED);
}

#[test]
fn the_first_page_fits_sixty_kilobytes_packed() {
    let site = site();
    let mut sum = 0;
    let first = get(&site, "/");
    let assets = first.text.split('"').filter(|part| part.starts_with("/assets/")).map(str::to_owned);
    for path in std::iter::once("/".to_owned()).chain(assets) {
        let packed = Request::get(&path).header("accept-encoding", "gzip").body(Body::empty()).expect("an address");
        let answer = ask(&site, packed);
        assert!(path.ends_with("icon.svg") || answer.header("content-encoding") == "gzip", "{path}");
        sum += answer.bytes;
    }
    assert!(sum < 60_000, "{sum} bytes");
}

#[test]
fn the_api_document_describes_every_address() {
    let site = site();
    let document = get(&site, "/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 20, "{}", paths.len());
    for reference in get(&site, "/openapi.json").text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().expect("a name");
        assert!(document["components"]["schemas"][name].is_object(), "{name} is not described");
    }
    let page = get(&site, "/api").text;
    assert!(paths.keys().all(|path| page.contains(path.as_str())));
}

#[test]
fn the_feed_is_atom_with_the_latest_record_first() {
    let feed = get(&site(), "/records.atom");
    assert_eq!(feed.header("content-type"), "application/atom+xml; charset=utf-8");
    let dates: Vec<&str> = feed.text.split("<updated>").skip(2).map(|rest| &rest[..20]).collect();
    assert!(!dates.is_empty() && dates.is_sorted_by(|one, other| one >= other), "{dates:?}");
}

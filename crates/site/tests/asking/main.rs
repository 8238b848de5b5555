//! The site asked in-process, without a network.

mod hostile;
mod pages;
mod submissions;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use kernelproof_site::Site;
use tower::ServiceExt as _;

/// An answer, read to its end.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    bytes: usize,
    text: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("it is text"))
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

fn ask(site: &Arc<Site>, request: Request<Body>) -> Answer {
    block_on(async {
        let response = site.clone().service().oneshot(request).await.expect("never fails");
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
        let length = parts.headers.get("content-length").map(|length| length.to_str().expect("it is text").parse());
        let is_right = length.is_none_or(|length| length == Ok(body.len()) || parts.status == StatusCode::NOT_MODIFIED);
        assert!(is_right, "a body of {} bytes is said to have another length", body.len());
        Answer {
            status: parts.status,
            headers: parts.headers,
            bytes: body.len(),
            text: String::from_utf8_lossy(&body).into_owned(),
        }
    })
}

fn get(site: &Arc<Site>, path: &str) -> Answer {
    ask(site, Request::get(path).body(Body::empty()).expect("an address"))
}

/// All files of the static export, by path.
fn exported(site: &Arc<Site>) -> std::collections::BTreeMap<String, String> {
    let mut files = std::collections::BTreeMap::new();
    block_on(kernelproof_site::export::export(site, |path, text| {
        files.insert(path.to_owned(), String::from_utf8_lossy(text).into_owned());
        Ok(())
    }))
    .expect("no link is broken");
    files
}

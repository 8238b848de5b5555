//! Answers that are made once per generation of the catalog, and the headers that all answers have.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

use axum::body::Body;
use axum::body::Bytes;
use axum::http::header::{
    ACCEPT_ENCODING, ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// Nothing but what this site serves itself, and no code or style inside pages.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                                 form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Pages are checked for changes on every visit, at the price of an empty answer.
pub(crate) const REVALIDATE: &str = "no-cache";

/// For addresses that carry a digest of what they hold.
pub(crate) const FOREVER: &str = "public, max-age=31536000, immutable";

/// Less than this does not get smaller by packing.
const WORTH_PACKING_BYTES: usize = 600;

/// Files of bundles larger than this are read from the store each time.
const LARGEST_KEPT_BYTES: usize = 4 << 20;

/// What one generation keeps at most; a page is about 20 KiB with its packed form.
const MOST_KEPT_BYTES: usize = 64 << 20;

/// An answer with its packed form, as it is sent.
#[derive(Debug)]
pub(crate) struct Stored {
    status: StatusCode,
    headers: HeaderMap,
    etag: HeaderValue,
    plain: Bytes,
    packed: Option<Bytes>,
}

impl Stored {
    /// Takes an answer in; `headers` must name the type.
    pub(crate) fn new(status: StatusCode, mut headers: HeaderMap, plain: Bytes) -> Self {
        // It is that of the body that is sent, packed or not.
        headers.remove(CONTENT_LENGTH);
        let digest = Sha256::digest(&plain);
        let digits: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        let etag = HeaderValue::from_str(&format!("W/\"{digits}\"")).unwrap_or(HeaderValue::from_static("W/\"0\""));
        let type_of = |headers: &HeaderMap| headers.get(CONTENT_TYPE).cloned();
        let is_text = type_of(&headers).is_some_and(|found| {
            let found = found.as_bytes();
            found.starts_with(b"text/")
                || [&b"json"[..], b"xml"].iter().any(|part| found.windows(part.len()).any(|window| window == *part))
        });
        let packed = (is_text && plain.len() >= WORTH_PACKING_BYTES).then(|| pack(&plain)).flatten();
        let fixed = [
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
            (VARY, "accept, accept-encoding"),
        ];
        headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static(REVALIDATE));
        Self { status, headers, etag, plain, packed }
    }

    /// The answer for one request: whole, packed, or only that nothing changed.
    pub(crate) fn answer(&self, method: &Method, asked: &HeaderMap) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.headers_mut() = self.headers.clone();
        if self.status == StatusCode::OK && matches!(*method, Method::GET | Method::HEAD) {
            response.headers_mut().insert(ETAG, self.etag.clone());
            if asked.get_all(IF_NONE_MATCH).iter().any(|found| names(found, &self.etag)) {
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                return response;
            }
        }
        *response.status_mut() = self.status;
        let body = match &self.packed {
            Some(packed) if takes_gzip(asked) => {
                response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                packed
            }
            _ => &self.plain,
        };
        if method != Method::HEAD {
            *response.body_mut() = Body::from(body.clone());
        }
        response
    }

    /// Whether the same request will have the same answer in this generation.
    pub(crate) fn is_kept(&self) -> bool {
        self.status == StatusCode::OK && self.plain.len() <= LARGEST_KEPT_BYTES
    }

    fn size_bytes(&self) -> usize {
        self.plain.len() + self.packed.as_ref().map_or(0, Bytes::len)
    }
}

/// Whether a list of entity tags names this one.
fn names(list: &HeaderValue, etag: &HeaderValue) -> bool {
    let (Ok(list), Ok(etag)) = (list.to_str(), etag.to_str()) else { return false };
    list.split(',').map(str::trim).any(|found| found == "*" || found == etag)
}

/// Whether the client takes gzip: named, and not with a weight of 0.
fn takes_gzip(asked: &HeaderMap) -> bool {
    let lists = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let refused = parts.any(|part| part.strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0)));
        is_gzip && !refused
    })
}

/// Two thirds of the default level's time for 4 % more bytes (a page of the index, 2026-12-01).
const LEVEL: u32 = 4;

fn pack(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::new(LEVEL));
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// The answers of one generation, by address.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    kept: RwLock<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    answers: HashMap<String, Arc<Stored>>,
    bytes: usize,
}

impl Pages {
    pub(crate) fn get(&self, key: &str) -> Option<Arc<Stored>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).answers.get(key).cloned()
    }

    /// Keeps an answer. When there are too many, all are forgotten: the often wanted are made again at once.
    pub(crate) fn keep(&self, key: String, answer: Arc<Stored>) {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        let bytes = answer.size_bytes() + key.len();
        if kept.bytes + bytes > MOST_KEPT_BYTES {
            *kept = Kept::default();
        }
        kept.bytes += bytes;
        if let Some(before) = kept.answers.insert(key, answer) {
            kept.bytes = kept.bytes.saturating_sub(before.size_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Stored {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        Stored::new(StatusCode::OK, headers, Bytes::from(text.to_owned()))
    }

    fn asked(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).expect("it is a header"))])
    }

    #[test]
    fn packed_only_for_those_who_take_it() {
        let page = page(&"kernel ".repeat(1000));
        let encoding = |accept: &str| {
            let response = page.answer(&Method::GET, &asked(ACCEPT_ENCODING, accept));
            response.headers().get(CONTENT_ENCODING).cloned()
        };
        assert_eq!(encoding("br, gzip;q=0.8"), Some(HeaderValue::from_static("gzip")));
        assert_eq!(encoding("gzip;q=0"), None);
        assert_eq!(encoding("identity"), None);
    }

    #[test]
    fn an_unchanged_page_is_not_sent_again() {
        let page = page("text");
        let tag = page.etag.to_str().expect("it is text").to_owned();
        let again = page.answer(&Method::GET, &asked(IF_NONE_MATCH, &format!("\"x\", {tag}")));
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(page.answer(&Method::GET, &asked(IF_NONE_MATCH, "\"x\"")).status(), StatusCode::OK);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let pages = Pages::default();
        let large = || Arc::new(page(&String::from_utf8(vec![b'x'; 10 << 20]).expect("it is text")));
        for index in 0..8 {
            pages.keep(index.to_string(), large());
        }
        assert!(pages.get("0").is_none() && pages.get("7").is_some());
        assert!(pages.kept.read().expect("nobody panicked").bytes <= MOST_KEPT_BYTES);
    }
}

//! The site: a catalog that is replaced whole, and a front that remembers what it has answered.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::ACCEPT;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, Documents};
use tower::ServiceExt as _;

use crate::ask::{Ask, Format, Problem};
use crate::intake::Intake;
use crate::routes;
use crate::stored::{Pages, Stored};

/// The index as a web site. Cheap to share; the catalog in it can be replaced while requests are answered.
pub struct Site {
    current: ArcSwap<Generation>,
    pub(crate) documents: Arc<dyn Documents>,
    pub(crate) intake: Option<Intake>,
    pages: Router,
}

/// One catalog with the answers made from it.
pub(crate) struct Generation {
    pub(crate) catalog: Arc<Catalog>,
    answers: Pages,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("generation", &self.current.load().catalog.generation()).finish_non_exhaustive()
    }
}

/// Longest answer that is held in memory: a bundle's largest file.
const LONGEST_ANSWER_BYTES: usize = 512 << 20;

impl Site {
    /// A site over a catalog, which takes no submissions.
    pub fn new(catalog: Arc<Catalog>, documents: Arc<dyn Documents>) -> Self {
        let generation = Generation { catalog, answers: Pages::default() };
        Self { current: ArcSwap::from_pointee(generation), documents, intake: None, pages: routes::pages() }
    }

    /// The same, taking submissions.
    pub fn with_intake(mut self, intake: Intake) -> Self {
        self.intake = Some(intake);
        self
    }

    /// Shows another catalog from now on. Requests that are being answered finish with the one they began with.
    pub fn replace(&self, catalog: Arc<Catalog>) {
        self.current.store(Arc::new(Generation { catalog, answers: Pages::default() }));
    }

    /// The catalog that is shown.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load().catalog.clone()
    }

    /// The service to serve.
    pub fn service(self: Arc<Self>) -> Router {
        routes::with_limits(Router::new().fallback(front).with_state(self))
    }
}

/// Answers from memory where it can, and asks the pages otherwise.
async fn front(State(site): State<Arc<Site>>, request: Request) -> Response {
    let generation = site.current.load_full();
    let (method, asked) = (request.method().clone(), request.headers().clone());
    let (uri, format) = twin(request.uri(), &asked);
    let reads = matches!(method, Method::GET | Method::HEAD);
    let key = (reads && uri.query().is_none()).then(|| format!("{format:?} {}", uri.path()));
    if let Some(kept) = key.as_deref().and_then(|key| generation.answers.get(key)) {
        return kept.answer(&method, &asked);
    }
    let stored = match make(&site, &generation, request, uri, format).await {
        Ok(stored) => Arc::new(stored),
        Err(error) => {
            let problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "The answer broke off", error);
            let (parts, _) = problem.reply(format).into_parts();
            Arc::new(Stored::new(parts.status, parts.headers, Bytes::new()))
        }
    };
    if let Some(key) = key.filter(|_| stored.is_kept()) {
        generation.answers.keep(key, stored.clone());
    }
    stored.answer(&method, &asked)
}

/// The answer of the pages themselves.
async fn make(
    site: &Arc<Site>,
    generation: &Arc<Generation>,
    mut request: Request,
    uri: Uri,
    format: Format,
) -> Result<Stored, String> {
    *request.uri_mut() = uri;
    if request.method() == Method::HEAD {
        *request.method_mut() = Method::GET;
    }
    request.extensions_mut().insert(Ask { site: site.clone(), generation: generation.clone(), format });
    let response = match site.pages.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, LONGEST_ANSWER_BYTES).await.map_err(|error| error.to_string())?;
    Ok(Stored::new(parts.status, parts.headers, body))
}

/// `/x.json` is the JSON of `/x`, and so is `/x` for those who ask for JSON. `/index.json` is that of the first page.
fn twin(uri: &Uri, asked: &HeaderMap) -> (Uri, Format) {
    let path = uri.path();
    if path == "/openapi.json" || path.starts_with("/files/") {
        return (uri.clone(), Format::Json);
    }
    if let Some(page) = path.strip_suffix(".json") {
        let page = if page == "/index" { "/" } else { page };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let target = format!("{page}{query}").parse::<PathAndQuery>();
        return (target.map_or_else(|_| uri.clone(), Uri::from), Format::Json);
    }
    let accepts = asked.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let json = accepts.contains("application/json") && !accepts.contains("text/html");
    (uri.clone(), if json { Format::Json } else { Format::Html })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_is_asked_for_by_name_or_by_type() {
        let of = |uri: &str, accept: Option<&str>| {
            let asked = accept.map(|accept| (ACCEPT, accept.parse().expect("it is a header")));
            let (uri, format) = twin(&uri.parse().expect("it is an address"), &HeaderMap::from_iter(asked));
            (uri.to_string(), format)
        };
        assert_eq!(of("/runs/x.json?a=1", None), ("/runs/x?a=1".to_owned(), Format::Json));
        assert_eq!(of("/index.json", None), ("/".to_owned(), Format::Json));
        assert_eq!(of("/runs/x", Some("application/json")), ("/runs/x".to_owned(), Format::Json));
        assert_eq!(of("/runs/x", Some("text/html,application/json")), ("/runs/x".to_owned(), Format::Html));
        assert_eq!(of("/files/x/run.json", None).0, "/files/x/run.json");
    }
}

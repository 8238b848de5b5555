//! What a page is asked with, and how it answers: the same value as HTML or as JSON.

use std::sync::Arc;

use askama::Template;
use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use kernelproof_index::catalog::{Catalog, Documents};
use serde::Serialize;
use utoipa::ToSchema;

use crate::site::{Generation, Site};

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// A page.
    Html,
    /// Its twin.
    Json,
}

/// One question, with the generation of the catalog that answers it.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) site: Arc<Site>,
    pub(crate) generation: Arc<Generation>,
    pub(crate) format: Format,
}

impl<S: Sync> FromRequestParts<S> for Ask {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let asked = parts.extensions.get::<Self>().cloned();
        asked.ok_or_else(|| answer(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "no generation".into()))
    }
}

/// A page that says what is not there or not allowed, and what is.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "problem.html")]
pub(crate) struct Problem {
    /// Empty: a problem has no twin of its own.
    #[serde(skip)]
    twin: String,
    /// The status code.
    status: u16,
    /// What is wrong, in a few words.
    title: String,
    /// What was found and what was expected.
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, title: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { twin: String::new(), status: status.as_u16(), title: title.into(), detail: detail.into() }
    }

    /// As a page or as JSON (RFC 9457).
    pub(crate) fn reply(&self, format: Format) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        match (format, self.render()) {
            (Format::Html, Ok(text)) => answer(status, HTML, text.into()),
            _ => answer(status, "application/problem+json", serde_json::to_vec(self).unwrap_or_default().into()),
        }
    }
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

impl Ask {
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.generation.catalog
    }

    pub(crate) fn documents(&self) -> &dyn Documents {
        &*self.site.documents
    }

    /// The page, or its twin.
    pub(crate) fn reply<T: Template + Serialize>(&self, page: &T) -> Response {
        let written = match self.format {
            Format::Html => page.render().map(|text| (HTML, text.into_bytes())).map_err(|error| error.to_string()),
            Format::Json => serde_json::to_vec_pretty(page).map(|text| (JSON, text)).map_err(|error| error.to_string()),
        };
        match written {
            Ok((media_type, text)) => answer(StatusCode::OK, media_type, text.into()),
            Err(error) => {
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "This page cannot be written", error).reply(self.format)
            }
        }
    }

    /// There is no such thing.
    pub(crate) fn missing(&self, what: &str, name: &str) -> Response {
        let name: String = name.chars().take(80).collect();
        let title = format!("There is no such {what}");
        let detail = format!("The index has no {what} named “{name}”. Search finds what it has.");
        Problem::new(StatusCode::NOT_FOUND, title, detail).reply(self.format)
    }

    /// Something that the store could not give.
    pub(crate) fn failed(&self, error: &dyn std::error::Error) -> Response {
        let title = "The store could not give this";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, title, error.to_string()).reply(self.format)
    }
}

/// An answer of a given type.
pub(crate) fn answer(status: StatusCode, media_type: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

/// A file that may be kept for as long as `keep` says.
pub(crate) fn kept(media_type: &'static str, keep: &'static str, body: Bytes) -> Response {
    let mut response = answer(StatusCode::OK, media_type, body);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    response
}

/// Sends the reader to another page.
pub(crate) fn see_other(to: &str) -> Response {
    let mut headers = HeaderMap::new();
    let mut response = answer(StatusCode::SEE_OTHER, "text/plain", Bytes::new());
    if let Ok(to) = HeaderValue::from_str(to) {
        headers.insert(LOCATION, to);
    }
    response.headers_mut().extend(headers);
    response
}

//! Submissions: a run bundle as a tar archive, with the submitter's token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use kernelproof_index::catalog::Catalog;
use kernelproof_index::intake::{Accepted, Refused};
use kernelproof_index::token::{Submitter, Token};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::{Ask, Format, Problem, answer};
use crate::intake::{Intake, Limits};
use crate::view::{address, level};

/// What became of a submission.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Submitted {
    /// Identity of the run.
    pub run: String,
    /// Address of its page.
    pub href: String,
    /// `stored`, or `known` when the index had it already.
    pub outcome: &'static str,
    /// How far it can be trusted by itself: `reported` or `reproducible`.
    pub trust: &'static str,
    /// What it lacks for more.
    pub missing: Vec<String>,
}

/// Why a request goes no further.
struct Stop(StatusCode, &'static str, String);

/// Answers `POST /runs`. Nothing of a submission is ever executed.
#[utoipa::path(post, path = "/runs", tag = "submission", summary = "Submit a run bundle",
    description = "The body is a tar archive of the bundle's files without folders, as `kernelproof submit BUNDLE --to URL` sends it. \
                   Every digest and figure is computed again; the run starts as reported or reproducible. Sending the same bundle \
                   again changes nothing.",
    request_body(content = Vec<u8>, content_type = "application/x-tar", description = "At most 16 MiB"),
    security(("token" = [])),
    responses(
        (status = 201, body = Submitted, description = "Stored"),
        (status = 200, body = Submitted, description = "Known already"),
        (status = 400, body = Problem, description = "Not a tar archive of plain files"),
        (status = 401, body = Problem, description = "No token, or a wrong one"),
        (status = 413, body = Problem, description = "Too large"),
        (status = 422, body = Problem, description = "The bundle is refused; the detail names each file and field"),
        (status = 429, body = Problem, description = "Too many submissions, or wrong tokens, within an hour"),
    ))]
pub(crate) async fn submit(ask: Ask, request: Request) -> Response {
    match receive(&ask, request).await {
        Ok((accepted, catalog)) => {
            let slug = catalog.run(&accepted.run).map_or_else(|| accepted.run.short(), |run| run.slug.clone());
            let submitted = Submitted {
                run: accepted.run.to_string(),
                href: address::run(&slug),
                outcome: if accepted.already { "known" } else { "stored" },
                trust: level(accepted.standing.trust),
                missing: accepted.standing.missing,
            };
            let status = if accepted.already { StatusCode::OK } else { StatusCode::CREATED };
            let text = serde_json::to_vec(&submitted).unwrap_or_default();
            let mut response = answer(status, "application/json", text.into());
            if let Ok(place) = HeaderValue::from_str(&submitted.href) {
                response.headers_mut().insert(LOCATION, place);
            }
            response
        }
        Err(Stop(status, title, detail)) => Problem::new(status, title, detail).reply(Format::Json),
    }
}

async fn receive(ask: &Ask, request: Request) -> Result<(Accepted, Arc<Catalog>), Stop> {
    let closed = || Stop(StatusCode::NOT_FOUND, "This site takes no submissions", String::new());
    let intake = ask.site.intake.as_ref().ok_or_else(closed)?;
    let submitter = submitter(intake, &request)?;
    let (parts, body) = request.into_parts();
    refuse_by_headers(&parts.headers, &intake.limits)?;
    if !intake.allows(&format!("submitter {}", submitter.name()), intake.limits.per_window, Instant::now()) {
        return Err(too_many("submissions"));
    }
    let broken = || Stop(StatusCode::SERVICE_UNAVAILABLE, "The site is closing", String::new());
    let _turn = intake.turn.acquire().await.map_err(|_| broken())?;
    let archive = whole(body, &intake.limits).await?;
    let store = intake.store.clone();
    let work = tokio::task::spawn_blocking(move || {
        let received = jiff::Timestamp::now().to_string();
        let accepted = kernelproof_index::intake::submit(&store, &submitter, &archive, &received)?;
        let catalog = if accepted.already { None } else { Some(store.catalog()?) };
        Ok((accepted, catalog))
    });
    let (accepted, catalog) = work.await.map_err(|error| failed(error.to_string()))?.map_err(refused)?;
    if let Some(catalog) = catalog {
        ask.site.replace(Arc::new(catalog));
    }
    Ok((accepted, ask.site.catalog()))
}

fn refused(refused: Refused) -> Stop {
    let (status, title) = match &refused {
        refused if refused.is_ours() => (StatusCode::INTERNAL_SERVER_ERROR, "The store failed"),
        refused if refused.is_too_large() => (StatusCode::PAYLOAD_TOO_LARGE, "The bundle is too large"),
        Refused::Archive(_) => (StatusCode::BAD_REQUEST, "This is no bundle"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "The bundle is refused"),
    };
    let mut detail = refused.to_string();
    let mut cause = std::error::Error::source(&refused);
    while let Some(error) = cause {
        detail = format!("{detail}: {error}");
        cause = error.source();
    }
    Stop(status, title, detail)
}

fn failed(why: String) -> Stop {
    Stop(StatusCode::INTERNAL_SERVER_ERROR, "The store failed", why)
}

fn too_many(what: &str) -> Stop {
    Stop(StatusCode::TOO_MANY_REQUESTS, "Too many", format!("Too many {what}; try again in an hour."))
}

/// Who sends this. Wrong tokens are counted by address, so that they cannot be tried out.
fn submitter(intake: &Intake, request: &Request) -> Result<Submitter, Stop> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    let peer = peer.map_or_else(|| "peer".to_owned(), |ConnectInfo(address)| format!("peer {}", address.ip()));
    let (most, now) = (intake.limits.wrong_tokens, Instant::now());
    if intake.is_full(&peer, most, now) {
        return Err(too_many("wrong tokens"));
    }
    let token = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = token.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim).filter(|token| !token.is_empty());
    let missing = "Expected the header `Authorization: Bearer TOKEN`.";
    let token = token.ok_or_else(|| Stop(StatusCode::UNAUTHORIZED, "Who are you?", missing.to_owned()))?;
    let found = match Token::parse(token) {
        Ok(token) => intake.store.submitter(&token).map_err(|error| failed(error.to_string()))?,
        Err(_) => None,
    };
    match found {
        Some(submitter) => Ok(submitter),
        None => {
            intake.allows(&peer, most, now);
            Err(Stop(StatusCode::UNAUTHORIZED, "Who are you?", "Nobody has this token.".to_owned()))
        }
    }
}

/// What can be refused before a byte of the body is read.
fn refuse_by_headers(headers: &HeaderMap, limits: &Limits) -> Result<(), Stop> {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.body_bytes as u64) {
        return Err(too_large(limits));
    }
    // What is not unpacked cannot blow up.
    match headers.get(CONTENT_ENCODING) {
        Some(coding) if coding != "identity" => {
            let found = coding.to_str().unwrap_or("something else");
            let detail = format!("Found the content encoding {found}, expected none.");
            Err(Stop(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Send it unpacked", detail))
        }
        _ => Ok(()),
    }
}

fn too_large(limits: &Limits) -> Stop {
    let detail = format!("Expected at most {}.", crate::display::bytes(limits.body_bytes as f64));
    Stop(StatusCode::PAYLOAD_TOO_LARGE, "The bundle is too large", detail)
}

async fn whole(body: Body, limits: &Limits) -> Result<axum::body::Bytes, Stop> {
    axum::body::to_bytes(body, limits.body_bytes).await.map_err(|_| too_large(limits))
}

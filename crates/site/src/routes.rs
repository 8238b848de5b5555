//! Which address is which page.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use crate::ask::{Ask, Problem};
use crate::pages::{
    api, badges, cohort, compare, device, feed, files, home, implementation, lists, methodology, operation, protocol,
    reported, resolve, run, search, submit,
};

/// Longest that a request may take, a slow submission included.
const PATIENCE: Duration = Duration::from_secs(60);

/// All pages. They expect an [`Ask`] among the request's extensions.
pub(crate) fn pages() -> Router {
    Router::new()
        .route("/", get(home::page))
        .route("/search", get(search::page))
        .route("/resolve", get(resolve::page))
        .route("/operations", get(lists::operations))
        .route("/operations/{operation}", get(operation::page))
        .route("/cohorts/{cohort}", get(cohort::page))
        .route("/runs", post(submit::submit))
        .route("/runs/{run}", get(run::page))
        .route("/runs/{run}/samples.csv", get(files::samples))
        .route("/files/{run}/{file}", get(files::file))
        .route("/compare", get(compare::form))
        .route("/compare/{runs}", get(compare::page))
        .route("/implementations/{implementation}", get(implementation::page))
        .route("/devices", get(lists::devices))
        .route("/devices/{device}", get(device::page))
        .route("/protocols/{protocol}", get(protocol::page))
        .route("/reported/{figure}", get(reported::page))
        .route("/methodology", get(methodology::page))
        .route("/api", get(api::page))
        .route("/openapi.json", get(api::document))
        .route("/records.atom", get(feed::atom))
        .route("/badges/implementations/{file}", get(badges::implementation))
        .route("/badges/operations/{operation}/{file}", get(badges::operation))
        .route("/assets/{file}", get(files::asset))
        .fallback(missing)
        .method_not_allowed_fallback(not_allowed)
}

/// What holds for every request: a panic is an answer, and patience ends.
pub(crate) fn with_limits(router: Router) -> Router {
    router.layer(CatchPanicLayer::new()).layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, PATIENCE))
}

async fn missing(ask: Ask, uri: axum::http::Uri) -> Response {
    ask.missing("page", uri.path())
}

async fn not_allowed(ask: Ask) -> Response {
    let detail = "Pages are read with GET; only /runs takes POST.";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Not that way", detail).reply(ask.format)
}

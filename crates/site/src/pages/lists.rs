//! Lists of operations and of devices.

use askama::Template;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use super::home::Summary;
use crate::ask::Ask;
use crate::view::address;

/// All operations.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "operations.html")]
pub(crate) struct OperationsPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Operations with their records.
    pub operations: Vec<Summary>,
}

/// All devices.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "devices.html")]
pub(crate) struct DevicesPage {
    /// Address of this as JSON.
    pub twin: String,
    /// The devices.
    pub devices: Vec<DeviceLine>,
}

/// A device.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeviceLine {
    /// Its page.
    pub href: String,
    /// Its own name.
    pub name: String,
    /// `cpu` or `cuda`.
    pub kind: String,
    /// Runs on it.
    pub runs: usize,
    /// Cohorts on it.
    pub cohorts: usize,
    /// What its latest run met.
    pub driver: Option<String>,
}

/// Answers `/operations`.
#[utoipa::path(get, path = "/operations.json", tag = "pages", summary = "All operations with their records",
    responses((status = 200, body = OperationsPage)))]
pub(crate) async fn operations(ask: Ask) -> Response {
    let catalog = ask.catalog();
    let operations = catalog.operations().iter().map(|entry| Summary::of(catalog, entry)).collect();
    ask.reply(&OperationsPage { twin: "/operations.json".to_owned(), operations })
}

/// Answers `/devices`.
#[utoipa::path(get, path = "/devices.json", tag = "pages", summary = "All devices",
    responses((status = 200, body = DevicesPage)))]
pub(crate) async fn devices(ask: Ask) -> Response {
    let devices = ask.catalog().devices().iter().map(|device| DeviceLine {
        href: address::device(&device.slug),
        name: device.name.clone(),
        kind: device.kind.clone(),
        runs: device.runs.len(),
        cohorts: device.cohorts.len(),
        driver: device.driver.clone(),
    });
    ask.reply(&DevicesPage { twin: "/devices.json".to_owned(), devices: devices.collect() })
}

//! How figures come about, and what may be concluded from them.

use askama::Template;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;

use crate::ask::Ask;

/// The page of the rules.
#[derive(Debug, Serialize, Template, ToSchema)]
#[template(path = "methodology.html")]
pub(crate) struct MethodologyPage {
    /// Address of this as JSON.
    pub twin: String,
    /// Levels of trust from least to most, with what each takes.
    pub trust: Vec<[&'static str; 2]>,
    /// Corrections: when, what, whom, why.
    pub corrections: Vec<CorrectionLine>,
}

/// Something that was taken back or replaced.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CorrectionLine {
    /// When, UTC, RFC 3339.
    pub decided: String,
    /// `retracted`, or `superseded`.
    pub action: &'static str,
    /// Address of what was corrected.
    pub target: String,
    /// First digits of its identity.
    pub target_id: String,
    /// Why.
    pub reason: String,
}

const TRUST: [[&str; 2]; 4] = [
    ["reported", "Someone says so."],
    [
        "reproducible",
        "Source, licence, install recipe, complete identity and raw samples are there: anyone can repeat it.",
    ],
    ["verified", "Run again by this project's evaluator, with the same result."],
    ["replicated", "Run again by a second party or on a second machine, with the same result."],
];

/// Answers `/methodology`.
#[utoipa::path(get, path = "/methodology.json", tag = "pages", summary = "Levels of trust, and corrections",
    responses((status = 200, body = MethodologyPage)))]
pub(crate) async fn page(ask: Ask) -> Response {
    let catalog = ask.catalog();
    let corrections = catalog.corrections().iter().map(|entry| {
        let target = entry.spec.target;
        let address = match (catalog.run(&target), catalog.external(&target)) {
            (Some(run), _) => crate::view::address::run(&run.slug),
            (None, Some(external)) => crate::view::address::external(&external.slug),
            (None, None) => String::new(),
        };
        CorrectionLine {
            decided: entry.spec.decided.clone(),
            action: match entry.spec.action {
                kernelproof_index::correction::Action::Retract => "retracted",
                kernelproof_index::correction::Action::Supersede { .. } => "superseded",
            },
            target: address,
            target_id: target.short(),
            reason: entry.spec.reason.clone(),
        }
    });
    let corrections = corrections.collect();
    ask.reply(&MethodologyPage { twin: "/methodology.json".to_owned(), trust: TRUST.to_vec(), corrections })
}

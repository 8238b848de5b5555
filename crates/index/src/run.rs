//! Runs: who met which problem under which rules and where, and everything that was seen.

use std::collections::BTreeMap;

use kernelproof_eval::evaluation::{CaseResult, Ceiling, Evaluation, SCHEMA};
use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::manifest::{Invalid, Spec};

/// One run: five identities and the evaluation with every sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Identity of the operation.
    pub operation: Digest,
    /// Identity of the suite that the cases are of.
    pub suite: Digest,
    /// Identity of the implementation.
    pub implementation: Digest,
    /// Identity of the protocol.
    pub protocol: Digest,
    /// Identity of the environment.
    pub environment: Digest,
    /// What was seen: checks, samples, telemetry, status, time, command line.
    pub evaluation: Evaluation,
    /// Contents of the logs, by file name.
    pub logs: BTreeMap<String, Digest>,
}

/// A moment in UTC as RFC 3339 writes it.
fn unless_utc(field: &str, text: &str) -> Result<(), Invalid> {
    let is_utc = text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok();
    Invalid::unless(is_utc, field, format!("{text:?}"), "a time in UTC such as 2026-12-01T10:00:00Z")
}

impl Spec for Run {
    const KIND: &'static str = "Run";

    fn validate(&self) -> Result<(), Invalid> {
        let Evaluation { schema, observed, command, ceilings, cases, .. } = &self.evaluation;
        Invalid::unless(schema == SCHEMA, "evaluation.schema", format!("{schema:?}"), format!("{SCHEMA:?}"))?;
        unless_utc("evaluation.observed", observed)?;
        Invalid::unless(!command.is_empty(), "evaluation.command", "nothing", "the command line")?;
        // A folder says nothing about a measurement, and much about who took it.
        let private = command.iter().find(|argument| argument.contains(['/', '\\']));
        if let Some(argument) = private {
            return Err(Invalid::new("evaluation.command", format!("{argument:?}"), "no folders"));
        }
        for Ceiling { per_ns, source, .. } in ceilings {
            let field = format!("evaluation.ceilings ({source})");
            Invalid::unless(*per_ns > 0.0, field, per_ns, "more than 0")?;
        }
        for CaseResult { name, baseline_ns, .. } in cases {
            let field = format!("evaluation.cases.{name}.baseline_ns");
            let found = baseline_ns.unwrap_or(1.0);
            Invalid::unless(found > 0.0, field, found, "a time")?;
        }
        Invalid::unless(!cases.is_empty(), "evaluation.cases", "none", "at least one")?;
        Invalid::unless_distinct("evaluation.cases", cases.iter().map(|case| case.name.as_str()))?;
        cases
            .iter()
            .try_for_each(|case| unless_utc(&format!("evaluation.cases.{}.observed", case.name), &case.observed))
    }
}

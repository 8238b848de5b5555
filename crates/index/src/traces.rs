//! Traces of SOL-ExecBench, one JSON object a line, as its public documentation defines them, into external runs.
//!
//! A trace is one solution on one workload. All traces of a solution on one hardware become one external run, with the
//! source's own digits. A trace holds means and no samples, so it is reported and never ranks among runs of ours.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::external::{ExternalRun, Figure, Reference};
use crate::identity::Digest;
use crate::manifest::{Manifest, shown};
use crate::operation::Operation;

/// What a file of traces does not say itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSource {
    /// The document and when it was read.
    pub reference: Reference,
    /// The protocol that the traces were made by, as the source calls it.
    pub protocol: String,
}

/// What is wrong with a file of traces.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    /// Its number, from 1.
    pub line: usize,
    /// What was found and expected.
    pub why: String,
}

/// One line.
#[derive(Deserialize)]
struct Trace {
    definition: String,
    #[serde(default)]
    solution: Option<String>,
    workload: TraceWorkload,
    #[serde(default)]
    evaluation: Option<TraceEvaluation>,
}

#[derive(Deserialize)]
struct TraceWorkload {
    uuid: String,
    axes: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct TraceEvaluation {
    status: String,
    environment: TraceEnvironment,
    timestamp: String,
    #[serde(default)]
    correctness: Option<TraceCorrectness>,
    #[serde(default)]
    performance: Option<TracePerformance>,
}

#[derive(Deserialize)]
struct TraceEnvironment {
    hardware: String,
    #[serde(default)]
    libs: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct TraceCorrectness {
    max_relative_error: Box<RawValue>,
    max_absolute_error: Box<RawValue>,
}

#[derive(Deserialize)]
struct TracePerformance {
    latency_ms: Box<RawValue>,
    reference_latency_ms: Box<RawValue>,
    speedup_factor: Box<RawValue>,
}

/// The external runs of a file of traces, by (implementation, hardware). A solution on a definition that names none of
/// `operations`, by alias, is left out; traces without solution or evaluation are workloads and are left out.
///
/// # Errors
/// Names the line, and the field, that is no trace or contradicts its status.
pub fn external_runs(
    text: &str,
    operations: &[(Digest, Manifest<Operation>)],
    source: &TraceSource,
) -> Result<Vec<Manifest<ExternalRun>>, TraceError> {
    let mut groups = BTreeMap::<(String, String, String), Group>::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| TraceError { line: index + 1, why: shown(&why) };
        let mut reader = serde_json::Deserializer::from_str(line);
        let trace: Trace = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| wrong(format!("{}: {}", error.path(), error.inner())))?;
        let Trace { definition, solution: Some(solution), workload, evaluation: Some(evaluation) } = trace else {
            continue;
        };
        let named = |(_, operation): &&(Digest, Manifest<Operation>)| operation.metadata.aliases.contains(&definition);
        let Some((operation, _)) = operations.iter().find(named) else { continue };
        let hardware = evaluation.environment.hardware.clone();
        let group = groups.entry((solution, hardware, definition)).or_insert_with(|| Group::new(*operation));
        group.add(&workload, &evaluation).map_err(wrong)?;
    }
    Ok(groups.into_iter().map(|(key, group)| Manifest::new(group.external(key, source))).collect())
}

/// Traces of one solution on one hardware.
struct Group {
    operation: Digest,
    figures: Vec<Figure>,
    workloads: BTreeSet<String>,
    failed: usize,
    observed: String,
    libs: BTreeSet<String>,
}

impl Group {
    fn new(operation: Digest) -> Self {
        let (figures, workloads, libs) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        Self { operation, figures, workloads, failed: 0, observed: String::new(), libs }
    }

    fn add(&mut self, workload: &TraceWorkload, evaluation: &TraceEvaluation) -> Result<(), String> {
        let TraceEvaluation { status, environment, timestamp, correctness, performance } = evaluation;
        if !self.workloads.insert(workload.uuid.clone()) {
            return Err(format!("workload.uuid: {} is there twice for this solution and hardware", workload.uuid));
        }
        if (status == "PASSED") != performance.is_some() {
            return Err(format!("evaluation.performance: is there or not against the status {status}"));
        }
        let mut add = |name: &str, text: &RawValue, scale: f64, unit: &str| {
            let value = number(name, text)? * scale;
            self.figures.push(Figure {
                name: name.to_owned(),
                text: text.get().to_owned(),
                value: Some(value),
                unit: Some(unit.to_owned()),
                axes: workload.axes.clone(),
            });
            Ok::<(), String>(())
        };
        if let Some(TracePerformance { latency_ms, reference_latency_ms, speedup_factor }) = performance {
            add("latency_ms", latency_ms, 1e6, "ns")?;
            add("reference_latency_ms", reference_latency_ms, 1e6, "ns")?;
            add("speedup_factor", speedup_factor, 1.0, "ratio")?;
        }
        if let Some(TraceCorrectness { max_relative_error, max_absolute_error }) = correctness {
            add("max_relative_error", max_relative_error, 1.0, "share")?;
            add("max_absolute_error", max_absolute_error, 1.0, "absolute")?;
        }
        if status != "PASSED" {
            self.failed += 1;
            self.figures.push(Figure {
                name: "status".to_owned(),
                text: status.clone(),
                value: None,
                unit: None,
                axes: workload.axes.clone(),
            });
        }
        self.observed = self.observed.clone().max(timestamp.clone());
        self.libs.extend(environment.libs.iter().map(|(name, version)| format!("{name} {version}")));
        Ok(())
    }

    fn external(self, (solution, hardware, definition): (String, String, String), source: &TraceSource) -> ExternalRun {
        let uuids: Vec<&str> = self.workloads.iter().map(String::as_str).collect();
        // Two runs belong beside each other only if they are of the same workloads.
        let these = Digest::of(uuids.join("\n").as_bytes()).short();
        let mut caveats = vec![
            "latency_ms is a mean over calls as the trace format defines it; no samples are known".to_owned(),
            "a trace does not name the version of the evaluation stack; it is as the importer was told".to_owned(),
        ];
        if self.failed > 0 {
            caveats.push(format!("{} of {} workloads did not pass", self.failed, self.workloads.len()));
        }
        if !self.libs.is_empty() {
            caveats.push(format!("ran with {}", self.libs.iter().cloned().collect::<Vec<_>>().join(", ")));
        }
        ExternalRun {
            operation: self.operation,
            source: source.reference.clone(),
            implementation: solution,
            hardware,
            workload: format!("{} workloads of {definition} ({these})", self.workloads.len()),
            protocol: source.protocol.clone(),
            observed: Some(self.observed),
            figures: self.figures,
            caveats,
        }
    }
}

/// A number that the source wrote as one: not a text, not negative, not NaN.
fn number(name: &str, text: &RawValue) -> Result<f64, String> {
    let found: Result<f64, _> = serde_json::from_str(text.get());
    found
        .ok()
        .filter(|number| *number >= 0.0 && number.is_finite())
        .ok_or_else(|| format!("evaluation: {name}: found {}, expected a number of 0 or more", text.get()))
}

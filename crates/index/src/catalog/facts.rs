//! The facts of a run, computed from its bundle once.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernelproof_eval::check::Agreement;
use kernelproof_eval::evaluation::{self, Aggregates, CaseResult, Evaluation, Headroom, Status};

use crate::bundle::{Bundle, Files, RUN};
use crate::identity::Digest;
use crate::manifest::ManifestError;
use crate::trust::Standing;

use super::run::{AggregateFacts, CaseFacts, CorrectnessFacts, Estimate, FileFacts, Origin, RunFacts, SampleFacts};

impl RunFacts {
    /// The facts of a bundle that was verified.
    ///
    /// # Errors
    /// When something in it has no identity, which verification rules out.
    pub fn of(bundle: &Bundle, origin: Origin) -> Result<Self, ManifestError> {
        Self::of_files(bundle, &bundle.files()?, origin)
    }

    /// As [`RunFacts::of`], where the bundle's files are at hand. They must be those of the bundle.
    ///
    /// # Errors
    /// As [`RunFacts::of`].
    pub(crate) fn of_files(bundle: &Bundle, files: &Files, origin: Origin) -> Result<Self, ManifestError> {
        let run = &bundle.run.spec;
        let evaluation = &run.evaluation;
        let axes: BTreeMap<&str, &BTreeMap<String, u64>> =
            bundle.suite.spec.cases.iter().map(|case| (case.name.as_str(), &case.axes)).collect();
        let axes_of = |case: &CaseResult| axes.get(case.name.as_str()).map(|axes| (*axes).clone()).unwrap_or_default();
        let cases: Vec<CaseFacts> =
            evaluation.cases.iter().map(|case| CaseFacts::of(evaluation, case, axes_of(case))).collect();
        // A manifest's file is its canonical JSON, so the digest of the file is its identity.
        let id = files.all().get(RUN).map_or_else(|| bundle.run.digest(), |text| Ok(Digest::of(text)))?;
        let file = |text: &Vec<u8>| FileFacts { digest: Digest::of(text), size_bytes: text.len() as u64 };
        Ok(Self {
            id,
            name: bundle.name_with(id),
            origin,
            operation: run.operation,
            suite: run.suite,
            implementation_id: run.implementation,
            protocol_id: run.protocol,
            environment_id: run.environment,
            observed: evaluation.observed.clone(),
            implementation: Arc::new(bundle.implementation.spec.clone()),
            protocol: Arc::new(bundle.protocol.spec.clone()),
            environment: Arc::new(bundle.environment.spec.clone()),
            device_kind: evaluation.implementation.device.clone(),
            command: evaluation.command.clone(),
            baseline: evaluation.baseline.clone(),
            ceilings: evaluation.ceilings.clone(),
            measured: AggregateFacts::of(&evaluation.aggregates(evaluation::Origin::Measured), &cases),
            datasheet: AggregateFacts::of(&evaluation.aggregates(evaluation::Origin::Datasheet), &cases),
            cases,
            missing: Standing::of(bundle).missing,
            files: files.all().iter().map(|(name, text)| (name.clone(), file(text))).collect(),
        })
    }
}

impl AggregateFacts {
    fn of(aggregates: &Aggregates, cases: &[CaseFacts]) -> Self {
        let times: Option<Vec<Estimate>> = cases.iter().map(CaseFacts::time_ns).collect();
        Self {
            passed: aggregates.passed,
            cases: aggregates.cases,
            geometric_mean_ns: times.and_then(Estimate::geometric_mean),
            arithmetic_mean_ns: aggregates.arithmetic_mean_ns,
            worst_ratio: aggregates.worst_ratio,
            share_of_light: aggregates.share_of_light,
            score: aggregates.score,
        }
    }
}

impl CaseFacts {
    fn of(evaluation: &Evaluation, case: &CaseResult, axes: BTreeMap<String, u64>) -> Self {
        let cost = case.cost();
        let light = |origin| evaluation.speed_of_light(cost, origin);
        let (measured, datasheet) = (light(evaluation::Origin::Measured), light(evaluation::Origin::Datasheet));
        Self {
            name: case.name.clone(),
            id: case.id.clone(),
            axes,
            status: case.status,
            detail: case.detail.clone(),
            observed: case.observed.clone(),
            samples: SampleFacts::of(&case.samples_ns),
            flops: u64::try_from(cost.flops).unwrap_or(u64::MAX),
            min_bytes: u64::try_from(cost.min_bytes).unwrap_or(u64::MAX),
            measured_sol_ns: measured.map(|light| light.time_ns),
            datasheet_sol_ns: datasheet.map(|light| light.time_ns),
            bound_by: datasheet.or(measured).map(|light| light.bound_by),
            baseline_ns: case.baseline_ns,
            correctness: CorrectnessFacts::of(case),
            throttled: case.throttled(),
            telemetry: case.telemetry.clone(),
        }
    }

    /// Whether it passed with a time above 0.
    pub(crate) fn has_time(&self) -> bool {
        self.status == Status::Passed && self.samples.is_some_and(|samples| samples.min_ns > 0)
    }
}

impl CorrectnessFacts {
    fn of(case: &CaseResult) -> Option<Self> {
        let Headroom { normwise: normwise_headroom, componentwise: componentwise_headroom, .. } = case.headroom()?;
        let agreements = || case.rounds.iter().flat_map(|round| &round.agreements);
        let worst = |of: fn(&Agreement) -> f64| agreements().map(of).fold(0.0, f64::max);
        let repeated: Vec<bool> = case.rounds.iter().filter_map(|round| round.repeatable).collect();
        Some(Self {
            rounds: case.rounds.len() as u64,
            normwise: worst(|agreement| agreement.normwise),
            normwise_bound: case.bounds.normwise,
            normwise_headroom,
            componentwise: worst(|agreement| agreement.componentwise),
            componentwise_bound: case.bounds.componentwise,
            componentwise_headroom,
            matched: agreements().map(|agreement| agreement.matched).fold(1.0, f64::min),
            repeatable: (!repeated.is_empty()).then(|| repeated.iter().all(|equal| *equal)),
            spot_checked_calls: case.spot_checked_calls,
            audited: case.audit.is_some(),
        })
    }
}

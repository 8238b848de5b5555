//! Workloads and suites: an operation with concrete axes, what its inputs are, and how far a result may be off.

use std::collections::BTreeMap;

use kernelproof_eval::check::Bounds;
use qkv_rope_op::{Case, Precision, SUITE};
use serde::{Deserialize, Serialize};

use crate::identity::Digest;
use crate::manifest::{Invalid, Spec};

/// One problem to be solved: an operation with concrete axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Identity of the operation.
    pub operation: Digest,
    /// Which case it is.
    pub case: SuiteCase,
    /// What its inputs are.
    pub inputs: InputRule,
    /// How far a result may be off, per mode.
    pub bounds: Vec<ModeBounds>,
}

/// A list of workloads that are run together, and the figures that sum them up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Identity of the operation.
    pub operation: Digest,
    /// What the inputs of every case are.
    pub inputs: InputRule,
    /// How far a result may be off, per mode.
    pub bounds: Vec<ModeBounds>,
    /// The cases, in the order in which tables list them.
    pub cases: Vec<SuiteCase>,
    /// Figures over all cases.
    pub aggregates: Vec<Aggregate>,
}

/// Concrete axes and their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteCase {
    /// First 12 hex digits of the SHA-256 of all axes ([`Case::id`]).
    pub id: String,
    /// What a person types.
    pub name: String,
    /// The variable axes of the operation.
    pub axes: BTreeMap<String, u64>,
}

/// How inputs are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputRule {
    /// Name and version of the generator.
    pub generator: String,
    /// Distribution of each group of inputs.
    pub distributions: BTreeMap<String, String>,
    /// The seed of everyone; records use a second, secret one as well.
    pub seed: u64,
}

/// The bounds of one mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeBounds {
    /// How operands are rounded.
    pub mode: Precision,
    /// What that allows.
    pub bounds: Bounds,
}

/// A figure over all cases of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregate {
    /// Geometric mean of the median times.
    GeometricMean,
    /// Arithmetic mean of the median times.
    ArithmeticMean,
    /// The worst ratio of a case.
    WorstRatio,
    /// Mean of 1/(1 + (T − T_sol)/(T_b − T_sol)).
    Score,
}

impl From<Case> for SuiteCase {
    fn from(case: Case) -> Self {
        let axes = [("batch_size", case.batch), ("seq_len", case.seq)];
        let axes = axes.map(|(name, value)| (name.to_owned(), value as u64)).into();
        Self { id: case.id(), name: case.name(), axes }
    }
}

impl InputRule {
    /// The rule of `qkv_rope_op::Recipe::Benchmark`.
    pub fn benchmark() -> Self {
        let distributions = [
            ("grad_query, grad_key, grad_value, hidden_states", "N(0, 1)"),
            ("q_weight, k_weight, v_weight", "N(0, 1) / sqrt(hidden_size)"),
            ("cos", "cos of N(0, 1) clamped to [-pi, pi]"),
            ("sin", "sin of another N(0, 1) clamped to [-pi, pi]"),
        ];
        Self {
            generator: "qkv-rope-op benchmark 1".to_owned(),
            distributions: distributions.map(|(inputs, rule)| (inputs.to_owned(), rule.to_owned())).into(),
            seed: 200,
        }
    }
}

impl Suite {
    /// The sixteen cases of this project.
    pub fn ours(operation: Digest) -> Self {
        let modes = [Precision::Ieee, Precision::Split, Precision::Fast];
        Self {
            name: "qkv-rope-backward".to_owned(),
            operation,
            inputs: InputRule::benchmark(),
            bounds: modes.map(|mode| ModeBounds { mode, bounds: Bounds::of(mode) }).to_vec(),
            cases: SUITE.into_iter().map(SuiteCase::from).collect(),
            aggregates: vec![
                Aggregate::GeometricMean,
                Aggregate::ArithmeticMean,
                Aggregate::WorstRatio,
                Aggregate::Score,
            ],
        }
    }

    /// The workload of one of its cases.
    pub fn workload(&self, case: &SuiteCase) -> Workload {
        let Self { operation, inputs, bounds, .. } = self;
        Workload { operation: *operation, case: case.clone(), inputs: inputs.clone(), bounds: bounds.clone() }
    }
}

impl SuiteCase {
    /// The same case with the contract's sizes.
    ///
    /// # Errors
    /// When the axes are others than batch and sequence length, or name and id are not theirs.
    pub fn case(&self) -> Result<Case, Invalid> {
        let axis = |name: &str| {
            let value = self.axes.get(name).and_then(|&value| usize::try_from(value).ok());
            value.ok_or_else(|| Invalid::new(format!("cases.{}.axes.{name}", self.name), "nothing", "a size"))
        };
        let (seq, batch) = (axis("seq_len")?, axis("batch_size")?);
        let found = SUITE.into_iter().find(|case| (case.seq, case.batch) == (seq, batch));
        let unknown = || Invalid::new(format!("cases.{}.axes", self.name), format!("{:?}", self.axes), "a known case");
        let case = found.ok_or_else(unknown)?;
        let expected = Self::from(case);
        let named = format!("id {}, name {}, axes {:?}", expected.id, expected.name, expected.axes);
        Invalid::unless(*self == expected, format!("cases.{}", self.name), format!("{self:?}"), named)?;
        Ok(case)
    }
}

fn validate_bounds(bounds: &[ModeBounds]) -> Result<(), Invalid> {
    Invalid::unless(!bounds.is_empty(), "bounds", "none", "those of a mode at least")?;
    for (index, ModeBounds { bounds, .. }) in bounds.iter().enumerate() {
        let Bounds { normwise, componentwise, bias, unmatched } = *bounds;
        for bound in [normwise, componentwise, bias, unmatched] {
            Invalid::unless(bound > 0.0 && bound < 1.0, format!("bounds[{index}]"), bound, "above 0 and below 1")?;
        }
    }
    Ok(())
}

impl Spec for Workload {
    const KIND: &'static str = "Workload";

    fn validate(&self) -> Result<(), Invalid> {
        validate_bounds(&self.bounds)?;
        self.case.case().map(drop)
    }
}

impl Spec for Suite {
    const KIND: &'static str = "Suite";

    fn validate(&self) -> Result<(), Invalid> {
        Invalid::unless_text("name", &self.name)?;
        Invalid::unless(!self.cases.is_empty(), "cases", "none", "at least one")?;
        Invalid::unless_distinct("cases", self.cases.iter().map(|case| case.id.as_str()))?;
        validate_bounds(&self.bounds)?;
        self.cases.iter().try_for_each(|case| case.case().map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::operation::Operation;
    use crate::testing::records;

    fn ours() -> Manifest<Suite> {
        let operation = std::fs::read(records().join("operations/qkv-rope-backward.json")).expect("it is committed");
        let operation = Manifest::<Operation>::parse(&operation).expect("it is an operation");
        Manifest::new(Suite::ours(operation.digest().expect("it has an identity")))
    }

    #[test]
    fn the_committed_suite_is_the_one_that_this_build_runs() {
        let text = std::fs::read_to_string(records().join("suites/qkv-rope-backward.json")).expect("it is committed");
        assert_eq!(text, ours().text().expect("it is JSON"));
        assert_eq!(Manifest::parse(text.as_bytes()).expect("it is a suite"), ours());
    }

    #[test]
    fn every_case_is_a_workload_of_its_own() {
        let suite = ours().spec;
        let digest = |case| {
            let workload = Manifest::new(suite.workload(case));
            workload.spec.validate().expect("it is valid");
            workload.digest().expect("it has an identity")
        };
        let digests: std::collections::BTreeSet<Digest> = suite.cases.iter().map(digest).collect();
        assert_eq!(digests.len(), 16);
    }

    #[test]
    fn a_case_under_another_name_is_refused() {
        let mut suite = ours().spec;
        suite.cases[0].id = suite.cases[1].id.clone();
        assert!(suite.validate().expect_err("the id is twice").to_string().contains("twice"));
        suite.cases[0].id = "0123456789ab".to_owned();
        let error = suite.validate().expect_err("the id is wrong").to_string();
        assert!(error.contains("expected id 7803e88b316d, name s128b2"), "{error}");
        suite.cases[0].axes.insert("seq_len".to_owned(), 7);
        assert!(suite.validate().is_err());
    }
}

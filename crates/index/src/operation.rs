//! Operations: axes, tensors and semantics, as public indexes state them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::manifest::{Invalid, Spec};

/// What an operation computes on, without saying how.
///
/// The version, the kind and the fields are those of the public index that first stated the operation, so that both give it the same
/// digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Its sizes, by name.
    pub axes: BTreeMap<String, Axis>,
    /// Which family of operations it belongs to.
    pub family: String,
    /// Tensors that it reads, in order.
    pub inputs: Vec<Argument>,
    /// Tensors that it writes, in order.
    pub outputs: Vec<Argument>,
    /// What else a caller may rely on.
    pub semantics: Semantics,
}

/// A size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
pub enum Axis {
    /// Chosen by each workload.
    Variable {
        /// Its type.
        r#type: AxisType,
    },
    /// The same in all workloads.
    Constant {
        /// Its type.
        r#type: AxisType,
        /// Its value.
        value: u64,
    },
    /// Follows from others.
    Derived {
        /// Its type.
        r#type: AxisType,
        /// `a * b` or `a // 2`.
        expression: String,
    },
}

/// Type of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AxisType {
    /// A whole number.
    Integer,
}

/// A named tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its type and shape.
    pub tensor: TensorType,
}

/// Element type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorType {
    /// Element type.
    pub dtype: Dtype,
    /// Axes, outermost first.
    pub shape: Vec<String>,
}

/// Element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// 32-bit floating point.
    Fp32,
    /// 16-bit floating point, 11-bit significand.
    Fp16,
    /// 16-bit floating point, 8-bit significand.
    Bf16,
}

/// What a caller may rely on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Semantics {
    /// Whether equal inputs must give equal bits.
    pub determinism: String,
    /// Which inputs are changed.
    pub mutation: String,
}

impl Operation {
    /// All axes as numbers, given the variable ones.
    ///
    /// # Errors
    /// Names an axis that is missing, unknown or cannot be computed.
    pub fn sizes(&self, variable: &BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>, Invalid> {
        for name in variable.keys() {
            let known = matches!(self.axes.get(name), Some(Axis::Variable { .. }));
            Invalid::unless(known, format!("axes.{name}"), "a value", "none: the operation has no such variable axis")?;
        }
        let mut sizes = BTreeMap::new();
        for (name, axis) in &self.axes {
            match axis {
                Axis::Constant { value, .. } => sizes.insert(name.clone(), *value),
                Axis::Variable { .. } => {
                    let value = variable.get(name);
                    let missing = || Invalid::new(format!("axes.{name}"), "nothing", "a value: the axis is variable");
                    sizes.insert(name.clone(), *value.ok_or_else(missing)?)
                }
                Axis::Derived { .. } => None,
            };
        }
        let mut derived = Vec::new();
        for (name, axis) in &self.axes {
            if let Axis::Derived { expression, .. } = axis {
                let value = evaluate(expression, &sizes);
                let wrong = || Invalid::new(format!("axes.{name}.expression"), format!("{expression:?}"), EXPRESSION);
                derived.push((name.clone(), value.ok_or_else(wrong)?));
            }
        }
        sizes.extend(derived);
        Ok(sizes)
    }

    /// The shape of an input or output, given all sizes.
    pub fn shape(&self, tensor: &str, sizes: &BTreeMap<String, u64>) -> Option<Vec<u64>> {
        let argument = self.inputs.iter().chain(&self.outputs).find(|argument| argument.name == tensor)?;
        argument.tensor.shape.iter().map(|axis| sizes.get(axis).copied()).collect()
    }
}

const EXPRESSION: &str = "`a * b`, `a // b`, `a + b` or `a - b` of numbers and axes that are not derived";

/// The value of an expression; `None` when it is none or overflows.
fn evaluate(expression: &str, sizes: &BTreeMap<String, u64>) -> Option<u64> {
    let words: Vec<&str> = expression.split(' ').collect();
    let [left, operator, right] = words.as_slice() else { return None };
    let operand = |word: &str| word.parse().ok().or_else(|| sizes.get(word).copied());
    let (left, right): (u64, u64) = (operand(left)?, operand(right)?);
    match *operator {
        "*" => left.checked_mul(right),
        "//" => left.checked_div(right),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        _ => None,
    }
}

impl Spec for Operation {
    const API_VERSION: &'static str = "kernelindex.dev/v1alpha1";
    const KIND: &'static str = "OperationSpec";

    fn validate(&self) -> Result<(), Invalid> {
        let arguments = || self.inputs.iter().chain(&self.outputs);
        Invalid::unless_text("family", &self.family)?;
        Invalid::unless(!self.outputs.is_empty(), "outputs", "none", "at least one")?;
        Invalid::unless_distinct("inputs and outputs", arguments().map(|argument| argument.name.as_str()))?;
        for argument in arguments() {
            for axis in &argument.tensor.shape {
                let field = format!("{}.tensor.shape", argument.name);
                Invalid::unless(self.axes.contains_key(axis), field, format!("{axis:?}"), "the name of an axis")?;
            }
        }
        let variable = self.axes.iter().filter(|(_, axis)| matches!(axis, Axis::Variable { .. }));
        self.sizes(&variable.map(|(name, _)| (name.clone(), 1)).collect()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use qkv_rope_op::{SUITE, Tensor};

    use super::*;
    use crate::manifest::Manifest;
    use crate::testing::records;

    const FILE: &str = "operations/qkv-rope-backward.json";

    fn operation() -> Manifest<Operation> {
        let text = std::fs::read(records().join(FILE)).expect("it is committed");
        Manifest::parse(&text).expect("it is an operation")
    }

    #[test]
    fn the_operation_has_the_digest_of_the_public_index() {
        let digest = operation().digest().expect("it has an identity").to_string();
        assert_eq!(digest, "sha256:e810e0e29d644f8b12769bf72490e75a12a348aff421e56c07eeab455942aa7b");
    }

    #[test]
    fn its_shapes_are_those_of_the_contract() {
        let operation = operation().spec;
        for case in SUITE {
            let axes = [("batch_size", case.batch), ("seq_len", case.seq)];
            let axes = axes.map(|(name, value)| (name.to_owned(), value as u64));
            let sizes = operation.sizes(&axes.into()).expect("the axes are those of the operation");
            for tensor in Tensor::INPUTS.into_iter().chain(Tensor::OUTPUTS) {
                let expected: Vec<u64> = case.dims().shape(tensor).iter().map(|&extent| extent as u64).collect();
                assert_eq!(operation.shape(tensor.name(), &sizes), Some(expected), "{tensor}");
            }
        }
    }

    #[test]
    fn metadata_is_not_in_the_identity_and_every_field_of_the_spec_is() {
        let before = operation().digest().expect("it has an identity");
        let mut other = operation();
        other.metadata.title = Some("Another name".to_owned());
        assert_eq!(other.digest().expect("it has an identity"), before);
        other.spec.family.push('x');
        assert_ne!(other.digest().expect("it has an identity"), before);
    }

    #[test]
    fn errors_name_the_field() {
        let text = String::from_utf8(std::fs::read(records().join(FILE)).expect("it is committed")).expect("UTF-8");
        let message = |from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            Manifest::<Operation>::parse(text.replacen(from, to, 1).as_bytes()).expect_err("it is wrong").to_string()
        };
        let found = message("\"value\": 96", "\"value\": \"96\"");
        assert!(found.starts_with("spec.axes.head_dim: invalid type: string \"96\", expected u64"), "{found}");
        let found = message("\"family\"", "\"famly\"");
        assert!(found.starts_with("spec.famly: unknown field `famly`, expected one of"), "{found}");
        let found = message("head_dim // 2", "head_dim / 2");
        assert!(found.starts_with("spec.axes.half_head_dim.expression: found \"head_dim / 2\", expected"), "{found}");
        let found = message("kernelindex.dev/v1alpha1", "kernelindex.dev/v9");
        assert_eq!(found, "apiVersion: found \"kernelindex.dev/v9\", expected \"kernelindex.dev/v1alpha1\"");
        assert!(message("\"name\": \"cos\"", "\"name\": \"sin\"").contains("\"sin\" twice"));
        assert!(Manifest::<Operation>::parse(format!("{text}x").as_bytes()).is_err());
    }
}

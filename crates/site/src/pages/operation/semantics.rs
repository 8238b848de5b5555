//! What an operation computes on.

use kernelproof_index::operation::{Argument, Axis, Dtype, Operation};
use serde::Serialize;
use utoipa::ToSchema;

/// Axes, tensors, and what a caller may rely on.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Semantics {
    /// Tensors that it reads.
    pub inputs: Vec<Tensor>,
    /// Tensors that it writes.
    pub outputs: Vec<Tensor>,
    /// Its sizes: name, and `variable`, a value or an expression.
    pub axes: Vec<[String; 2]>,
    /// Whether equal inputs must give equal bits.
    pub determinism: String,
    /// Which inputs are changed.
    pub mutation: String,
}

/// A tensor.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Tensor {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: &'static str,
    /// Axes, outermost first.
    pub shape: Vec<String>,
}

impl Semantics {
    /// What the manifest of an operation says.
    pub(crate) fn of(operation: &Operation) -> Self {
        let axis = |(name, axis): (&String, &Axis)| {
            let rule = match axis {
                Axis::Variable { .. } => "variable".to_owned(),
                Axis::Constant { value, .. } => format!("= {value}"),
                Axis::Derived { expression, .. } => format!("= {expression}"),
            };
            [name.clone(), rule]
        };
        Self {
            inputs: operation.inputs.iter().map(Tensor::of).collect(),
            outputs: operation.outputs.iter().map(Tensor::of).collect(),
            axes: operation.axes.iter().map(axis).collect(),
            determinism: operation.semantics.determinism.clone(),
            mutation: operation.semantics.mutation.clone(),
        }
    }
}

impl Tensor {
    fn of(argument: &Argument) -> Self {
        let dtype = match argument.tensor.dtype {
            Dtype::Fp32 => "fp32",
            Dtype::Fp16 => "fp16",
            Dtype::Bf16 => "bf16",
        };
        Self { name: argument.name.clone(), dtype, shape: argument.tensor.shape.clone() }
    }
}

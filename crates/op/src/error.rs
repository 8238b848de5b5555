//! What can be wrong with a call, said so that the reader knows which tensor to look at.

use serde::{Deserialize, Serialize};

/// The thirteen tensors of the operation, by the names that files and errors use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are the documentation; op::Dims::shape gives the shapes")]
pub enum Tensor {
    GradQuery,
    GradKey,
    GradValue,
    HiddenStates,
    QWeight,
    KWeight,
    VWeight,
    Cos,
    Sin,
    GradHiddenStates,
    GradQWeight,
    GradKWeight,
    GradVWeight,
}

impl Tensor {
    /// The inputs, in the order of the contract.
    pub const INPUTS: [Self; 9] = [
        Self::GradQuery,
        Self::GradKey,
        Self::GradValue,
        Self::HiddenStates,
        Self::QWeight,
        Self::KWeight,
        Self::VWeight,
        Self::Cos,
        Self::Sin,
    ];

    /// The outputs, in the order of the contract.
    pub const OUTPUTS: [Self; 4] = [Self::GradHiddenStates, Self::GradQWeight, Self::GradKWeight, Self::GradVWeight];

    /// The name used in files, manifests and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::GradQuery => "grad_query",
            Self::GradKey => "grad_key",
            Self::GradValue => "grad_value",
            Self::HiddenStates => "hidden_states",
            Self::QWeight => "q_weight",
            Self::KWeight => "k_weight",
            Self::VWeight => "v_weight",
            Self::Cos => "cos",
            Self::Sin => "sin",
            Self::GradHiddenStates => "grad_hidden_states",
            Self::GradQWeight => "grad_q_weight",
            Self::GradKWeight => "grad_k_weight",
            Self::GradVWeight => "grad_v_weight",
        }
    }
}

impl std::fmt::Display for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a problem or a call was refused. Nothing has been written when one of these is returned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The sizes contradict each other or are not addressable.
    #[error("dimensions: {why}")]
    Dims {
        /// What was found and what was expected.
        why: String,
    },
    /// A view reaches past the memory it was made from.
    #[error("view of shape {shape:?} with strides {strides:?} needs {needed} elements, found {found}")]
    Bounds {
        /// Shape asked for.
        shape: Vec<usize>,
        /// Strides asked for, in elements.
        strides: Vec<usize>,
        /// Elements that such a view spans.
        needed: u128,
        /// Elements that the buffer has.
        found: usize,
    },
    /// The last dimension of a view is not contiguous.
    #[error(
        "view of shape {shape:?} has stride {stride} in its last dimension, expected 1: copy it to contiguous memory first"
    )]
    LastDimStride {
        /// Shape asked for.
        shape: Vec<usize>,
        /// Stride of the last dimension, in elements.
        stride: usize,
    },
    /// An output view maps two indices to one element.
    #[error("output view of shape {shape:?} with strides {strides:?} writes an element more than once")]
    SelfOverlap {
        /// Shape asked for.
        shape: Vec<usize>,
        /// Strides asked for, in elements.
        strides: Vec<usize>,
    },
    /// A tensor has another shape than the dimensions say.
    #[error("{tensor}: found shape {found:?}, expected {expected:?}")]
    Shape {
        /// The tensor.
        tensor: Tensor,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that the dimensions give.
        expected: Vec<usize>,
    },
    /// An input that a requested output needs was not given.
    #[error("{tensor}: missing, but {needed_by} is computed from it")]
    MissingInput {
        /// The missing input.
        tensor: Tensor,
        /// The output that needs it.
        needed_by: Tensor,
    },
    /// An input that every call needs was not given.
    #[error("{tensor}: missing, every call needs it")]
    Absent {
        /// The missing input.
        tensor: Tensor,
    },
    /// The outputs handed over are not those the session was planned for.
    #[error("{tensor}: found {found}, expected {expected} as planned")]
    Request {
        /// The output.
        tensor: Tensor,
        /// What the call hands over.
        found: &'static str,
        /// What the problem says.
        expected: &'static str,
    },
    /// Two tensors share memory and one of them is written.
    #[error("{first} and {second} overlap in memory, and {first} is written")]
    Overlap {
        /// The output.
        first: Tensor,
        /// The other tensor.
        second: Tensor,
    },
    /// The backend cannot run this problem.
    #[error("{backend} cannot run this problem: {why}")]
    Refused {
        /// The backend's name.
        backend: String,
        /// What it lacks.
        why: String,
    },
    /// The backend started and could not finish; outputs are unspecified.
    #[error("{backend} failed: {why}")]
    Failed {
        /// The backend's name.
        backend: String,
        /// What happened.
        why: String,
    },
}

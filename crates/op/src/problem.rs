//! One problem: its sizes, how heads are paired, how exact it must be, what is wanted; and the tensors of a call.

use serde::{Deserialize, Serialize};

use crate::dims::Dims;
use crate::error::{Error, Tensor};
use crate::view::{View, ViewMut};

/// Which two elements of a head are rotated together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// (i, i + R/2): NeoX, Hugging Face Llama.
    #[default]
    HalfSplit,
    /// (2i, 2i + 1): GPT-J, the original RoFormer.
    Interleaved,
}

impl Pairing {
    /// The two indices of pair `pair` of `rotary_dim / 2`.
    pub fn indices(self, pair: usize, rotary_dim: usize) -> (usize, usize) {
        match self {
            Self::HalfSplit => (pair, pair + rotary_dim / 2),
            Self::Interleaved => (2 * pair, 2 * pair + 1),
        }
    }

    /// The element that `element` (below R) is rotated with.
    pub fn partner(self, element: usize, rotary_dim: usize) -> Partner {
        let half = rotary_dim / 2;
        let (index, is_second) = match self {
            Self::HalfSplit if element < half => (element + half, true),
            Self::HalfSplit => (element - half, false),
            Self::Interleaved => (element ^ 1, element.is_multiple_of(2)),
        };
        Partner { index, is_second }
    }
}

/// The other element of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partner {
    /// Its place in the head.
    pub index: usize,
    /// Whether it is the pair's second element: then its share of `u` is added, otherwise subtracted.
    pub is_second: bool,
}

/// How operands are rounded before they are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// f32 operands, f32 fused multiply-add.
    #[default]
    Ieee,
    /// Two 11-bit terms per operand, three products, promoted f32 accumulation.
    Split,
    /// One 11-bit term per operand, f32 accumulation.
    Fast,
}

impl Precision {
    /// The largest allowed `‖out − ref‖₂ / ‖ref‖₂` of any output tensor, for T <= 65 536.
    pub fn normwise_bound(self) -> f64 {
        match self {
            Self::Ieee | Self::Split => 2e-6,
            Self::Fast => 4e-4,
        }
    }
}

/// What happens to an output's old contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Write {
    /// They are never read.
    Overwrite,
    /// The gradient is computed in full and then added with exactly one f32 addition per element.
    Accumulate,
}

impl Write {
    /// Times that an element of the output crosses the memory bus.
    pub(crate) fn touches(self) -> u128 {
        match self {
            Self::Overwrite => 1,
            Self::Accumulate => 2,
        }
    }
}

/// Which outputs are wanted; what is `None` costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are the four outputs")]
pub struct Requested {
    pub grad_hidden: Option<Write>,
    pub grad_q_weight: Option<Write>,
    pub grad_k_weight: Option<Write>,
    pub grad_v_weight: Option<Write>,
}

impl Requested {
    /// All four outputs, written the same way.
    pub fn all(write: Write) -> Self {
        Self {
            grad_hidden: Some(write),
            grad_q_weight: Some(write),
            grad_k_weight: Some(write),
            grad_v_weight: Some(write),
        }
    }

    /// Nothing; a start for building a selection.
    pub fn none() -> Self {
        Self { grad_hidden: None, grad_q_weight: None, grad_k_weight: None, grad_v_weight: None }
    }

    /// The request for one output.
    pub fn get(&self, output: Tensor) -> Option<Write> {
        match output {
            Tensor::GradHiddenStates => self.grad_hidden,
            Tensor::GradQWeight => self.grad_q_weight,
            Tensor::GradKWeight => self.grad_k_weight,
            Tensor::GradVWeight => self.grad_v_weight,
            _ => None,
        }
    }

    /// Whether any weight gradient is wanted.
    pub fn any_weight(&self) -> bool {
        self.grad_q_weight.is_some() || self.grad_k_weight.is_some() || self.grad_v_weight.is_some()
    }
}

/// Everything that a backend plans from: no pointers, so a plan can be made and printed anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// Sizes.
    pub dims: Dims,
    /// Which elements are rotated together.
    pub pairing: Pairing,
    /// How operands are rounded.
    pub precision: Precision,
    /// Which outputs are computed, and how they are written.
    pub outputs: Requested,
}

impl Problem {
    /// All four outputs overwritten, half-split pairing, `ieee` precision.
    pub fn new(dims: Dims) -> Self {
        Self {
            dims,
            pairing: Pairing::default(),
            precision: Precision::default(),
            outputs: Requested::all(Write::Overwrite),
        }
    }
}

/// The inputs of a call. Weights are needed for grad_hidden only, hidden states for weight gradients only.
///
/// Shapes: see [`Dims::shape`]. `cos` and `sin` are general: halves may differ, c² + s² need not be 1.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are the nine inputs")]
pub struct Inputs<'a> {
    pub grad_query: View<'a, 4>,
    pub grad_key: View<'a, 4>,
    pub grad_value: View<'a, 4>,
    pub hidden_states: Option<View<'a, 3>>,
    pub q_weight: Option<View<'a, 2>>,
    pub k_weight: Option<View<'a, 2>>,
    pub v_weight: Option<View<'a, 2>>,
    pub cos: View<'a, 3>,
    pub sin: View<'a, 3>,
}

/// One output and what happens to its old contents.
#[derive(Debug)]
pub struct Output<'a, const RANK: usize> {
    /// Where it goes.
    pub view: ViewMut<'a, RANK>,
    /// Overwrite or accumulate.
    pub write: Write,
}

impl<'a, const RANK: usize> Output<'a, RANK> {
    /// An output whose old contents do not matter.
    pub fn overwrite(view: ViewMut<'a, RANK>) -> Self {
        Self { view, write: Write::Overwrite }
    }

    /// An output that the gradient is added to.
    pub fn accumulate(view: ViewMut<'a, RANK>) -> Self {
        Self { view, write: Write::Accumulate }
    }
}

/// The outputs of a call; what is `None` is not computed.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "the fields are the four outputs")]
pub struct Outputs<'a> {
    pub grad_hidden: Option<Output<'a, 3>>,
    pub grad_q_weight: Option<Output<'a, 2>>,
    pub grad_k_weight: Option<Output<'a, 2>>,
    pub grad_v_weight: Option<Output<'a, 2>>,
}

impl Outputs<'_> {
    /// What these outputs ask for.
    pub fn requested(&self) -> Requested {
        Requested {
            grad_hidden: self.grad_hidden.as_ref().map(|output| output.write),
            grad_q_weight: self.grad_q_weight.as_ref().map(|output| output.write),
            grad_k_weight: self.grad_k_weight.as_ref().map(|output| output.write),
            grad_v_weight: self.grad_v_weight.as_ref().map(|output| output.write),
        }
    }
}

/// What is known of one tensor of a call, whatever its rank.
struct Seen {
    tensor: Tensor,
    shape: Vec<usize>,
    addresses: std::ops::Range<usize>,
}

impl Seen {
    fn input<const RANK: usize>(tensor: Tensor, view: &View<'_, RANK>) -> Self {
        Self { tensor, shape: view.shape().to_vec(), addresses: view.address_range() }
    }

    fn output<const RANK: usize>(tensor: Tensor, output: &Output<'_, RANK>) -> Self {
        Self { tensor, shape: output.view.shape().to_vec(), addresses: output.view.address_range() }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.addresses.start < other.addresses.end && other.addresses.start < self.addresses.end
    }
}

impl Problem {
    /// Checks the tensors of a call against this problem. Every backend calls it first, so that a wrong call is the
    /// same error everywhere and nothing is written.
    ///
    /// Two tensors count as overlapping when their address ranges do: outputs that interleave without sharing an
    /// element are refused too.
    ///
    /// # Errors
    /// [`Error::Request`], [`Error::MissingInput`], [`Error::Shape`] or [`Error::Overlap`], naming the tensor.
    pub fn validate(&self, inputs: &Inputs<'_>, outputs: &Outputs<'_>) -> Result<(), Error> {
        self.validate_request(outputs.requested())?;
        self.validate_presence(inputs)?;
        let read = seen_inputs(inputs);
        let written = seen_outputs(outputs);
        self.validate_shapes(read.iter().chain(&written))?;
        for (index, output) in written.iter().enumerate() {
            let others = read.iter().chain(&written[index + 1..]);
            if let Some(other) = others.into_iter().find(|other| output.overlaps(other)) {
                return Err(Error::Overlap { first: output.tensor, second: other.tensor });
            }
        }
        Ok(())
    }

    /// Checks the inputs alone, for work that has no outputs yet.
    ///
    /// # Errors
    /// [`Error::MissingInput`] or [`Error::Shape`], naming the tensor.
    pub fn validate_inputs(&self, inputs: &Inputs<'_>) -> Result<(), Error> {
        self.validate_presence(inputs)?;
        self.validate_shapes(seen_inputs(inputs).iter())
    }

    fn validate_shapes<'s>(&self, mut seen: impl Iterator<Item = &'s Seen>) -> Result<(), Error> {
        let wrong = seen.find(|seen| seen.shape != self.dims.shape(seen.tensor));
        wrong.map_or(Ok(()), |seen| {
            let expected = self.dims.shape(seen.tensor);
            Err(Error::Shape { tensor: seen.tensor, found: seen.shape.clone(), expected })
        })
    }

    fn validate_request(&self, found: Requested) -> Result<(), Error> {
        let word = |request: Option<Write>| match request {
            None => "no output",
            Some(Write::Overwrite) => "an output to overwrite",
            Some(Write::Accumulate) => "an output to accumulate into",
        };
        for tensor in Tensor::OUTPUTS {
            let (found, expected) = (word(found.get(tensor)), word(self.outputs.get(tensor)));
            if found != expected {
                return Err(Error::Request { tensor, found, expected });
            }
        }
        Ok(())
    }

    fn validate_presence(&self, inputs: &Inputs<'_>) -> Result<(), Error> {
        if self.outputs.grad_hidden.is_some() {
            let weights = [
                (Tensor::QWeight, inputs.q_weight.is_some()),
                (Tensor::KWeight, inputs.k_weight.is_some()),
                (Tensor::VWeight, inputs.v_weight.is_some()),
            ];
            if let Some((tensor, _)) = weights.into_iter().find(|(_, given)| !given) {
                return Err(Error::MissingInput { tensor, needed_by: Tensor::GradHiddenStates });
            }
        }
        let weight_grads = [Tensor::GradQWeight, Tensor::GradKWeight, Tensor::GradVWeight];
        let needed_by = weight_grads.into_iter().find(|&tensor| self.outputs.get(tensor).is_some());
        match needed_by {
            Some(needed_by) if inputs.hidden_states.is_none() => {
                Err(Error::MissingInput { tensor: Tensor::HiddenStates, needed_by })
            }
            _ => Ok(()),
        }
    }
}

fn seen_inputs(inputs: &Inputs<'_>) -> Vec<Seen> {
    let mut seen = vec![
        Seen::input(Tensor::GradQuery, &inputs.grad_query),
        Seen::input(Tensor::GradKey, &inputs.grad_key),
        Seen::input(Tensor::GradValue, &inputs.grad_value),
        Seen::input(Tensor::Cos, &inputs.cos),
        Seen::input(Tensor::Sin, &inputs.sin),
    ];
    seen.extend(inputs.hidden_states.as_ref().map(|view| Seen::input(Tensor::HiddenStates, view)));
    seen.extend(inputs.q_weight.as_ref().map(|view| Seen::input(Tensor::QWeight, view)));
    seen.extend(inputs.k_weight.as_ref().map(|view| Seen::input(Tensor::KWeight, view)));
    seen.extend(inputs.v_weight.as_ref().map(|view| Seen::input(Tensor::VWeight, view)));
    seen
}

fn seen_outputs(outputs: &Outputs<'_>) -> Vec<Seen> {
    let mut seen = Vec::new();
    seen.extend(outputs.grad_hidden.as_ref().map(|output| Seen::output(Tensor::GradHiddenStates, output)));
    seen.extend(outputs.grad_q_weight.as_ref().map(|output| Seen::output(Tensor::GradQWeight, output)));
    seen.extend(outputs.grad_k_weight.as_ref().map(|output| Seen::output(Tensor::GradKWeight, output)));
    seen.extend(outputs.grad_v_weight.as_ref().map(|output| Seen::output(Tensor::GradVWeight, output)));
    seen
}

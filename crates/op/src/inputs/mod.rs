//! Inputs that a process owns: generated from a seed, or taken from a file.

mod arrange;
mod digest;
mod planted;
mod recipe;
mod stream;

pub use arrange::{Arranged, Arrangement};
pub use digest::digest;
pub use planted::{Planted, Touched};
pub use recipe::{Recipe, UnknownRecipe};
pub(crate) use stream::{Use, Words, normal};

use crate::dims::Dims;
use crate::error::{Error, Tensor};
use crate::problem::Inputs;
use crate::view::View;

/// The nine inputs, densely packed. Hidden states and weights may be absent, as [`Inputs`] allows; cos and sin may
/// hold one batch that all share.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedInputs {
    dims: Dims,
    tensors: [Option<Vec<f32>>; 9],
    planted: Vec<Planted>,
}

impl OwnedInputs {
    /// Inputs of `recipe`, the same for a seed on every platform. Element `i` of a tensor depends on nothing but the
    /// recipe, the seed, the tensor and `i` (and E for weights, the token for `spread`).
    pub fn generate(dims: Dims, recipe: Recipe, seed: u64) -> Self {
        let tensors = std::array::from_fn(|index| Some(values(dims, recipe, seed, index)));
        let mut inputs = Self { dims, tensors, planted: Vec::new() };
        match recipe {
            Recipe::Spread => inputs.spread_tokens(seed),
            Recipe::NonFinite => planted::plant(&mut inputs, seed),
            _ => {}
        }
        inputs
    }

    /// Inputs from vectors, for files. cos and sin may have B·S·R elements, or S·R that every batch shares.
    ///
    /// # Errors
    /// [`Error::Shape`] when a vector has another length than the dimensions give (its length is then reported as a
    /// shape of one dimension), or is no input; [`Error::Absent`] when a gradient or a table is not among them.
    pub fn from_vecs(dims: Dims, tensors: impl IntoIterator<Item = (Tensor, Vec<f32>)>) -> Result<Self, Error> {
        let mut owned = Self { dims, tensors: Default::default(), planted: Vec::new() };
        for (tensor, values) in tensors {
            let Some(index) = index_of(tensor) else {
                return Err(Error::Shape { tensor, found: vec![values.len()], expected: Vec::new() });
            };
            if values.len() != dims.elems(tensor) && !is_shared_table(dims, tensor, values.len()) {
                return Err(Error::Shape { tensor, found: vec![values.len()], expected: dims.shape(tensor) });
            }
            owned.tensors[index] = Some(values);
        }
        let always = [Tensor::GradQuery, Tensor::GradKey, Tensor::GradValue, Tensor::Cos, Tensor::Sin];
        match always.into_iter().find(|&tensor| owned.tensor(tensor).is_none()) {
            Some(tensor) => Err(Error::Absent { tensor }),
            None => Ok(owned),
        }
    }

    /// A densely packed copy of `inputs`, which have the shapes of `dims`.
    pub(crate) fn pack(dims: Dims, inputs: &Inputs<'_>) -> Self {
        let tensors = [
            Some(packed(&inputs.grad_query)),
            Some(packed(&inputs.grad_key)),
            Some(packed(&inputs.grad_value)),
            inputs.hidden_states.as_ref().map(packed),
            inputs.q_weight.as_ref().map(packed),
            inputs.k_weight.as_ref().map(packed),
            inputs.v_weight.as_ref().map(packed),
            Some(packed(&inputs.cos)),
            Some(packed(&inputs.sin)),
        ];
        Self { dims, tensors, planted: Vec::new() }
    }

    /// The sizes these inputs have.
    pub fn dims(&self) -> Dims {
        self.dims
    }

    /// The values of an input; `None` when absent or when `tensor` is an output.
    pub fn tensor(&self, tensor: Tensor) -> Option<&[f32]> {
        self.tensors[index_of(tensor)?].as_deref()
    }

    /// The values of an input, to change them; `None` when absent or when `tensor` is an output.
    pub fn tensor_mut(&mut self, tensor: Tensor) -> Option<&mut [f32]> {
        self.tensors[index_of(tensor)?].as_deref_mut()
    }

    /// Drops hidden states or a weight, which are needed for some outputs only. Gradients and tables stay.
    pub fn without(mut self, tensor: Tensor) -> Self {
        let optional = [Tensor::HiddenStates, Tensor::QWeight, Tensor::KWeight, Tensor::VWeight];
        if let (true, Some(index)) = (optional.contains(&tensor), index_of(tensor)) {
            self.tensors[index] = None;
        }
        self
    }

    /// Where [`Recipe::NonFinite`] put what; empty for other recipes.
    pub fn planted(&self) -> &[Planted] {
        &self.planted
    }

    /// Borrowed views for a call.
    pub fn views(&self) -> Inputs<'_> {
        Inputs {
            grad_query: self.required(Tensor::GradQuery),
            grad_key: self.required(Tensor::GradKey),
            grad_value: self.required(Tensor::GradValue),
            hidden_states: self.view(Tensor::HiddenStates),
            q_weight: self.view(Tensor::QWeight),
            k_weight: self.view(Tensor::KWeight),
            v_weight: self.view(Tensor::VWeight),
            cos: self.table(Tensor::Cos),
            sin: self.table(Tensor::Sin),
        }
    }

    fn view<const RANK: usize>(&self, tensor: Tensor) -> Option<View<'_, RANK>> {
        let shape = self.dims.shape(tensor).try_into().expect("each field of Inputs has its tensor's rank");
        let view = View::contiguous(self.tensor(tensor)?, shape);
        Some(view.expect("every constructor gives a tensor its shape's elements"))
    }

    fn required<const RANK: usize>(&self, tensor: Tensor) -> View<'_, RANK> {
        self.view(tensor).expect("every constructor demands gradients and tables")
    }

    fn table(&self, tensor: Tensor) -> View<'_, 3> {
        let values = self.tensor(tensor).expect("every constructor demands gradients and tables");
        if !is_shared_table(self.dims, tensor, values.len()) {
            return self.required(tensor);
        }
        let (batch, seq, rotary) = (self.dims.batch(), self.dims.seq(), self.dims.rotary_dim());
        View::new(values, [batch, seq, rotary], [0, rotary, 1]).expect("a shared table has S·R elements")
    }

    fn spread_tokens(&mut self, seed: u64) {
        let dims = self.dims;
        let mut words = Words::new(seed, Use::TokenScales);
        let scales: Vec<f32> = (0..dims.tokens()).map(|_| token_scale(words.next_word())).collect();
        for tensor in [Tensor::GradQuery, Tensor::GradKey, Tensor::GradValue] {
            let heads = dims.shape(tensor)[1];
            let Some(values) = self.tensor_mut(tensor) else { continue };
            for (row, values) in values.chunks_mut(dims.head_dim().max(1)).enumerate() {
                let (batch, seq) = (row / (heads * dims.seq()), row % dims.seq());
                let scale = scales[batch * dims.seq() + seq];
                values.iter_mut().for_each(|value| *value *= scale);
            }
        }
    }
}

fn values(dims: Dims, recipe: Recipe, seed: u64, index: usize) -> Vec<f32> {
    let tensor = Tensor::INPUTS[index];
    let mut values = vec![0.0; dims.elems(tensor)];
    Words::fill_all(seed, Use::Values(index as u64), &mut values, recipe.value(tensor, dims.hidden()));
    values
}

fn packed<const RANK: usize>(view: &View<'_, RANK>) -> Vec<f32> {
    view.rows().flatten().copied().collect()
}

/// 2^k, k uniform in -17..=17.
fn token_scale(word: u32) -> f32 {
    let exponent = ((u64::from(word) * 35) >> 32) as i32 - 17;
    2f32.powi(exponent)
}

fn index_of(tensor: Tensor) -> Option<usize> {
    Tensor::INPUTS.iter().position(|&input| input == tensor)
}

fn is_shared_table(dims: Dims, tensor: Tensor, len: usize) -> bool {
    let table = matches!(tensor, Tensor::Cos | Tensor::Sin);
    table && dims.batch() != 1 && len == dims.seq() * dims.rotary_dim()
}

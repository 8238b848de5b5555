//! The same inputs laid out in memory as frameworks do, for tests.

use super::{OwnedInputs, index_of};
use crate::dims::Dims;
use crate::error::Tensor;
use crate::problem::Inputs;
use crate::view::View;

/// How tensors lie in memory. What lies between their elements is NaN, so that reading it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrangement {
    /// Densely packed, the first element this many elements after the start of an allocation.
    Offset(usize),
    /// Gradients stored as [B, S, heads, D], hidden states as [S, B, E], tables as [S, B, R]: what PyTorch usually
    /// hands over.
    Transposed,
    /// Each row followed by this many other elements.
    Padded(usize),
    /// Gradients the same for every token and head of a batch, hidden states and tables the same for every batch, all
    /// by strides of 0. The values are those at index 0.
    Expanded,
}

/// Inputs in an [`Arrangement`].
#[derive(Clone, Debug)]
pub struct Arranged {
    dims: Dims,
    tensors: [Option<Strided>; 9],
}

#[derive(Clone, Debug)]
struct Strided {
    memory: Vec<f32>,
    offset: usize,
    strides: Vec<usize>,
}

impl Arranged {
    /// A copy of `inputs` laid out as `arrangement` says.
    pub fn new(inputs: &OwnedInputs, arrangement: Arrangement) -> Self {
        let dims = inputs.dims();
        let views = inputs.views();
        let tensors = [
            Some(Strided::copy(Tensor::GradQuery, &views.grad_query, arrangement)),
            Some(Strided::copy(Tensor::GradKey, &views.grad_key, arrangement)),
            Some(Strided::copy(Tensor::GradValue, &views.grad_value, arrangement)),
            views.hidden_states.map(|view| Strided::copy(Tensor::HiddenStates, &view, arrangement)),
            views.q_weight.map(|view| Strided::copy(Tensor::QWeight, &view, arrangement)),
            views.k_weight.map(|view| Strided::copy(Tensor::KWeight, &view, arrangement)),
            views.v_weight.map(|view| Strided::copy(Tensor::VWeight, &view, arrangement)),
            Some(Strided::copy(Tensor::Cos, &views.cos, arrangement)),
            Some(Strided::copy(Tensor::Sin, &views.sin, arrangement)),
        ];
        Self { dims, tensors }
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
            cos: self.required(Tensor::Cos),
            sin: self.required(Tensor::Sin),
        }
    }

    /// The same values densely packed.
    pub fn packed(&self) -> OwnedInputs {
        OwnedInputs::pack(self.dims, &self.views())
    }

    fn view<const RANK: usize>(&self, tensor: Tensor) -> Option<View<'_, RANK>> {
        let strided = self.tensors[index_of(tensor)?].as_ref()?;
        let shape = self.dims.shape(tensor).try_into().expect("each field of Inputs has its tensor's rank");
        let strides = strided.strides.as_slice().try_into().expect("strides were made for this rank");
        let view = View::new(&strided.memory[strided.offset..], shape, strides);
        Some(view.expect("the memory was made for this shape and these strides"))
    }

    fn required<const RANK: usize>(&self, tensor: Tensor) -> View<'_, RANK> {
        self.view(tensor).expect("gradients and tables are always there")
    }
}

impl Strided {
    fn copy<const RANK: usize>(tensor: Tensor, view: &View<'_, RANK>, arrangement: Arrangement) -> Self {
        let shape = view.shape();
        let strides = strides_of(tensor, shape, arrangement);
        let offset = if let Arrangement::Offset(elems) = arrangement { elems } else { 0 };
        let reach: usize = shape.iter().zip(&strides).map(|(extent, stride)| extent.saturating_sub(1) * stride).sum();
        let mut memory = vec![f32::NAN; offset + reach + 1];
        let mut leading = [0; RANK];
        for row in view.rows() {
            let is_first = leading.iter().zip(&strides).all(|(&index, &stride)| stride > 0 || index == 0);
            let start: usize =
                offset + leading.iter().zip(&strides).map(|(index, stride)| index * stride).sum::<usize>();
            if is_first {
                memory[start..start + row.len()].copy_from_slice(row);
            }
            advance(&mut leading, &shape);
        }
        Self { memory, offset, strides: strides.to_vec() }
    }
}

/// The next leading indices in row-major order.
fn advance<const RANK: usize>(leading: &mut [usize; RANK], shape: &[usize; RANK]) {
    for dim in (0..RANK - 1).rev() {
        leading[dim] += 1;
        if leading[dim] < shape[dim] {
            return;
        }
        leading[dim] = 0;
    }
}

fn strides_of<const RANK: usize>(tensor: Tensor, shape: [usize; RANK], arrangement: Arrangement) -> [usize; RANK] {
    let padding = if let Arrangement::Padded(elems) = arrangement { elems } else { 0 };
    let order = storage_order(tensor, arrangement);
    let mut strides = [1; RANK];
    let mut stride = 1;
    for &dim in order.iter().rev() {
        strides[dim] = stride;
        stride *= shape[dim];
        if dim == RANK - 1 {
            stride += padding;
        }
    }
    if arrangement == Arrangement::Expanded {
        expanded_dims(tensor).iter().for_each(|&dim| strides[dim] = 0);
    }
    strides
}

/// Dimensions from the outermost in memory to the innermost.
fn storage_order(tensor: Tensor, arrangement: Arrangement) -> &'static [usize] {
    let transposed = arrangement == Arrangement::Transposed;
    match tensor {
        Tensor::GradQuery | Tensor::GradKey | Tensor::GradValue if transposed => &[0, 2, 1, 3],
        Tensor::GradQuery | Tensor::GradKey | Tensor::GradValue => &[0, 1, 2, 3],
        Tensor::HiddenStates | Tensor::Cos | Tensor::Sin if transposed => &[1, 0, 2],
        Tensor::HiddenStates | Tensor::Cos | Tensor::Sin => &[0, 1, 2],
        _ => &[0, 1],
    }
}

fn expanded_dims(tensor: Tensor) -> &'static [usize] {
    match tensor {
        Tensor::GradQuery | Tensor::GradKey | Tensor::GradValue => &[1, 2],
        Tensor::HiddenStates | Tensor::Cos | Tensor::Sin => &[0],
        _ => &[],
    }
}

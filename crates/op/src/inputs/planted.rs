//! NaN and infinities put at seeded places, and what they must touch.

use std::collections::BTreeSet;

use super::OwnedInputs;
use super::stream::{Use, Words};
use crate::dims::{Dims, Segment};
use crate::error::Tensor;
use crate::problem::Pairing;

/// One planted value.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// The input it is in.
    pub tensor: Tensor,
    /// Its place in the densely packed tensor.
    pub index: usize,
    /// NaN or an infinity.
    pub value: f32,
}

impl PartialEq for Planted {
    fn eq(&self, other: &Self) -> bool {
        let key = |planted: &Self| (planted.tensor, planted.index, planted.value.to_bits());
        key(self) == key(other)
    }
}

/// What non-finite inputs make non-finite, and nothing else: whole rows and columns of the outputs seen as matrices,
/// grad_hidden as T x E, the weight gradients stacked as N x E.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Rows of grad_hidden (tokens).
    pub hidden_rows: BTreeSet<usize>,
    /// Columns of grad_hidden.
    pub hidden_columns: BTreeSet<usize>,
    /// Rows of the stacked weight gradients.
    pub weight_rows: BTreeSet<usize>,
    /// Columns of the stacked weight gradients.
    pub weight_columns: BTreeSet<usize>,
}

impl Touched {
    /// What `planted` touches.
    pub fn by(dims: Dims, pairing: Pairing, planted: &[Planted]) -> Self {
        let mut touched = Self::default();
        for place in planted {
            touched.add(dims, pairing, place);
        }
        touched
    }

    fn add(&mut self, dims: Dims, pairing: Pairing, place: &Planted) {
        let column = place.index % dims.hidden().max(1);
        match place.tensor {
            Tensor::HiddenStates => {
                self.weight_columns.insert(column);
            }
            Tensor::QWeight | Tensor::KWeight | Tensor::VWeight => {
                self.hidden_columns.insert(column);
            }
            Tensor::Cos | Tensor::Sin => self.add_table(dims, pairing, place),
            gradient => {
                let segment = dims.segments().into_iter().find(|segment| segment.gradient == gradient);
                segment.into_iter().for_each(|segment| self.add_gradient(dims, pairing, place.index, segment));
            }
        }
    }

    fn add_gradient(&mut self, dims: Dims, pairing: Pairing, index: usize, segment: Segment) {
        let (element, row) = (index % dims.head_dim(), index / dims.head_dim());
        let (seq, head) = (row % dims.seq(), row / dims.seq() % segment.heads);
        let batch = row / dims.seq() / segment.heads;
        self.hidden_rows.insert(batch * dims.seq() + seq);
        let head_row = segment.first_row + head * dims.head_dim();
        self.weight_rows.insert(head_row + element);
        if segment.rotated && element < dims.rotary_dim() {
            self.weight_rows.insert(head_row + pairing.partner(element, dims.rotary_dim()).index);
        }
    }

    /// cos[r] is in u[r] alone; sin[r] is in the u of r's partner alone: u[i] has s[i+h], u[i+h] has s[i].
    fn add_table(&mut self, dims: Dims, pairing: Pairing, place: &Planted) {
        let element = place.index % dims.rotary_dim();
        self.hidden_rows.insert(place.index / dims.rotary_dim());
        let touched = match place.tensor {
            Tensor::Sin => pairing.partner(element, dims.rotary_dim()).index,
            _ => element,
        };
        let heads = dims.query_heads() + dims.kv_heads();
        self.weight_rows.extend((0..heads).map(|head| head * dims.head_dim() + touched));
    }
}

/// One value in each of a gradient, a table, the hidden states and a weight, chosen by the seed.
pub(super) fn plant(inputs: &mut OwnedInputs, seed: u64) {
    let groups: [&[Tensor]; 4] = [
        &[Tensor::GradQuery, Tensor::GradKey, Tensor::GradValue],
        &[Tensor::Cos, Tensor::Sin],
        &[Tensor::HiddenStates],
        &[Tensor::QWeight, Tensor::KWeight, Tensor::VWeight],
    ];
    let mut words = Words::new(seed, Use::Places);
    let mut below = |bound: usize| ((u128::from(words.next_word()) * bound as u128) >> 32) as usize;
    for group in groups {
        let tensor = group[below(group.len())];
        let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][below(3)];
        let Some(values) = inputs.tensor_mut(tensor) else { continue };
        let index = below(values.len());
        if let Some(place) = values.get_mut(index) {
            *place = value;
            inputs.planted.push(Planted { tensor, index, value });
        }
    }
}

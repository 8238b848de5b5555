//! Output buffers that a process owns, poisoned so that an element left unwritten shows.

use crate::error::Tensor;
use crate::inputs::{Use, Words, normal};
use crate::problem::{Output, Outputs, Problem, Write};
use crate::view::ViewMut;

/// Elements before and after each tensor that nobody may write.
const GUARD_ELEMS: usize = 16;
/// What the guards hold: a number that no computation gives.
const GUARD: u32 = 0xffc0_6a4d;

/// The requested outputs of one problem, densely packed, between guards.
#[derive(Clone, Debug)]
pub struct OwnedOutputs {
    problem: Problem,
    buffers: [Option<Buffer>; 4],
}

#[derive(Clone, Debug)]
struct Buffer {
    memory: Vec<f32>,
    start: usize,
    len: usize,
}

impl OwnedOutputs {
    /// Outputs to overwrite full of NaN; outputs to accumulate into with seeded start values ~ N(0, 1).
    pub fn poisoned(problem: &Problem, seed: u64) -> Self {
        Self::poisoned_at(problem, seed, 0)
    }

    /// As [`OwnedOutputs::poisoned`], each tensor `offset_elems` elements further into its allocation.
    pub fn poisoned_at(problem: &Problem, seed: u64, offset_elems: usize) -> Self {
        let buffer = |index: usize| {
            let tensor = Tensor::OUTPUTS[index];
            let write = problem.outputs.get(tensor)?;
            let mut buffer = Buffer::nan(problem.dims.elems(tensor), offset_elems);
            if write == Write::Accumulate {
                let mut words = Words::new(seed, Use::Start(index as u64));
                words.fill(buffer.values_mut(), |word| normal(word) as f32);
            }
            Some(buffer)
        };
        Self { problem: *problem, buffers: std::array::from_fn(buffer) }
    }

    /// The values of an output; `None` when it was not requested or when `tensor` is an input.
    pub fn tensor(&self, tensor: Tensor) -> Option<&[f32]> {
        self.buffers[index_of(tensor)?].as_ref().map(Buffer::values)
    }

    /// The values of an output, to change them: start values to accumulate onto.
    pub fn tensor_mut(&mut self, tensor: Tensor) -> Option<&mut [f32]> {
        self.buffers[index_of(tensor)?].as_mut().map(Buffer::values_mut)
    }

    /// Takes the values of an output out; `None` as in [`OwnedOutputs::tensor`].
    pub fn take(&mut self, tensor: Tensor) -> Option<Vec<f32>> {
        self.buffers[index_of(tensor)?].take().map(Buffer::into_values)
    }

    /// Borrowed views for a call.
    pub fn views(&mut self) -> Outputs<'_> {
        let problem = self.problem;
        let [grad_hidden, grad_q_weight, grad_k_weight, grad_v_weight] = &mut self.buffers;
        Outputs {
            grad_hidden: output(&problem, Tensor::GradHiddenStates, grad_hidden),
            grad_q_weight: output(&problem, Tensor::GradQWeight, grad_q_weight),
            grad_k_weight: output(&problem, Tensor::GradKWeight, grad_k_weight),
            grad_v_weight: output(&problem, Tensor::GradVWeight, grad_v_weight),
        }
    }

    /// The first output around which somebody wrote, if any.
    pub fn written_outside(&self) -> Option<Tensor> {
        let broken = |buffer: &Option<Buffer>| buffer.as_ref().is_some_and(|buffer| !buffer.guards_hold());
        let index = self.buffers.iter().position(broken)?;
        Some(Tensor::OUTPUTS[index])
    }
}

impl Buffer {
    fn nan(len: usize, offset_elems: usize) -> Self {
        let start = GUARD_ELEMS + offset_elems;
        let mut memory = vec![f32::from_bits(GUARD); start + len + GUARD_ELEMS];
        memory[start..start + len].fill(f32::NAN);
        Self { memory, start, len }
    }

    fn values(&self) -> &[f32] {
        &self.memory[self.start..self.start + self.len]
    }

    fn values_mut(&mut self) -> &mut [f32] {
        &mut self.memory[self.start..self.start + self.len]
    }

    fn into_values(mut self) -> Vec<f32> {
        self.memory.truncate(self.start + self.len);
        self.memory.drain(..self.start);
        self.memory
    }

    fn guards_hold(&self) -> bool {
        let (before, after) = (&self.memory[..self.start], &self.memory[self.start + self.len..]);
        before.iter().chain(after).all(|value| value.to_bits() == GUARD)
    }
}

fn output<'a, const RANK: usize>(
    problem: &Problem,
    tensor: Tensor,
    buffer: &'a mut Option<Buffer>,
) -> Option<Output<'a, RANK>> {
    let write = problem.outputs.get(tensor)?;
    let shape = problem.dims.shape(tensor).try_into().expect("each field of Outputs has its tensor's rank");
    let view = ViewMut::contiguous(buffer.as_mut()?.values_mut(), shape);
    Some(Output { view: view.expect("the buffer was made for this shape"), write })
}

fn index_of(tensor: Tensor) -> Option<usize> {
    Tensor::OUTPUTS.iter().position(|&output| output == tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims::Dims;
    use crate::problem::Requested;

    fn problem() -> Problem {
        let outputs = Requested {
            grad_k_weight: None,
            grad_v_weight: Some(Write::Accumulate),
            ..Requested::all(Write::Overwrite)
        };
        Problem { outputs, ..Problem::new(Dims::new(2, 3, 5, 2, 1, 4).unwrap()) }
    }

    #[test]
    fn outputs_are_what_the_problem_requests() {
        let mut outputs = OwnedOutputs::poisoned_at(&problem(), 3, 1);
        assert!(outputs.tensor(Tensor::GradHiddenStates).unwrap().iter().all(|value| value.is_nan()));
        assert!(outputs.tensor(Tensor::GradVWeight).unwrap().iter().all(|value| value.is_finite()));
        assert_eq!(outputs.tensor(Tensor::GradKWeight), None);
        assert_eq!(outputs.tensor(Tensor::Cos), None);
        assert_eq!(outputs.views().requested(), problem().outputs);
        assert_eq!(outputs.take(Tensor::GradQWeight).unwrap().len(), 40);
        assert_eq!(outputs.tensor(Tensor::GradQWeight), None);
    }

    #[test]
    fn start_values_depend_on_the_seed_alone() {
        let start = |seed, offset| {
            OwnedOutputs::poisoned_at(&problem(), seed, offset).tensor(Tensor::GradVWeight).unwrap().to_vec()
        };
        assert_eq!(start(1, 0), start(1, 3));
        assert_ne!(start(1, 0), start(2, 0));
    }

    #[test]
    fn a_write_outside_is_seen_on_either_side() {
        for place in [GUARD_ELEMS - 1, GUARD_ELEMS + 40] {
            let mut outputs = OwnedOutputs::poisoned(&problem(), 0);
            assert_eq!(outputs.written_outside(), None);
            outputs.buffers[1].as_mut().unwrap().memory[place] = 0.0;
            assert_eq!(outputs.written_outside(), Some(Tensor::GradQWeight));
        }
    }
}

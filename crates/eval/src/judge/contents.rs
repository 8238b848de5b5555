//! New contents for every timed call, without drawing a hundred million normal numbers for each, or carrying them to a
//! device.

use std::ops::Range;

use qkv_rope_op::{Dims, OwnedInputs, Recipe, Tensor};
use rand::{Rng as _, RngExt as _};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// Parts of a tensor that have a sign of their own: at least so many, or all elements.
const LEAST_PARTS: usize = 64;

/// Elements of a part at most.
const MOST_PART_ELEMS: usize = 1 << 16;

/// Elements that are worth a task of their own.
const TASK_ELEMS: usize = 1 << 18;

/// Sets that contents are put together from, as they are and negated.
pub(super) const SETS: usize = 2;

/// Which set the inputs of a call are, and which parts of it are negated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    set: usize,
    parts: [Parts; 9],
}

/// The parts of one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Parts {
    len_elems: usize,
    part_elems: usize,
    negated: Vec<bool>,
}

/// Some elements of an input, and which of the kept sets has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of the set as [`super::Subject::keep`] was told it.
    pub slot: usize,
    /// Index of the input in the order of the contract.
    pub input: usize,
    /// The elements.
    pub elems: Range<usize>,
}

/// Number under which a set, or its negation, is kept.
pub(super) fn slot(set: usize, negated: bool) -> usize {
    2 * set + usize::from(negated)
}

impl Mixture {
    /// Slots that [`Run::slot`] may name.
    pub const SLOTS: usize = 2 * SETS;

    /// Draws signs. cos keeps its own: its distribution is not symmetric.
    fn draw(dims: Dims, set: usize, rng: &mut ChaCha8Rng) -> Self {
        let parts = std::array::from_fn(|index| {
            let tensor = Tensor::INPUTS[index];
            let len_elems = dims.elems(tensor);
            let part_elems = len_elems.div_ceil(LEAST_PARTS).clamp(1, MOST_PART_ELEMS);
            let negated = (0..len_elems.div_ceil(part_elems)).map(|_| tensor != Tensor::Cos && rng.random());
            Parts { len_elems, part_elems, negated: negated.collect() }
        });
        Self { set, parts }
    }

    /// Where to copy all inputs from; neighbouring parts of one slot are one run.
    pub fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (input, parts) in self.parts.iter().enumerate() {
            for (part, &negated) in parts.negated.iter().enumerate() {
                let elems = part * parts.part_elems..((part + 1) * parts.part_elems).min(parts.len_elems);
                let slot = slot(self.set, negated);
                match runs.last_mut() {
                    Some(last) if last.input == input && last.slot == slot => last.elems.end = elems.end,
                    _ => runs.push(Run { slot, input, elems }),
                }
            }
        }
        runs
    }
}

/// Inputs whose magnitudes come from two drawn sets in turn and whose signs are drawn for every call, part by part. N(0, 1) is
/// symmetric, so each call's inputs have the benchmark's distribution, and no two calls have the same results.
pub(super) struct Contents {
    sets: [OwnedInputs; SETS],
    current: OwnedInputs,
}

impl Contents {
    pub(super) fn new(dims: Dims, seed: u64) -> Self {
        let draw = |seed| OwnedInputs::generate(dims, Recipe::Benchmark, seed);
        let (first, second) = rayon::join(|| draw(seed), || draw(seed ^ 1));
        Self { current: first.clone(), sets: [first, second] }
    }

    /// A set as it is, or negated; cos is never negated.
    pub(super) fn set(&mut self, set: usize, negated: bool) -> &OwnedInputs {
        let all = |tensor: Tensor| {
            let len_elems = self.current.dims().elems(tensor);
            let negated = vec![negated && tensor != Tensor::Cos; usize::from(len_elems > 0)];
            Parts { len_elems, part_elems: len_elems.max(1), negated }
        };
        let parts = Tensor::INPUTS.map(all);
        self.mix(&Mixture { set, parts })
    }

    /// The inputs of call number `call`, and what they are made of.
    pub(super) fn of_call(&mut self, call: u32, rng: &mut ChaCha8Rng) -> (&OwnedInputs, Mixture) {
        // A generator of its own, so that its length does not move what is drawn after it.
        let mut signs = <ChaCha8Rng as rand::SeedableRng>::seed_from_u64(rng.next_u64());
        let mixture = Mixture::draw(self.current.dims(), call as usize % SETS, &mut signs);
        (self.mix(&mixture), mixture)
    }

    fn mix(&mut self, mixture: &Mixture) -> &OwnedInputs {
        for (tensor, parts) in Tensor::INPUTS.into_iter().zip(&mixture.parts) {
            let from = self.sets[mixture.set].tensor(tensor);
            let (Some(from), Some(to)) = (from, self.current.tensor_mut(tensor)) else { continue };
            let size = parts.part_elems.max(1);
            let copies = to.par_chunks_mut(size).zip(from.par_chunks(size)).zip(&parts.negated);
            copies.with_min_len(TASK_ELEMS / size).for_each(|((to, from), &negated)| match negated {
                false => to.copy_from_slice(from),
                true => to.iter_mut().zip(from).for_each(|(to, from)| *to = -from),
            });
        }
        &self.current
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    fn dims() -> Dims {
        Dims::new(2, 3, 5, 2, 1, 4).expect("valid")
    }

    #[test]
    fn no_two_calls_have_the_same_gradients_and_magnitudes_stay() {
        let mut contents = Contents::new(dims(), 7);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut of_call =
            |call| contents.of_call(call, &mut rng).0.tensor(Tensor::GradQuery).expect("it is there").to_vec();
        let calls: Vec<Vec<f32>> = (0..6).map(&mut of_call).collect();
        for (index, one) in calls.iter().enumerate() {
            assert!(calls[..index].iter().all(|other| other != one));
        }
        let magnitudes = |values: &[f32]| values.iter().map(|value| value.abs()).collect::<Vec<f32>>();
        assert_eq!(magnitudes(&calls[0]), magnitudes(&calls[2]));
        assert_ne!(magnitudes(&calls[0]), magnitudes(&calls[1]));
    }

    #[test]
    fn runs_put_the_same_contents_together_elsewhere() {
        // Large enough for parts of several elements.
        let dims = Dims::new(2, 37, 96, 4, 2, 16).expect("valid");
        let mut contents = Contents::new(dims, 7);
        let kept: Vec<OwnedInputs> =
            (0..Mixture::SLOTS).map(|slot| contents.set(slot / 2, slot % 2 == 1).clone()).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (inputs, mixture) = contents.of_call(3, &mut rng);
        let mut composed = inputs.clone();
        for tensor in Tensor::INPUTS {
            composed.tensor_mut(tensor).expect("it is there").fill(f32::NAN);
        }
        let runs = mixture.runs();
        assert!(runs.iter().any(|run| run.elems.len() > 30) && runs.iter().any(|run| run.slot == slot(1, true)));
        for Run { slot, input, elems } in runs {
            let tensor = Tensor::INPUTS[input];
            let from = &kept[slot].tensor(tensor).expect("it is there")[elems.clone()];
            composed.tensor_mut(tensor).expect("it is there")[elems].copy_from_slice(from);
        }
        assert_eq!(&composed, inputs);
    }
}

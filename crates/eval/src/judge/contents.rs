//! New contents for every timed call, without drawing a hundred million normal numbers for each.

use qkv_rope_op::{Dims, OwnedInputs, Recipe, Tensor};
use rand::{Rng as _, SeedableRng as _};
use rayon::prelude::*;
use rand_chacha::ChaCha8Rng;

/// Inputs whose magnitudes come from two drawn sets in turn and whose signs are drawn for every call. N(0, 1) is symmetric,
/// so each call's inputs have the benchmark's distribution, and no two calls have the same results. cos keeps its
/// signs: its distribution is not symmetric.
pub(super) struct Contents {
    bases: [OwnedInputs; 2],
    current: OwnedInputs,
}

impl Contents {
    pub(super) fn new(dims: Dims, seed: u64) -> Self {
        let base = |seed| OwnedInputs::generate(dims, Recipe::Benchmark, seed);
        let (first, second) = rayon::join(|| base(seed), || base(seed ^ 1));
        Self { current: first.clone(), bases: [first, second] }
    }

    /// The inputs of call number `call`.
    pub(super) fn of_call(&mut self, call: u32, rng: &mut ChaCha8Rng) -> &OwnedInputs {
        let base = &self.bases[call as usize % self.bases.len()];
        for tensor in Tensor::INPUTS {
            let (Some(from), Some(to)) = (base.tensor(tensor), self.current.tensor_mut(tensor)) else { continue };
            match tensor {
                Tensor::Cos => to.copy_from_slice(from),
                _ => with_signs(from, to, rng.next_u64()),
            }
        }
        &self.current
    }
}

/// Elements that are worth a task of their own.
const PART_ELEMS: usize = 1 << 18;

/// Copies `from` with the signs of `seed`, 32 to a word; each part has words of its own.
fn with_signs(from: &[f32], to: &mut [f32], seed: u64) {
    to.par_chunks_mut(PART_ELEMS).zip(from.par_chunks(PART_ELEMS)).enumerate().for_each(|(part, (to, from))| {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(part as u64);
        for (from, to) in from.chunks(32).zip(to.chunks_mut(32)) {
            let word = rng.next_u32();
            for (bit, (from, to)) in from.iter().zip(to).enumerate() {
                *to = f32::from_bits(from.to_bits() ^ ((word >> bit & 1) << 31));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_calls_have_the_same_gradients_and_magnitudes_stay() {
        let dims = Dims::new(2, 3, 5, 2, 1, 4).expect("valid");
        let mut contents = Contents::new(dims, 7);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut of_call =
            |call| contents.of_call(call, &mut rng).tensor(Tensor::GradQuery).expect("it is there").to_vec();
        let calls: Vec<Vec<f32>> = (0..6).map(&mut of_call).collect();
        for (index, one) in calls.iter().enumerate() {
            assert!(calls[..index].iter().all(|other| other != one));
        }
        let magnitudes = |values: &[f32]| values.iter().map(|value| value.abs()).collect::<Vec<f32>>();
        assert_eq!(magnitudes(&calls[0]), magnitudes(&calls[2]));
        assert_ne!(magnitudes(&calls[0]), magnitudes(&calls[1]));
    }
}

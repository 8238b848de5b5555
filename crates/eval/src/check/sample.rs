//! How much of an output is compared, and which part.

use qkv_rope_op::Tensor;
use qkv_rope_op::reference::Vectors;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// How much of each output is compared with the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "depth", rename_all = "kebab-case")]
pub enum Depth {
    /// Every element.
    Full,
    /// 16 rows of each output in full, and projections of the whole on 8 vectors of random signs (Freivalds) and on 8
    /// unit vectors, which are columns in full. All in f64, for a few percent of the arithmetic. The normwise error it
    /// reports is an estimate: good to 15 % for rounding errors, to a factor of 2 for errors that are one row times one
    /// column. A single wrong element of ordinary size shows in it in `ieee` and `split`; in `fast` only when its row or
    /// column is in the sample.
    Sampled {
        /// Chooses rows, columns and signs.
        seed: u64,
    },
}

const ROWS: usize = 16;
const SIGNS: usize = 8;
const COLUMNS: usize = 8;

/// What is compared of one output.
pub(super) struct Sample {
    /// Rows in full, ascending; always the first and the last.
    pub(super) rows: Vec<usize>,
    /// Sign vectors, then unit vectors.
    pub(super) vectors: Vectors,
}

impl Sample {
    pub(super) fn draw(seed: u64, tensor: Tensor, rows: usize, columns: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(tensor as u64);
        Self { rows: distinct(&mut rng, rows, ROWS), vectors: vectors(&mut rng, columns) }
    }
}

/// Up to `count` of `0..bound`, with both ends, ascending.
fn distinct(rng: &mut ChaCha8Rng, bound: usize, count: usize) -> Vec<usize> {
    let drawn = (0..count.saturating_sub(2)).map(|_| below(rng, bound));
    let mut chosen: Vec<usize> = drawn.chain([0, bound.saturating_sub(1)]).filter(|&index| index < bound).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

fn below(rng: &mut ChaCha8Rng, bound: usize) -> usize {
    ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize
}

fn vectors(rng: &mut ChaCha8Rng, columns: usize) -> Vectors {
    let units = distinct(rng, columns, COLUMNS);
    let count = SIGNS + units.len();
    let mut elements = vec![0.0; columns * count];
    for (column, elements) in elements.chunks_mut(count).enumerate() {
        let bits = rng.next_u32();
        for (vector, element) in elements[..SIGNS].iter_mut().enumerate() {
            *element = if bits >> vector & 1 == 0 { 1.0 } else { -1.0 };
        }
        if let Ok(unit) = units.binary_search(&column) {
            elements[SIGNS + unit] = 1.0;
        }
    }
    Vectors { count, elements }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_both_ends_and_fits_small_outputs() {
        let sample = Sample::draw(3, Tensor::GradQWeight, 1000, 50);
        assert_eq!((sample.rows.first(), sample.rows.last()), (Some(&0), Some(&999)));
        assert!(sample.rows.len() > 10 && sample.rows.is_sorted());
        assert_eq!(Sample::draw(3, Tensor::GradQWeight, 1, 1).rows, [0]);
        assert_eq!(Sample::draw(3, Tensor::GradQWeight, 0, 1).rows, [0_usize; 0]);
    }
}

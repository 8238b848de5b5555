//! Seeded numbers that any language can reproduce: element `i` of a tensor is a pure function of word `i` of one
//! ChaCha8 stream, so contents depend neither on the order of generation nor on the platform.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const BLOCK_WORDS: usize = 1024;

/// Elements that are worth a thread of their own: about a millisecond.
const PART_ELEMS: usize = 1 << 17;

/// What a stream is used for; the 64-bit stream number keeps uses apart.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    /// The values of the input with this index in [`crate::Tensor::INPUTS`].
    Values(u64),
    /// The exponents that spread tokens over decades.
    TokenScales,
    /// The places of planted non-finite values.
    Places,
    /// The start values of the output with this index in [`crate::Tensor::OUTPUTS`].
    Start(u64),
}

impl Use {
    fn stream(self) -> u64 {
        match self {
            Self::Values(tensor) => tensor,
            Self::TokenScales => 32,
            Self::Places => 33,
            Self::Start(output) => 64 + output,
        }
    }
}

/// The words of one stream: ChaCha8 (DJB's layout, 64-bit counter), key = the seed's 8 little-endian bytes and 24
/// zeros, nonce = the stream number.
pub(crate) struct Words(ChaCha8Rng);

impl Words {
    pub(crate) fn new(seed: u64, usage: Use) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(usage.stream());
        Self(rng)
    }

    pub(crate) fn next_word(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// As [`Words::fill`] from the stream's beginning, with several threads for long tensors: any part of a stream can be
    /// had by itself.
    pub(crate) fn fill_all(seed: u64, usage: Use, values: &mut [f32], of: impl Fn(u32) -> f32 + Sync) {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let part_elems = values.len().div_ceil(threads).max(PART_ELEMS);
        std::thread::scope(|scope| {
            for (part, values) in values.chunks_mut(part_elems).enumerate() {
                let (of, is_last) = (&of, values.len() < part_elems);
                let mut fill = move || {
                    let mut words = Self::new(seed, usage);
                    words.0.set_word_pos((part * part_elems) as u128);
                    words.fill(values, of);
                };
                // The last part, often the only one, needs no thread.
                if is_last { fill() } else { drop(scope.spawn(fill)) }
            }
        });
    }

    /// Sets each element of `values` to `of` the next word.
    pub(crate) fn fill(&mut self, values: &mut [f32], of: impl Fn(u32) -> f32) {
        let mut bytes = [0_u8; 4 * BLOCK_WORDS];
        for block in values.chunks_mut(BLOCK_WORDS) {
            let bytes = &mut bytes[..4 * block.len()];
            self.0.fill_bytes(bytes);
            let (words, _) = bytes.as_chunks::<4>();
            for (value, &word) in block.iter_mut().zip(words) {
                *value = of(u32::from_le_bytes(word));
            }
        }
    }
}

/// A number in (0, 1), exact in f64: the middle of the word's cell.
pub(crate) fn unit(word: u32) -> f64 {
    (f64::from(word) + 0.5) * (1.0 / 4_294_967_296.0)
}

/// A standard normal number: the inverse distribution function at [`unit`], good to 7 digits. The largest magnitude is
/// 6.3. Logarithm from the `libm` crate, which gives the same bits everywhere.
///
/// Source: Wichura, algorithm AS 241 (PPND7), Applied Statistics 37 (1988). Its far branch begins at
/// p < exp(-25), which 32-bit words never reach.
pub(crate) fn normal(word: u32) -> f64 {
    const CENTRE: [f64; 4] = [3.387_132_717_9, 50.434_271_938, 159.291_132_02, 59.109_374_720];
    const CENTRE_BELOW: [f64; 4] = [1.0, 17.895_169_469, 78.757_757_664, 67.187_563_600];
    const TAIL: [f64; 4] = [1.423_437_277_7, 2.756_815_390_0, 1.306_728_481_6, 0.170_238_211_03];
    const TAIL_BELOW: [f64; 4] = [1.0, 0.737_001_642_50, 0.120_211_329_75, 0.0];
    let p = unit(word);
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        return q * cubic(CENTRE, r) / cubic(CENTRE_BELOW, r);
    }
    let r = (-libm::log(p.min(1.0 - p))).sqrt() - 1.6;
    (cubic(TAIL, r) / cubic(TAIL_BELOW, r)).copysign(q)
}

fn cubic([a, b, c, d]: [f64; 4], x: f64) -> f64 {
    ((d * x + c) * x + b) * x + a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quantiles printed by Python's `statistics.NormalDist().inv_cdf`, which is AS 241 with 16 digits.
    #[test]
    fn normal_is_the_inverse_distribution_function() {
        let expected = [(0, -6.337_957_75), (1 << 31, 2.918e-10), (1 << 30, -0.674_489_75), (u32::MAX, 6.337_957_75)];
        for (word, value) in expected {
            assert!((normal(word) - value).abs() <= 3e-7 * value.abs().max(1e-3), "{word}: {} {value}", normal(word));
        }
    }

    #[test]
    fn streams_are_chacha8_and_independent() {
        let first = |seed, usage| Words::new(seed, usage).next_word();
        assert_eq!(first(0, Use::Values(0)), 0x2fef_003e, "first word of ChaCha8 with a zero key and nonce");
        assert_ne!(first(0, Use::Values(0)), first(0, Use::Values(1)));
        assert_ne!(first(0, Use::Values(0)), first(1, Use::Values(0)));
    }

    #[test]
    fn several_threads_give_the_same_stream() {
        let mut one = vec![0.0; 2 * PART_ELEMS + 5];
        Words::new(7, Use::Values(3)).fill(&mut one, |word| word as f32);
        let mut several = vec![0.0; one.len()];
        Words::fill_all(7, Use::Values(3), &mut several, |word| word as f32);
        assert!(one == several);
        Words::fill_all(7, Use::Values(3), &mut [], |word| word as f32);
    }

    #[test]
    fn a_fill_does_not_depend_on_how_it_is_cut() {
        let mut whole = vec![0.0; 5000];
        Words::new(7, Use::Values(3)).fill(&mut whole, |word| normal(word) as f32);
        let mut cut = vec![0.0; 5000];
        let mut words = Words::new(7, Use::Values(3));
        let (left, right) = cut.split_at_mut(1024 * 3);
        words.fill(left, |word| normal(word) as f32);
        words.fill(right, |word| normal(word) as f32);
        assert_eq!(whole, cut);
    }
}

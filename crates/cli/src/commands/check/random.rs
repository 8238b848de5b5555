//! Random problems: sizes that fit no tile, every option, every kind of input.

use qkv_rope_op::{Dims, Pairing, Precision, Problem, Recipe, Requested, Tensor, Write};
use rand::{Rng, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::report::Subject;

/// Draws `count` problems; the same seed gives the same ones everywhere.
pub(super) fn subjects(count: u32, seed: u64, precision: Precision) -> Vec<Subject> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut subjects = Vec::new();
    while subjects.len() < count as usize {
        // Sizes drawn here are small, so a refusal does not happen; if it did, another draw follows.
        let Some(dims) = dims(&mut rng) else { continue };
        let pairing = if rng.random() { Pairing::HalfSplit } else { Pairing::Interleaved };
        let outputs = outputs(&mut rng);
        let recipe = Recipe::ALL[rng.random_range(0..Recipe::ALL.len())];
        let seed = rng.random();
        let problem = Problem { dims, pairing, precision, outputs };
        subjects.push(Subject { name: format!("{dims} {}", options(&problem)), problem, recipe, seed, random: true });
    }
    subjects
}

fn dims(rng: &mut impl Rng) -> Option<Dims> {
    // Mostly more than one batch, sometimes none; sequences around and far from tile sizes.
    let batch = [0, 1, 1, 2, 3, 5][rng.random_range(0..6)];
    let seq = if rng.random_ratio(1, 4) { rng.random_range(100..700) } else { rng.random_range(0..70) };
    let hidden = if rng.random_ratio(1, 4) { rng.random_range(200..600) } else { rng.random_range(1..130) };
    let (heads, kv_heads) = (rng.random_range(1..7), rng.random_range(1..5));
    let head_dim =
        if rng.random() { [2, 64, 80, 96, 128][rng.random_range(0..5)] } else { 2 * rng.random_range(1..70) };
    let rotary_dim = if rng.random() { head_dim } else { 2 * rng.random_range(0..=head_dim / 2) };
    Dims::new(batch, seq, hidden, heads, kv_heads, head_dim).and_then(|dims| dims.with_rotary_dim(rotary_dim)).ok()
}

/// All four outputs half of the time, otherwise any selection but none.
fn outputs(rng: &mut impl Rng) -> Requested {
    let mut write = || if rng.random_ratio(1, 4) { Write::Accumulate } else { Write::Overwrite };
    let all = Requested {
        grad_hidden: Some(write()),
        grad_q_weight: Some(write()),
        grad_k_weight: Some(write()),
        grad_v_weight: Some(write()),
    };
    let mask = rng.random_range(0..32_u32);
    if mask == 0 || mask >= 16 {
        return all;
    }
    let keep = |bit: u32, write: Option<Write>| write.filter(|_| mask >> bit & 1 == 1);
    Requested {
        grad_hidden: keep(0, all.grad_hidden),
        grad_q_weight: keep(1, all.grad_q_weight),
        grad_k_weight: keep(2, all.grad_k_weight),
        grad_v_weight: keep(3, all.grad_v_weight),
    }
}

/// What a problem has beyond its sizes, in words.
fn options(problem: &Problem) -> String {
    let pairing = match problem.pairing {
        Pairing::HalfSplit => "half-split",
        Pairing::Interleaved => "interleaved",
    };
    let outputs = Tensor::OUTPUTS.into_iter().filter_map(|tensor| {
        let plus = if problem.outputs.get(tensor)? == Write::Accumulate { "+" } else { "" };
        Some(format!("{plus}{tensor}"))
    });
    format!("{pairing} {}", outputs.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_problems_and_they_cover_the_options() {
        let drawn = subjects(200, 1, Precision::Ieee);
        assert_eq!(drawn, subjects(200, 1, Precision::Ieee));
        assert_ne!(drawn, subjects(200, 2, Precision::Ieee));
        let any = |test: fn(&Subject) -> bool| drawn.iter().any(test);
        assert!(any(|subject| subject.problem.dims.tokens() == 0));
        assert!(any(|subject| subject.problem.pairing == Pairing::Interleaved));
        assert!(any(|subject| subject.problem.outputs.grad_hidden.is_none()));
        assert!(any(|subject| subject.problem.outputs.grad_k_weight == Some(Write::Accumulate)));
        assert!(any(|subject| subject.problem.dims.rotary_dim() < subject.problem.dims.head_dim()));
        assert!(Recipe::ALL.into_iter().all(|recipe| drawn.iter().any(|subject| subject.recipe == recipe)));
    }
}

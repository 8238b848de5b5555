//! The inputs of a case: several sets of other contents at other addresses, so that no call finds its own data warm.

use qkv_rope_op::{OwnedInputs, Problem, Recipe};

/// Input sets that rounds rotate through; at least one.
#[derive(Debug)]
pub(crate) struct InputSets {
    /// The problem they belong to.
    pub(crate) problem: Problem,
    sets: Vec<OwnedInputs>,
}

impl InputSets {
    /// A set for each seed.
    pub(crate) fn generate<const SETS: usize>(problem: Problem, seeds: [u64; SETS]) -> Self {
        const { assert!(SETS > 0) };
        let sets = seeds.iter().map(|&seed| OwnedInputs::generate(problem.dims, Recipe::Benchmark, seed)).collect();
        Self { problem, sets }
    }

    /// All sets.
    pub(crate) fn all(&self) -> &[OwnedInputs] {
        &self.sets
    }

    /// The set that is checked.
    pub(crate) fn first(&self) -> &OwnedInputs {
        &self.sets[0]
    }

    /// Which set a round uses.
    pub(crate) fn index_of(&self, round: u64) -> usize {
        // The remainder is below a vector's length.
        (round % self.sets.len() as u64) as usize
    }
}

//! One small run, for tests that change something in it: two cases, five samples each, quick.

use kernelproof_eval::check::Depth;
use kernelproof_eval::evaluation::{Evaluation, Round};

pub use super::generate::attached;
use super::generate::{self, Recipe};
use crate::bundle::Bundle;

/// Its bundle.
///
/// # Panics
/// Never: it is consistent.
pub fn bundle() -> Bundle {
    Bundle::of(evaluation(), attached()).expect("it is consistent")
}

/// Two cases that passed.
pub fn evaluation() -> Evaluation {
    let recipe = Recipe { name: "cpu-avx2".to_owned(), timed_calls: 5, quick: true, ..Recipe::default() };
    let mut evaluation = generate::evaluation(&recipe);
    evaluation.protocol.check_rounds = 2;
    evaluation.cases.retain(|case| ["s128b2", "s1024b2"].contains(&case.name.as_str()));
    for case in &mut evaluation.cases {
        let sampled = Round { seed: 77, depth: Depth::Sampled { seed: 77 }, ..case.rounds[0].clone() };
        case.rounds.push(sampled);
    }
    evaluation
}

//! Two implementations on the same calls: same contents, in turns, and the first one a second time, which shows what
//! differences the machine makes up by itself.

use qkv_rope_op::Problem;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::contents::Contents;
use super::subject::{Fault, Subject};
use super::turn::{Source, Turns};
use super::{Bench, Layout, Rules, go_on, rounds, timing};

/// Who takes part in a duel, in the order of [`Duel::samples_ns`].
pub const SIDES: usize = 3;

/// Times of A, of B, and of A once more. Index i of all three belongs to the same inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duel {
    /// Integer nanoseconds.
    pub samples_ns: [Vec<u64>; SIDES],
}

/// Checks the three on fresh inputs, then times them in turns; each call is looked at as an evaluation does. The order
/// inside a round rotates, so that no side is always the first.
///
/// # Errors
/// The side that was wrong or could not go on, and why.
pub fn duel(
    subjects: [&mut dyn Subject; SIDES],
    problem: Problem,
    rules: &Rules,
    bench: &mut Bench<'_>,
) -> Result<Duel, (usize, Fault)> {
    let layout = Layout::new(problem.dims);
    let mut sides = Vec::with_capacity(SIDES);
    for (side, subject) in subjects.into_iter().enumerate() {
        let blame = |fault| (side, fault);
        subject.begin(&problem, &layout).map_err(blame)?;
        let mut turns = Turns::new(subject, problem, layout.clone(), rules.secret_seed ^ side as u64);
        rounds::check(&mut turns, rules, bench, &mut Vec::new()).map_err(blame)?;
        sides.push(turns);
    }
    let mut duel = Duel::default();
    let mut rng = ChaCha8Rng::seed_from_u64(rules.secret_seed);
    let mut contents = Contents::new(problem.dims, rng.random());
    for (side, turns) in sides.iter_mut().enumerate() {
        turns.keep(&mut contents).map_err(|fault| (side, fault))?;
    }
    for call in 0..rules.warmup_calls + rules.timed_calls {
        let (inputs, mixture) = contents.of_call(call, &mut rng);
        for turn in 0..SIDES {
            let side = (turn + call as usize) % SIDES;
            let blame = |fault| (side, fault);
            let turns = &mut sides[side];
            let extent = turns.draw_extent();
            let (time_ns, failures) = turns.call(Source::Mixed(inputs, &mixture), bench, extent).map_err(blame)?;
            timing::look(turns, inputs, call, &failures).map_err(blame)?;
            if call >= rules.warmup_calls {
                duel.samples_ns[side].push(time_ns);
            }
            go_on(bench).map_err(blame)?;
        }
    }
    for (side, turns) in sides.iter_mut().enumerate() {
        turns.subject.end().map_err(|fault| (side, fault))?;
    }
    Ok(duel)
}

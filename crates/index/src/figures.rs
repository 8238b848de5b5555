//! The figures of a run, computed from its samples. They are stored beside the run for those who read without this
//! program, and recomputed by everyone else.

use kernelproof_eval::evaluation::{Aggregates, CaseResult, Evaluation, Headroom, Origin, SpeedOfLight, Status};
use kernelproof_eval::statistics::Quartiles;
use serde::Serialize;

/// Everything that is computed from an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Whether the run may be ranked as far as it can tell itself.
    pub may_rank: bool,
    /// Over all cases, against ceilings that were measured here.
    pub measured: Aggregates,
    /// Over all cases, against ceilings from datasheets.
    pub datasheet: Aggregates,
    /// Case by case.
    pub cases: Vec<CaseFigures>,
}

/// The figures of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseFigures {
    /// The suite's name.
    pub name: String,
    /// How it ended.
    pub status: Status,
    /// Quartiles of the samples, also of a case that did not pass.
    pub quartiles_ns: Option<Quartiles>,
    /// Against measured ceilings.
    pub measured: Light,
    /// Against ceilings from datasheets.
    pub datasheet: Light,
    /// How much of the bounds is left.
    pub headroom: Option<Headroom>,
    /// Whether others took so much of the machine that the case makes no record.
    pub throttled: bool,
}

/// How near a case comes to what the device could do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Light {
    /// T_sol and what sets it; `None` without ceilings.
    pub sol: Option<SpeedOfLight>,
    /// T_sol / T; `None` unless the case passed.
    pub share: Option<f64>,
}

impl Figures {
    /// The figures of `evaluation`.
    pub fn of(evaluation: &Evaluation) -> Self {
        Self {
            may_rank: evaluation.may_rank(),
            measured: evaluation.aggregates(Origin::Measured),
            datasheet: evaluation.aggregates(Origin::Datasheet),
            cases: evaluation.cases.iter().map(|case| CaseFigures::of(evaluation, case)).collect(),
        }
    }
}

impl CaseFigures {
    fn of(evaluation: &Evaluation, case: &CaseResult) -> Self {
        let light = |origin| Light {
            sol: evaluation.speed_of_light(case.cost(), origin),
            share: evaluation.share_of_light(case, origin),
        };
        Self {
            name: case.name.clone(),
            status: case.status,
            quartiles_ns: Quartiles::of(&case.samples_ns),
            measured: light(Origin::Measured),
            datasheet: light(Origin::Datasheet),
            headroom: case.headroom(),
            throttled: case.throttled(),
        }
    }
}

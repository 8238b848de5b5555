//! Figures over all cases, computed when they are read.

use serde::Serialize;

use super::{CaseResult, Evaluation, Origin};
use crate::statistics::geometric_mean;

/// Aggregates of an evaluation. A mean is `None` when a case did not pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Aggregates {
    /// Cases that passed.
    pub passed: usize,
    /// All cases.
    pub cases: usize,
    /// Geometric mean of the cases' medians, in ns.
    pub geometric_mean_ns: Option<f64>,
    /// Arithmetic mean of the cases' medians, in ns.
    pub arithmetic_mean_ns: Option<f64>,
    /// The largest `T / T_sol` of any case.
    pub worst_ratio: Option<f64>,
    /// Geometric mean of `T_sol / T`.
    pub share_of_light: Option<f64>,
    /// S: the mean over cases of `1 / (1 + (T − T_sol) / (T_b − T_sol))`, not clipped; a case that did not pass gives
    /// 0. `None` without a baseline or ceilings.
    pub score: Option<f64>,
}

impl Evaluation {
    /// The aggregates, with T_sol from ceilings of `origin`.
    pub fn aggregates(&self, origin: Origin) -> Aggregates {
        let all = |of: &dyn Fn(&CaseResult) -> Option<f64>| self.cases.iter().map(of).collect::<Option<Vec<f64>>>();
        let medians = all(&CaseResult::median_ns);
        let shares = all(&|case| self.share_of_light(case, origin));
        let mean = |values: &Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        let scores = all(&|case| self.score(case, origin));
        Aggregates {
            passed: self.cases.iter().filter(|case| case.median_ns().is_some()).count(),
            cases: self.cases.len(),
            geometric_mean_ns: medians.as_deref().and_then(geometric_mean),
            arithmetic_mean_ns: medians.as_ref().filter(|values| !values.is_empty()).map(mean),
            worst_ratio: shares
                .as_ref()
                .and_then(|shares| shares.iter().map(|share| 1.0 / share).max_by(f64::total_cmp)),
            share_of_light: shares.as_deref().and_then(geometric_mean),
            score: scores.filter(|values| !values.is_empty()).as_ref().map(mean),
        }
    }

    /// The score of one case; 0 when it did not pass.
    fn score(&self, case: &CaseResult, origin: Origin) -> Option<f64> {
        let (light_ns, baseline_ns) = (self.speed_of_light(case.cost(), origin)?.time_ns, case.baseline_ns?);
        let Some(time_ns) = case.median_ns() else { return Some(0.0) };
        let score = 1.0 / (1.0 + (time_ns - light_ns) / (baseline_ns - light_ns));
        score.is_finite().then_some(score)
    }
}

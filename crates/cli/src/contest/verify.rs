//! No time without a check: each contestant's outputs against f64, once per case.

use std::collections::BTreeMap;

use kernelproof_eval::check::{Bounds, Depth, Expected, silent};

use super::{Entrant, InputSets};

/// Chooses the rows, columns and signs of the sample.
const SAMPLE_SEED: u64 = 200;

/// What the check of one contestant found.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// Normwise error of each output, by tensor name.
    pub(crate) normwise_errors: BTreeMap<String, f64>,
    /// What is wrong, one sentence each; empty when nothing is.
    pub(crate) failures: Vec<String>,
}

/// The reference of the first input set, on a sample: rows and columns in full and projections of everything.
///
/// # Errors
/// When the inputs do not fit the problem.
pub(crate) fn expect(inputs: &InputSets) -> Result<Expected, qkv_rope_op::Error> {
    Expected::new(&inputs.problem, &inputs.first().views(), Depth::Sampled { seed: SAMPLE_SEED }, &silent)
}

/// Checks the outputs of one contestant.
///
/// # Errors
/// When it cannot compute them.
pub(crate) fn verify(entrant: &mut dyn Entrant, expected: &Expected) -> anyhow::Result<Verdict> {
    let agreements = expected.agreements(&entrant.outputs()?, None, &silent);
    let bounds = Bounds::of(expected.problem().precision);
    let failures = agreements.iter().flat_map(|agreement| agreement.failures(&bounds, false));
    Ok(Verdict {
        failures: failures.map(|failure| failure.to_string()).collect(),
        normwise_errors: agreements
            .iter()
            .map(|agreement| (agreement.tensor.name().to_owned(), agreement.normwise))
            .collect(),
    })
}

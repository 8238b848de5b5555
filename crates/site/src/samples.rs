//! The samples of a run, and nothing else of its bundle.
//!
//! The bundle was understood in full when it entered the index, and the store gives back the very same bytes. So the hundreds of
//! kilobytes of checked rounds are skipped here, which takes a fifth of the time.

use kernelproof_index::Digest;
use kernelproof_index::catalog::{DocumentError, Documents};
use serde::Deserialize;

/// The samples of one case, in ns, in the order of the calls.
#[derive(Debug, Deserialize)]
pub(crate) struct CaseSamples {
    pub(crate) name: String,
    pub(crate) samples_ns: Vec<u64>,
}

#[derive(Deserialize)]
struct Manifest {
    spec: Run,
}

#[derive(Deserialize)]
struct Run {
    evaluation: Evaluation,
}

#[derive(Deserialize)]
struct Evaluation {
    cases: Vec<CaseSamples>,
}

/// The samples of a run, case by case; `None` when its bundle is not at hand.
///
/// # Errors
/// When the bundle cannot be read.
pub(crate) fn samples(documents: &dyn Documents, run: &Digest) -> Result<Option<Vec<CaseSamples>>, DocumentError> {
    let Some(text) = documents.file(run, "run.json")? else { return Ok(None) };
    // What the index took in has samples; without them a page says that they are not at hand.
    Ok(serde_json::from_slice::<Manifest>(&text).ok().map(|manifest| manifest.spec.evaluation.cases))
}

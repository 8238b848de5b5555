//! Is a result right? The reference in f64, figures of agreement, and a verdict with reasons.

mod agreement;
mod bounds;
mod expected;
mod failure;
mod progress;
mod sample;

pub use agreement::{Agreement, Place};
pub use bounds::Bounds;
pub use expected::Expected;
pub use failure::Failure;
pub use progress::{Progress, Stage, silent};
pub use sample::Depth;

use qkv_rope_op::inputs::digest;
use qkv_rope_op::{Backend, Error, Inputs, OwnedOutputs, Problem, Session, Tensor, Write};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// How a backend is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// How much of the outputs is compared.
    pub depth: Depth,
    /// Whether the inputs are such that every bit must be right ([`qkv_rope_op::Recipe::Exact`]).
    pub exact: bool,
    /// Chooses the start values of outputs that are accumulated into.
    pub start_seed: u64,
}

impl Default for CheckOptions {
    /// In full, with rounding allowed.
    fn default() -> Self {
        Self { depth: Depth::Full, exact: false, start_seed: 0 }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The backend's name.
    pub backend: String,
    /// The problem.
    pub problem: Problem,
    /// How much of the outputs was compared.
    #[serde(flatten)]
    pub depth: Depth,
    /// The bounds held to.
    pub bounds: Bounds,
    /// Each requested output against the reference; empty when the call failed.
    pub agreements: Vec<Agreement>,
    /// Every reason to reject the backend; empty when it passed.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Whether nothing was wrong.
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }

    /// The largest normwise error of the outputs; 0 when nothing was compared.
    pub fn worst_normwise(&self) -> f64 {
        self.agreements.iter().map(|agreement| agreement.normwise).fold(0.0, f64::max)
    }
}

/// Computes the reference of `problem` on `inputs` and checks `backend` against it; see [`check_against`].
///
/// # Errors
/// What [`Problem::validate_inputs`] finds, or the backend's refusal to prepare the problem. A call that goes wrong is
/// no error but a [`Failure`].
pub fn check(
    backend: &dyn Backend,
    problem: &Problem,
    inputs: &Inputs<'_>,
    options: CheckOptions,
    progress: Progress<'_>,
) -> Result<Report, Error> {
    let expected = Expected::new(problem, inputs, options.depth, progress)?;
    check_against(backend, &expected, inputs, options, progress)
}

/// Runs `backend` twice on `inputs`, whose reference is `expected`, with outputs full of NaN (the second time one element
/// further into their memory), and reports everything that is wrong.
///
/// # Errors
/// The backend's refusal to prepare the problem.
pub fn check_against(
    backend: &dyn Backend,
    expected: &Expected,
    inputs: &Inputs<'_>,
    options: CheckOptions,
    progress: Progress<'_>,
) -> Result<Report, Error> {
    let problem = expected.problem();
    let bounds = Bounds::of(problem.precision);
    let mut session = backend.session(problem)?;
    let mut report = Report {
        backend: backend.name(),
        problem: *problem,
        depth: expected.depth(),
        bounds,
        agreements: Vec::new(),
        failures: Vec::new(),
    };
    let digests = digests(inputs);
    progress(Stage::Running, 0, 2);
    let first = run(session.as_mut(), expected, inputs, options.start_seed, 0, &mut report);
    progress(Stage::Running, 1, 2);
    let second = run(session.as_mut(), expected, inputs, options.start_seed, 1, &mut report);
    progress(Stage::Running, 2, 2);
    report.failures.extend(changed(&digests, inputs));
    if let Some(first) = first {
        let before = start_values(expected, options.start_seed, 0);
        report.agreements = expected.agreements(&first, Some(&before), progress);
        let failures = report.agreements.iter().flat_map(|agreement| agreement.failures(&bounds, options.exact));
        report.failures.extend(failures);
        report.failures.extend(second.into_iter().flat_map(|second| differences(problem, &first, &second)));
    }
    Ok(report)
}

/// One call; `None` when it failed, which is then in the report.
fn run(
    session: &mut dyn Session,
    expected: &Expected,
    inputs: &Inputs<'_>,
    seed: u64,
    offset_elems: usize,
    report: &mut Report,
) -> Option<OwnedOutputs> {
    let mut outputs = start_values(expected, seed, offset_elems);
    let result = session.backward(inputs, &mut outputs.views());
    report.failures.extend(outputs.written_outside().map(|tensor| Failure::WrittenOutside { tensor }));
    match result {
        Ok(()) => Some(outputs),
        Err(error) => {
            report.failures.push(Failure::Call { message: error.to_string() });
            None
        }
    }
}

/// Poisoned outputs; start values to accumulate onto are as large as the gradient, so that neither hides the other.
fn start_values(expected: &Expected, seed: u64, offset_elems: usize) -> OwnedOutputs {
    let problem = expected.problem();
    let mut outputs = OwnedOutputs::poisoned_at(problem, seed, offset_elems);
    for tensor in Tensor::OUTPUTS {
        let rms = expected.rms(tensor) as f32;
        let scale = if rms > 0.0 { rms } else { 1.0 };
        if let (Some(Write::Accumulate), Some(values)) = (problem.outputs.get(tensor), outputs.tensor_mut(tensor)) {
            values.iter_mut().for_each(|value| *value *= scale);
        }
    }
    outputs
}

fn digests(inputs: &Inputs<'_>) -> Vec<Option<[u8; 32]>> {
    Tensor::INPUTS.par_iter().map(|&tensor| digest(inputs, tensor)).collect()
}

fn changed(before: &[Option<[u8; 32]>], inputs: &Inputs<'_>) -> Vec<Failure> {
    let after = digests(inputs);
    let pairs = Tensor::INPUTS.into_iter().zip(before.iter().zip(&after));
    pairs.filter(|(_, (before, after))| before != after).map(|(tensor, _)| Failure::InputChanged { tensor }).collect()
}

/// Elements whose bits differ between two runs. All NaN count as equal.
fn differences(problem: &Problem, first: &OwnedOutputs, second: &OwnedOutputs) -> Vec<Failure> {
    let columns = problem.dims.hidden().max(1);
    let outputs = Tensor::OUTPUTS.into_iter().filter_map(|tensor| {
        let pairs = first.tensor(tensor)?.iter().zip(second.tensor(tensor)?).enumerate();
        let mut differing = pairs
            .filter(|(_, (first, second))| first.to_bits() != second.to_bits() && !(first.is_nan() && second.is_nan()))
            .map(|(index, _)| index);
        let first = differing.next()?;
        let count = 1 + differing.count() as u64;
        let first = Place { row: first / columns, column: first % columns };
        Some(Failure::Nondeterministic { tensor, count, first })
    });
    outputs.collect()
}

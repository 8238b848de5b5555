//! The reference of one problem, computed once and compared with many results.

use qkv_rope_op::reference::{ROWS_AT_A_TIME, Reference, Rows, Vectors};
use qkv_rope_op::{Error, Inputs, OwnedOutputs, Precision, Problem, Tensor};
use rayon::prelude::*;

use super::agreement::{Agreement, Block, FoundRow, Reading, Sums};
use super::progress::{Counter, Progress, Stage};
use super::sample::{Depth, Sample};

/// Reference values of the requested outputs, in full or sampled.
///
/// Memory: 16 bytes an output element in full.
#[derive(Clone, Debug)]
pub struct Expected {
    problem: Problem,
    depth: Depth,
    outputs: Vec<ExpectedOutput>,
}

#[derive(Clone, Debug)]
struct ExpectedOutput {
    tensor: Tensor,
    /// All rows in full, or sampled rows.
    elements: Block,
    /// All rows times the vectors; `None` in full.
    projections: Option<(Vectors, Block)>,
}

impl Expected {
    /// The reference of `problem` on `inputs`, spread over rayon's current pool. The values do not depend on the number
    /// of threads. When a sampled reference turns out to be non-finite somewhere, it is computed in full instead,
    /// because projections cannot say which element it is.
    ///
    /// # Errors
    /// What [`Problem::validate_inputs`] finds.
    pub fn new(problem: &Problem, inputs: &Inputs<'_>, depth: Depth, progress: Progress<'_>) -> Result<Self, Error> {
        let reference = Reference::new(problem, inputs)?;
        let expected = match depth {
            Depth::Full => Self::full(&reference, progress),
            Depth::Sampled { seed } => Self::sampled(&reference, seed, progress),
        };
        if matches!(depth, Depth::Sampled { .. }) && !expected.is_finite() {
            return Ok(Self::full(&reference, progress));
        }
        Ok(expected)
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// How much was computed.
    pub fn depth(&self) -> Depth {
        self.depth
    }

    /// How the requested outputs agree with the reference, in the order of the contract. `before` holds what outputs
    /// that are accumulated into contained before the call; it is not looked at for others.
    ///
    /// # Panics
    /// When an output was taken out of `found`, or `before` lacks one that is accumulated into.
    pub fn agreements(
        &self,
        found: &OwnedOutputs,
        before: Option<&OwnedOutputs>,
        progress: Progress<'_>,
    ) -> Vec<Agreement> {
        let counter = Counter::new(Stage::Comparing, self.outputs.len(), progress);
        let agreements = self.outputs.iter().map(|output| {
            let accumulates = self.problem.outputs.get(output.tensor) == Some(qkv_rope_op::Write::Accumulate);
            let start =
                accumulates.then(|| values_of(before.expect("start values of an accumulated output"), output.tensor));
            let agreement = output.agreement(self.problem.precision, values_of(found, output.tensor), start);
            counter.advance(1);
            agreement
        });
        agreements.collect()
    }

    /// The root mean square of an output's reference, of what was computed of it; 0 for outputs not requested.
    pub fn rms(&self, tensor: Tensor) -> f64 {
        self.outputs.iter().find(|output| output.tensor == tensor).map_or(0.0, |output| output.elements.rms())
    }

    fn is_finite(&self) -> bool {
        let finite = |block: &Block| block.expected.iter().all(|value| value.is_finite());
        self.outputs.iter().all(|output| {
            finite(&output.elements) && output.projections.as_ref().is_none_or(|(_, block)| finite(block))
        })
    }

    fn full(reference: &Reference<'_>, progress: Progress<'_>) -> Self {
        let problem = reference.problem();
        let targets = Target::of(problem);
        let counter = Counter::new(Stage::Reference, targets.iter().map(Target::rows).sum(), progress);
        let outputs = targets.par_iter().map(|target| {
            let rows = (0..target.rows()).collect();
            ExpectedOutput {
                tensor: target.tensor,
                elements: target.elements(reference, rows, &counter),
                projections: None,
            }
        });
        Self { problem: *problem, depth: Depth::Full, outputs: outputs.collect() }
    }

    fn sampled(reference: &Reference<'_>, seed: u64, progress: Progress<'_>) -> Self {
        let problem = reference.problem();
        let targets = Target::of(problem);
        let counter = Counter::new(Stage::Reference, targets.iter().map(Target::rows).sum(), progress);
        // Few rows are few tasks, so all outputs are computed side by side.
        let outputs = targets.par_iter().map(|target| {
            let Sample { rows, vectors } = Sample::draw(seed, target.tensor, target.rows(), problem.dims.hidden());
            let (elements, block) = rayon::join(
                || target.elements(reference, rows, &Counter::silent()),
                || target.projections(reference, &vectors, &counter),
            );
            ExpectedOutput { tensor: target.tensor, elements, projections: Some((vectors, block)) }
        });
        Self { problem: *problem, depth: Depth::Sampled { seed }, outputs: outputs.collect() }
    }
}

fn values_of(outputs: &OwnedOutputs, tensor: Tensor) -> &[f32] {
    outputs.tensor(tensor).unwrap_or_else(|| panic!("{tensor} was requested but is not among the outputs"))
}

impl ExpectedOutput {
    fn agreement(&self, precision: Precision, found: &[f32], start: Option<&[f32]>) -> Agreement {
        let strict = precision == Precision::Ieee;
        let columns = self.elements.columns;
        let row = |values: &'_ [f32], row: usize| values[row * columns..][..columns].to_vec();
        let magnitudes = |values: &[f32]| values.iter().map(|value| value.abs()).collect::<Vec<f32>>();
        let elements = self.elements.compare(Reading { strict, elements: true }, |index| FoundRow {
            found: wide(&row(found, index)),
            start: start.map(|start| (wide(&row(start, index)), wide(&magnitudes(&row(start, index))))),
        });
        let Some((vectors, block)) = &self.projections else {
            return elements.agreement(self.tensor, self.elements.bias_chance);
        };
        let all_positive = vectors.magnitudes();
        let projections = block.compare(Reading { strict, elements: false }, |index| FoundRow {
            found: vectors.project(&row(found, index)),
            start: start.map(|start| {
                let start = row(start, index);
                (vectors.project(&start), all_positive.project(&magnitudes(&start)))
            }),
        });
        merged(self.tensor, self.elements.bias_chance, elements, projections)
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Projections see every element, so their normwise error stands for the tensor's; the elementwise figures are of the
/// sampled rows; what either finds wrong counts.
fn merged(tensor: Tensor, bias_chance: f64, elements: Sums, projections: Sums) -> Agreement {
    let (sampled, all) = (elements.agreement(tensor, bias_chance), projections.agreement(tensor, bias_chance));
    let whole = elements.and(projections).agreement(tensor, bias_chance);
    Agreement {
        compared: sampled.compared,
        normwise: all.normwise,
        conditioned: all.conditioned,
        bias: sampled.bias,
        matched: sampled.matched,
        all_zero: sampled.all_zero && all.all_zero,
        ..whole
    }
}

/// One output and where its rows come from.
#[derive(Clone, Copy)]
struct Target {
    tensor: Tensor,
    /// First of its rows among the N; grad_hidden has rows of its own.
    first_row: usize,
    rows: usize,
    columns: usize,
    /// Terms of the sum of each element.
    terms: usize,
}

impl Target {
    fn of(problem: &Problem) -> Vec<Self> {
        let dims = problem.dims;
        let hidden = Self {
            tensor: Tensor::GradHiddenStates,
            first_row: 0,
            rows: dims.tokens(),
            columns: dims.hidden(),
            terms: dims.rows(),
        };
        let weights = dims.segments().map(|segment| Self {
            tensor: segment.weight_gradient,
            first_row: segment.first_row,
            rows: segment.rows(dims).len(),
            columns: dims.hidden(),
            terms: dims.tokens(),
        });
        let targets = std::iter::once(hidden).chain(weights);
        targets.filter(|target| problem.outputs.get(target.tensor).is_some()).collect()
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn is_hidden(&self) -> bool {
        self.tensor == Tensor::GradHiddenStates
    }

    fn elements(&self, reference: &Reference<'_>, rows: Vec<usize>, counter: &Counter<'_>) -> Block {
        let compute = |rows: &[usize]| match self.is_hidden() {
            true => reference.grad_hidden(rows),
            false => reference.grad_weight(rows),
        };
        self.block(rows, self.columns, counter, 1, compute)
    }

    fn projections(&self, reference: &Reference<'_>, vectors: &Vectors, counter: &Counter<'_>) -> Block {
        let projected = match self.is_hidden() {
            true => reference.project_weights(vectors),
            false => reference.project_hidden_states(vectors),
        };
        let compute = |rows: &[usize]| match self.is_hidden() {
            true => reference.grad_hidden_projected(rows, &projected),
            false => reference.grad_weight_projected(rows, &projected),
        };
        self.block((0..self.rows).collect(), vectors.count, counter, self.columns, compute)
    }

    /// Computes `rows` a few at a time on all threads. Each row's values are its own, so the cut does not matter.
    /// `merged` elements of the output are summed in one of the block.
    fn block(
        &self,
        rows: Vec<usize>,
        columns: usize,
        counter: &Counter<'_>,
        merged: usize,
        compute: impl Fn(&[usize]) -> Rows + Sync,
    ) -> Block {
        let at_a_time =
            rows.len().div_ceil(4 * rayon::current_num_threads()).next_multiple_of(8).clamp(8, ROWS_AT_A_TIME);
        let stacked: Vec<usize> = rows.iter().map(|row| row + self.first_row).collect();
        let parts = stacked.par_chunks(at_a_time).map(|rows| {
            let part = compute(rows);
            counter.advance(rows.len());
            (part.values, part.magnitudes)
        });
        let (expected, magnitude): (Vec<_>, Vec<_>) = parts.unzip();
        let smallest = (rows.len() * self.terms).min(self.terms * columns).min(rows.len() * columns);
        let bias_chance = 1.0 / (smallest.max(1) as f64).sqrt();
        let terms = (self.terms + 1) * merged;
        Block { rows, columns, expected: expected.concat(), magnitude: magnitude.concat(), terms, bias_chance }
    }
}

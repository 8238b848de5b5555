//! How one output agrees with its reference: figures, no judgement.

use qkv_rope_op::Tensor;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::bounds::Bounds;

/// An element of an output seen as a matrix: grad_hidden T x E, a weight gradient rows x E.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Row of this output.
    pub row: usize,
    /// Column; of a projection, the number of the vector.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "row {}, column {}", self.row, self.column)
    }
}

/// One output against its reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// The output.
    pub tensor: Tensor,
    /// Elements compared one by one.
    pub compared: u64,
    /// `‖out − ref‖₂ / ‖ref‖₂`; [`f64::MAX`] when the reference is zero and the output is not. Elements that are finite
    /// on one side only are counted in `misplaced` and left out here.
    pub normwise: f64,
    /// The largest `|out − ref|` relative to the sum of the magnitudes of its terms, beyond what f32 underflow explains.
    pub componentwise: f64,
    /// Where that is; `None` when everything agrees exactly.
    pub worst: Option<Place>,
    /// Mean signed error: `Σ (out − ref)·sign(ref) / Σ |ref|`. Near 0 for rounded operands, near -6e-4 for truncated.
    pub bias: f64,
    /// How large a bias chance gives, relative to that of one operand: 1/√n for n the elements of the smallest of the
    /// three matrices that were multiplied.
    pub bias_chance: f64,
    /// Ratio of elements within `1.9e-3·rms(ref) + 1e-5·|ref|`.
    pub matched: f64,
    /// Elements that are NaN or infinite where the reference is finite or the other way round; in `ieee` also those of
    /// another kind (NaN, +∞, −∞).
    pub misplaced: u64,
    /// The first of them.
    pub first_misplaced: Option<Place>,
    /// Elements whose bits are not those of the reference rounded to f32. Of interest where sums are exact.
    pub inexact: u64,
    /// The first of them.
    pub first_inexact: Option<Place>,
    /// Whether the reference has an element other than zero and the output has none.
    pub all_zero: bool,
}

/// Reference values of chosen rows of one output, or of their projections.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Rows of the output.
    pub(super) rows: Vec<usize>,
    pub(super) columns: usize,
    pub(super) expected: Vec<f64>,
    /// What errors are relative to.
    pub(super) magnitude: Vec<f64>,
    /// The error that underflow of single terms explains.
    pub(super) underflow: f64,
    /// See [`Agreement::bias_chance`].
    pub(super) bias_chance: f64,
}

/// What a comparison demands of non-finite elements, and how it reads the reference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Whether NaN, +∞ and −∞ are told apart.
    pub(super) strict: bool,
    /// Whether elements are f32 values, so that bits can be compared; projections are not.
    pub(super) elements: bool,
}

/// Found and start values of one row.
pub(super) struct FoundRow {
    pub(super) found: Vec<f64>,
    /// What the output held before, where it is accumulated into.
    pub(super) start: Option<Vec<f64>>,
}

impl Block {
    /// The root mean square of the finite reference values; start values are not in it.
    pub(super) fn rms(&self) -> f64 {
        let finite = self.expected.iter().filter(|value| value.is_finite());
        let (squares, count) = finite.fold((0.0, 0_u64), |(sum, count), value| (sum + value * value, count + 1));
        if count == 0 { 0.0 } else { (squares / count as f64).sqrt() }
    }

    /// Compares row by row, spread over threads; the same figures whatever their number.
    pub(super) fn compare(&self, reading: Reading, found: impl Fn(usize) -> FoundRow + Sync) -> Sums {
        let rms = self.rms();
        let row_sums = self.rows.par_iter().enumerate().map(|(index, &row)| {
            let mut sums = Sums::default();
            let FoundRow { found, start } = found(row);
            for (column, &found) in found.iter().enumerate() {
                let element = Element {
                    place: Place { row, column },
                    found,
                    gradient: self.expected[index * self.columns + column],
                    magnitude: self.magnitude[index * self.columns + column],
                    start: start.as_ref().map(|start| start[column]),
                };
                sums.add(&element, rms, self.underflow, reading);
            }
            sums
        });
        let row_sums: Vec<Sums> = row_sums.collect();
        row_sums.into_iter().fold(Sums::default(), Sums::and)
    }
}

struct Element {
    place: Place,
    found: f64,
    gradient: f64,
    magnitude: f64,
    start: Option<f64>,
}

impl Element {
    fn expected(&self) -> f64 {
        self.start.map_or(self.gradient, |start| start + self.gradient)
    }

    /// What exact arithmetic gives: the gradient is an f32 number, and accumulating is one f32 addition.
    fn exact_bits(&self) -> u32 {
        let gradient = self.gradient as f32;
        let value = self.start.map_or(gradient, |start| start as f32 + gradient);
        // Zeros of either sign are the same sum.
        (value + 0.0).to_bits()
    }
}

/// Sums over compared elements, in the order of rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    compared: u64,
    error_squared: f64,
    expected_squared: f64,
    signed_error: f64,
    expected_magnitude: f64,
    worst: Option<(f64, Place)>,
    unmatched: u64,
    misplaced: u64,
    first_misplaced: Option<Place>,
    inexact: u64,
    first_inexact: Option<Place>,
    found_nonzero: bool,
}

impl Sums {
    fn add(&mut self, element: &Element, rms: f64, underflow: f64, reading: Reading) {
        self.compared += 1;
        let (found, expected) = (element.found, element.expected());
        self.found_nonzero |= found != 0.0;
        if reading.elements
            && (found as f32 + 0.0).to_bits() != element.exact_bits()
            && !(found.is_nan() && expected.is_nan())
        {
            self.inexact += 1;
            self.first_inexact = self.first_inexact.or(Some(element.place));
        }
        if !same_kind(found, expected, reading) {
            self.misplaced += 1;
            self.first_misplaced = self.first_misplaced.or(Some(element.place));
        } else if expected.is_finite() && found.is_finite() {
            self.add_finite(element, rms, underflow);
        }
    }

    fn add_finite(&mut self, element: &Element, rms: f64, underflow: f64) {
        let expected = element.expected();
        let error = element.found - expected;
        self.error_squared += error * error;
        self.expected_squared += expected * expected;
        self.signed_error += error * expected.signum();
        self.expected_magnitude += expected.abs();
        let allowed = Bounds::MATCH_RMS * rms + Bounds::MATCH_RELATIVE * expected.abs();
        self.unmatched += u64::from(error.abs() > allowed);
        let magnitude = element.magnitude + element.start.unwrap_or(0.0).abs();
        let explained = (error.abs() - underflow).max(0.0);
        let relative = if explained == 0.0 { 0.0 } else { (explained / magnitude).min(f64::MAX) };
        if relative > self.worst.map_or(0.0, |(worst, _)| worst) {
            self.worst = Some((relative, element.place));
        }
    }

    /// Sums of two comparisons, this one's places first.
    pub(super) fn and(self, other: Self) -> Self {
        let worst = match (self.worst, other.worst) {
            (Some(ours), Some(theirs)) => Some(if theirs.0 > ours.0 { theirs } else { ours }),
            (ours, theirs) => ours.or(theirs),
        };
        Self {
            compared: self.compared + other.compared,
            error_squared: self.error_squared + other.error_squared,
            expected_squared: self.expected_squared + other.expected_squared,
            signed_error: self.signed_error + other.signed_error,
            expected_magnitude: self.expected_magnitude + other.expected_magnitude,
            worst,
            unmatched: self.unmatched + other.unmatched,
            misplaced: self.misplaced + other.misplaced,
            first_misplaced: self.first_misplaced.or(other.first_misplaced),
            inexact: self.inexact + other.inexact,
            first_inexact: self.first_inexact.or(other.first_inexact),
            found_nonzero: self.found_nonzero || other.found_nonzero,
        }
    }

    pub(super) fn normwise(&self) -> f64 {
        if self.error_squared == 0.0 { 0.0 } else { (self.error_squared / self.expected_squared).sqrt().min(f64::MAX) }
    }

    pub(super) fn agreement(&self, tensor: Tensor, bias_chance: f64) -> Agreement {
        let ratio = |part: f64, whole: f64| if part == 0.0 { 0.0 } else { (part / whole).clamp(f64::MIN, f64::MAX) };
        Agreement {
            tensor,
            compared: self.compared,
            normwise: self.normwise(),
            componentwise: self.worst.map_or(0.0, |(worst, _)| worst),
            worst: self.worst.map(|(_, place)| place),
            bias: ratio(self.signed_error, self.expected_magnitude),
            bias_chance,
            matched: 1.0 - ratio((self.unmatched + self.misplaced) as f64, self.compared as f64),
            misplaced: self.misplaced,
            first_misplaced: self.first_misplaced,
            inexact: self.inexact,
            first_inexact: self.first_inexact,
            all_zero: !self.found_nonzero && self.expected_squared > 0.0,
        }
    }
}

/// Whether both are finite, or both not and (if strict) both NaN or the same infinity. A finite sum past the range of f32
/// counts as the infinity that it rounds to.
fn same_kind(found: f64, expected: f64, reading: Reading) -> bool {
    let expected = if reading.elements { f64::from(expected as f32) } else { expected };
    match (found.is_finite(), expected.is_finite()) {
        (true, true) => true,
        (false, false) => !reading.strict || found == expected || (found.is_nan() && expected.is_nan()),
        _ => false,
    }
}

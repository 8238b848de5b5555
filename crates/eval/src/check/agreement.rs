//! How one output agrees with its reference: figures, no judgement.

use qkv_rope_op::Tensor;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::bounds::Bounds;

/// The smallest f32 step, half of which is the most that rounding a subnormal number can be off.
const SUBNORMAL_STEP: f64 = 1.401_298_464_324_817e-45;

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
    /// The same relative to no less than a quarter of the norm that sums of the same terms with random signs would have,
    /// and no less than that of the start values.
    /// Equal to `normwise` but for outputs of a few elements that happen to cancel, where rounding in f32 alone can be
    /// 1e-5 of what is left. This is what the bound is held against.
    pub conditioned: f64,
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
    /// Products in the sum of one element, and the final addition.
    pub(super) terms: usize,
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
    /// What the output held before, and its magnitude, where it is accumulated into.
    pub(super) start: Option<(Vec<f64>, Vec<f64>)>,
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
            let mut sums = Sums { terms: self.terms, ..Sums::default() };
            let FoundRow { found, start } = found(row);
            for (column, &found) in found.iter().enumerate() {
                let (place, at) = (Place { row, column }, index * self.columns + column);
                let start = start.as_ref().map(|(values, magnitudes)| (values[column], magnitudes[column]));
                let element = Element::new(place, found, (self.expected[at], self.magnitude[at]), start);
                sums.add(&element, rms, reading);
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
    expected: f64,
    magnitude: f64,
    start: f64,
    /// What exact arithmetic gives: the gradient is an f32 number, and accumulating is one f32 addition. Zeros of either
    /// sign are the same sum.
    exact_bits: u32,
}

impl Element {
    fn new(place: Place, found: f64, (gradient, magnitude): (f64, f64), start: Option<(f64, f64)>) -> Self {
        let exact = start.map_or(gradient as f32, |(start, _)| start as f32 + gradient as f32);
        let (start, start_magnitude) = start.unwrap_or_default();
        Self {
            place,
            found,
            expected: start + gradient,
            magnitude: start_magnitude + magnitude,
            start,
            exact_bits: (exact + 0.0).to_bits(),
        }
    }

    fn is_exact(&self) -> bool {
        (self.found as f32 + 0.0).to_bits() == self.exact_bits || (self.found.is_nan() && self.expected.is_nan())
    }

    /// The error relative to the magnitude of the terms, beyond what underflow of each of them explains.
    fn relative_error(&self, terms: usize) -> f64 {
        let error = ((self.found - self.expected).abs() - SUBNORMAL_STEP / 2.0 * terms as f64).max(0.0);
        if error == 0.0 { 0.0 } else { (error / self.magnitude).min(f64::MAX) }
    }
}

/// Sums over compared elements, in the order of rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    terms: usize,
    compared: u64,
    error_squared: f64,
    expected_squared: f64,
    /// Of the norm that `conditioned` is relative to at least.
    least_squared: f64,
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
    fn add(&mut self, element: &Element, rms: f64, reading: Reading) {
        self.compared += 1;
        self.found_nonzero |= element.found != 0.0;
        if reading.elements && !element.is_exact() {
            self.inexact += 1;
            self.first_inexact = self.first_inexact.or(Some(element.place));
        }
        if !same_kind(element.found, element.expected, reading) {
            self.misplaced += 1;
            self.first_misplaced = self.first_misplaced.or(Some(element.place));
        } else if element.expected.is_finite() && element.found.is_finite() {
            self.add_finite(element, rms);
        }
    }

    fn add_finite(&mut self, element: &Element, rms: f64) {
        let error = element.found - element.expected;
        self.error_squared += error * error;
        self.expected_squared += element.expected * element.expected;
        let random_signs = element.magnitude * element.magnitude / self.terms.max(1) as f64;
        self.least_squared += random_signs / 16.0 + element.start * element.start;
        self.signed_error += error * element.expected.signum();
        self.expected_magnitude += element.expected.abs();
        let allowed = Bounds::MATCH_RMS * rms + Bounds::MATCH_RELATIVE * element.expected.abs();
        self.unmatched += u64::from(error.abs() > allowed);
        let relative = element.relative_error(self.terms);
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
            terms: self.terms.max(other.terms),
            compared: self.compared + other.compared,
            error_squared: self.error_squared + other.error_squared,
            expected_squared: self.expected_squared + other.expected_squared,
            least_squared: self.least_squared + other.least_squared,
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

    /// The norm of the error relative to that of the reference, or to `least` if that is larger.
    fn relative_norm(&self, least: f64) -> f64 {
        let norm = self.expected_squared.sqrt().max(least);
        if self.error_squared == 0.0 { 0.0 } else { (self.error_squared.sqrt() / norm).min(f64::MAX) }
    }

    pub(super) fn agreement(&self, tensor: Tensor, bias_chance: f64) -> Agreement {
        let ratio = |part: f64, whole: f64| if part == 0.0 { 0.0 } else { (part / whole).clamp(f64::MIN, f64::MAX) };
        Agreement {
            tensor,
            compared: self.compared,
            normwise: self.relative_norm(0.0),
            conditioned: self.relative_norm(self.least_squared.sqrt()),
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

//! The check passes what is right and fails every known mistake, for the right reason.

mod plain;

use std::sync::atomic::{AtomicUsize, Ordering};

use kernelproof_eval::check::{CheckOptions, Depth, Expected, Failure, Report, Stage, check, silent};
use plain::{Bug, Plain};
use qkv_rope_op::inputs::{Arranged, Arrangement};
use qkv_rope_op::{Dims, OwnedInputs, Pairing, Precision, Problem, Recipe, Requested, Tensor, View, Write};

const SAMPLED: Depth = Depth::Sampled { seed: 9 };

/// Grouped heads, partial rotary, ragged in everything.
fn dims() -> Dims {
    Dims::new(2, 37, 70, 4, 2, 16).unwrap().with_rotary_dim(12).unwrap()
}

fn problem() -> Problem {
    Problem::new(dims())
}

fn report(bug: Bug, problem: &Problem, recipe: Recipe, depth: Depth) -> Report {
    let inputs = OwnedInputs::generate(problem.dims, recipe, 200);
    let options = CheckOptions { depth, exact: recipe == Recipe::Exact, ..CheckOptions::default() };
    check(&Plain(bug), problem, &inputs.views(), options, &silent).unwrap()
}

/// The kinds of failure, once each, in order.
fn reasons(report: &Report) -> Vec<String> {
    let mut reasons: Vec<String> = report.failures.iter().map(kind).collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

fn kind(failure: &Failure) -> String {
    let json = serde_json::to_value(failure).unwrap();
    json["reason"].as_str().unwrap().to_owned()
}

fn tensors_with(report: &Report, reason: &str) -> Vec<String> {
    let of_kind = report.failures.iter().filter(|failure| kind(failure) == reason);
    of_kind.map(|failure| serde_json::to_value(failure).unwrap()["tensor"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn rejected(bug: Bug, problem: &Problem, recipe: Recipe, reason: &str) -> Report {
    for depth in [SAMPLED, Depth::Full] {
        let report = report(bug, problem, recipe, depth);
        assert!(reasons(&report).iter().any(|found| found == reason), "{bug:?} {depth:?}: {:?}", report.failures);
    }
    report(bug, problem, recipe, Depth::Full)
}

#[test]
fn what_is_right_passes() {
    for recipe in Recipe::ALL {
        for pairing in [Pairing::HalfSplit, Pairing::Interleaved] {
            for precision in [Precision::Ieee, Precision::Split, Precision::Fast] {
                for depth in [Depth::Full, SAMPLED] {
                    let problem = Problem { pairing, precision, ..problem() };
                    let report = report(Bug::None, &problem, recipe, depth);
                    assert!(report.passed(), "{recipe} {pairing:?} {precision:?} {depth:?}: {:?}", report.failures);
                }
            }
        }
    }
}

#[test]
fn what_is_right_passes_accumulating_and_in_part() {
    for recipe in Recipe::ALL {
        let outputs = Requested::all(Write::Accumulate);
        let accumulating = report(Bug::None, &Problem { outputs, ..problem() }, recipe, Depth::Full);
        assert!(accumulating.passed(), "{recipe}: {:?}", accumulating.failures);
        let sampled = report(Bug::None, &Problem { outputs, ..problem() }, recipe, SAMPLED);
        assert!(sampled.passed(), "{recipe}: {:?}", sampled.failures);
    }
    let outputs = Requested { grad_hidden: Some(Write::Overwrite), ..Requested::none() };
    let report = report(Bug::None, &Problem { outputs, ..problem() }, Recipe::Benchmark, Depth::Full);
    assert!(report.passed() && report.agreements.len() == 1);
}

#[test]
fn what_is_right_passes_where_an_axis_is_zero() {
    let empty =
        Problem { outputs: Requested::all(Write::Accumulate), ..Problem::new(dims().with_tokens(0, 5).unwrap()) };
    let no_hidden = Problem::new(Dims::new(2, 3, 0, 2, 1, 4).unwrap());
    let no_heads = Problem::new(Dims::new(2, 3, 5, 0, 0, 4).unwrap());
    for problem in [empty, Problem::new(dims().with_tokens(3, 0).unwrap()), no_hidden, no_heads] {
        for depth in [Depth::Full, SAMPLED] {
            let report = report(Bug::None, &problem, Recipe::Benchmark, depth);
            assert!(report.passed(), "{:?}", report.failures);
        }
    }
}

#[test]
fn arranged_inputs_have_the_reference_of_their_packed_copies() {
    let owned = OwnedInputs::generate(dims(), Recipe::Benchmark, 4);
    let arrangements = [Arrangement::Offset(3), Arrangement::Transposed, Arrangement::Padded(5), Arrangement::Expanded];
    for arrangement in arrangements {
        let arranged = Arranged::new(&owned, arrangement);
        let report = check(&Plain(Bug::None), &problem(), &arranged.views(), CheckOptions::default(), &silent).unwrap();
        let packed = check(&Plain(Bug::None), &problem(), &arranged.packed().views(), CheckOptions::default(), &silent);
        assert!(report.passed());
        assert_eq!(report, packed.unwrap());
    }
}

#[test]
fn a_wrong_rotation_is_far_off_in_rotated_outputs_only() {
    for bug in [Bug::SignFlip, Bug::SinSwapped, Bug::LeftHalfOfTables] {
        for pairing in [Pairing::HalfSplit, Pairing::Interleaved] {
            let report = rejected(bug, &Problem { pairing, ..problem() }, Recipe::Benchmark, "normwise");
            assert_eq!(
                tensors_with(&report, "normwise"),
                ["grad_hidden_states", "grad_q_weight", "grad_k_weight"],
                "{bug:?}"
            );
        }
    }
}

#[test]
fn a_wrong_tail_is_far_off() {
    let report = rejected(Bug::TailIsOne, &problem(), Recipe::Benchmark, "normwise");
    assert_eq!(tensors_with(&report, "normwise"), ["grad_hidden_states", "grad_q_weight", "grad_k_weight"]);
}

#[test]
fn a_wrong_head_map_is_far_off_in_grad_hidden() {
    let report = rejected(Bug::WrongHeadMap, &problem(), Recipe::Benchmark, "normwise");
    assert_eq!(tensors_with(&report, "normwise"), ["grad_hidden_states"]);
}

#[test]
fn a_dropped_token_is_far_off_in_weight_gradients() {
    let report = rejected(Bug::TokenDropped, &problem(), Recipe::Benchmark, "normwise");
    assert_eq!(tensors_with(&report, "normwise"), ["grad_q_weight", "grad_k_weight", "grad_v_weight"]);
}

#[test]
fn a_row_that_is_not_written_is_misplaced_nan() {
    let report = rejected(Bug::RowNotWritten, &problem(), Recipe::Benchmark, "misplaced");
    let expected = "grad_hidden_states: 70 elements are finite, NaN or infinite where the reference is not, the first at \
                    row 73, column 0";
    assert_eq!(report.failures[0].to_string(), expected);
}

#[test]
fn one_nan_is_misplaced() {
    let report = rejected(Bug::OneNan, &problem(), Recipe::Benchmark, "misplaced");
    assert_eq!(reasons(&report), ["misplaced"]);
    let agreement = report.agreements[0];
    assert_eq!((agreement.tensor, agreement.misplaced), (Tensor::GradHiddenStates, 1));
}

#[test]
fn one_wrong_element_is_found_where_it_is() {
    for precision in [Precision::Ieee, Precision::Split, Precision::Fast] {
        let problem = Problem { precision, ..problem() };
        let report = report(Bug::OneWrongElement, &problem, Recipe::Benchmark, Depth::Full);
        let place = report.failures.iter().find_map(|failure| match failure {
            Failure::Componentwise { tensor: Tensor::GradVWeight, place, .. } => Some((place.row, place.column)),
            _ => None,
        });
        assert!(matches!(place, Some((3, 5 | 6))), "{precision:?} {:?}", report.failures);
    }
    rejected(Bug::OneWrongElement, &problem(), Recipe::Benchmark, "normwise");
}

#[test]
fn truncated_operands_show_as_bias() {
    let fast = Problem { precision: Precision::Fast, ..Problem::new(Dims::new(2, 128, 96, 4, 2, 16).unwrap()) };
    let report = rejected(Bug::Truncated, &fast, Recipe::Benchmark, "normwise");
    assert!(reasons(&report).contains(&"bias".to_owned()));
    assert!(report.agreements.iter().all(|agreement| (-8e-4..-5e-4).contains(&agreement.bias)), "{report:?}");
    let report = report_of_half_truncated(&fast);
    assert_eq!(tensors_with(&report, "bias").len(), 4, "{:?}", report.failures);
}

fn report_of_half_truncated(problem: &Problem) -> Report {
    report(Bug::HalfTruncated, problem, Recipe::Positive, Depth::Full)
}

#[test]
fn rounded_operands_are_not_ieee() {
    let report = rejected(Bug::RoundedSecretly, &problem(), Recipe::Benchmark, "normwise");
    assert!(report.worst_normwise() > 1e-4);
}

#[test]
fn another_order_the_next_time_is_nondeterministic_and_nothing_else() {
    let report = rejected(Bug::OtherOrderNextTime, &problem(), Recipe::Benchmark, "nondeterministic");
    assert_eq!(reasons(&report), ["nondeterministic"]);
}

#[test]
fn relying_on_zeroed_outputs_is_misplaced_nan() {
    let report = rejected(Bug::RelyOnZeroedOutputs, &problem(), Recipe::Benchmark, "misplaced");
    assert_eq!(tensors_with(&report, "misplaced").len(), 4);
}

#[test]
fn accumulation_must_be_one_addition_of_the_whole() {
    let accumulating = Problem { outputs: Requested::all(Write::Accumulate), ..problem() };
    let report = rejected(Bug::AccumulateIgnored, &accumulating, Recipe::Benchmark, "normwise");
    assert_eq!(tensors_with(&report, "normwise").len(), 4);
    let report = rejected(Bug::AccumulateTermByTerm, &accumulating, Recipe::Exact, "inexact");
    assert_eq!(reasons(&report), ["inexact"], "rounding alone, or another test would have seen it");
}

#[test]
fn hidden_non_finite_values_are_misplaced() {
    let report = rejected(Bug::NonFiniteHidden, &problem(), Recipe::NonFinite, "misplaced");
    assert_eq!(report.depth, Depth::Full, "projections cannot tell which element is not finite");
}

#[test]
fn zeros_are_named_as_such() {
    let report = rejected(Bug::Zeros, &problem(), Recipe::Benchmark, "all-zero");
    assert_eq!(tensors_with(&report, "all-zero").len(), 4);
}

#[test]
fn one_bit_shows_where_sums_are_exact() {
    let report = report(Bug::OneBit, &problem(), Recipe::Exact, Depth::Full);
    assert_eq!(reasons(&report), ["inexact"]);
    let message = report.failures[0].to_string();
    assert_eq!(message, "grad_hidden_states: 1 elements differ from the exact sum, the first at row 1, column 2");
}

#[test]
fn a_call_that_fails_is_a_failure() {
    let report = rejected(Bug::Fails, &problem(), Recipe::Benchmark, "call");
    assert_eq!(report.failures[0].to_string(), "the call failed: plain failed: told to");
    assert!(report.agreements.is_empty());
}

#[test]
fn a_written_input_is_named() {
    let owned = OwnedInputs::generate(dims(), Recipe::Benchmark, 1);
    let mut hidden = owned.tensor(Tensor::HiddenStates).unwrap().to_vec();
    let base = hidden.as_mut_ptr();
    // SAFETY: `hidden` outlives the view, has the shape's elements, and is reached through `base` alone until the end.
    let view = unsafe { View::from_raw_parts(base, [2, 37, 70], [37 * 70, 70, 1]) }.unwrap();
    let mut inputs = owned.views();
    inputs.hidden_states = Some(view);
    let options = CheckOptions { depth: SAMPLED, ..CheckOptions::default() };
    let report = check(&Plain(Bug::InputWritten), &problem(), &inputs, options, &silent).unwrap();
    assert!(report.failures.contains(&Failure::InputChanged { tensor: Tensor::HiddenStates }));
    assert_eq!(tensors_with(&report, "input-changed"), ["hidden_states"]);
}

#[test]
fn a_report_survives_json() {
    let report = report(Bug::OneNan, &problem(), Recipe::Benchmark, SAMPLED);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

/// The estimate that sampled checks report is that of the whole tensor, not of the sampled rows.
#[test]
fn a_sampled_normwise_error_estimates_the_full_one() {
    let problem = Problem::new(Dims::new(1, 90, 120, 3, 1, 24).unwrap());
    let of = |bug, depth| report(bug, &problem, Recipe::Benchmark, depth).agreements;
    let low_rank = 0.4..2.2;
    for (bug, range) in [(Bug::None, 0.85..1.18), (Bug::RoundedSecretly, 0.85..1.18), (Bug::TokenDropped, low_rank)] {
        for (full, sampled) in of(bug, Depth::Full).iter().zip(of(bug, SAMPLED)) {
            let ratio = sampled.normwise / full.normwise;
            assert!(range.contains(&ratio), "{bug:?} {}: {ratio}", full.tensor);
        }
    }
}

#[test]
fn progress_counts_every_reference_row_once() {
    let rows = AtomicUsize::new(0);
    let progress = |stage: Stage, done: usize, total: usize| {
        assert!(done <= total);
        if stage == Stage::Reference && done == total {
            rows.fetch_add(total, Ordering::Relaxed);
        }
    };
    let inputs = OwnedInputs::generate(dims(), Recipe::Benchmark, 1);
    for depth in [Depth::Full, SAMPLED] {
        rows.store(0, Ordering::Relaxed);
        Expected::new(&problem(), &inputs.views(), depth, &progress).unwrap();
        assert_eq!(rows.load(Ordering::Relaxed), dims().tokens() + dims().rows(), "{depth:?}");
    }
}

/// The reference itself is what is compared with, so its bits must not depend on how many threads computed it.
#[test]
fn figures_do_not_depend_on_the_number_of_threads() {
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| report(Bug::RoundedSecretly, &problem(), Recipe::Benchmark, Depth::Full))
    };
    assert_eq!(on(1), on(3));
}

#[test]
fn headroom_is_what_is_left_of_the_bound() {
    let report = report(Bug::None, &problem(), Recipe::Exact, SAMPLED);
    assert!(report.agreements.iter().all(|agreement| agreement.headroom(&report.bounds) > 0.9));
    assert!(report.worst_normwise() <= 2e-7);
}

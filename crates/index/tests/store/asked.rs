//! What `resolve` answers, and why it leaves others out.

use kernelproof_eval::evaluation::Status;
use kernelproof_index::Catalog;
use kernelproof_index::catalog::{Question, Resolution, ResolveError};
use kernelproof_index::testing::generate::Recipe;
use kernelproof_index::trust::Trust;
use qkv_rope_op::Precision;

use crate::support::{Place, assert_finds, recipe};

fn catalog() -> Catalog {
    let place = Place::new();
    let gpu = |recipe: Recipe, mode| Recipe {
        device: "Example GPU".to_owned(),
        device_kind: "cuda".to_owned(),
        mode,
        ..recipe
    };
    place.add(&recipe("slow", 1, 60_000.0));
    place.add(&recipe("fast", 2, 30_000.0));
    place.add(&recipe("fast", 3, 30_100.0));
    place.add(&Recipe { failed: Some((0, Status::WrongValues)), ..recipe("wrong", 4, 20_000.0) });
    place.add(&gpu(recipe("gpu", 5, 100.0), Precision::Split));
    place.add(&gpu(recipe("rough", 6, 40.0), Precision::Fast));
    place.import();
    place.catalog()
}

fn question(device: &str) -> Question {
    Question { operation: "qkv-rope-backward".to_owned(), device: device.to_owned(), ..Question::default() }
}

fn names(resolution: &Resolution) -> Vec<Vec<(usize, &str)>> {
    let cohorts = resolution.cohorts.iter();
    cohorts.map(|cohort| cohort.ranked.iter().map(|row| (row.rank, row.name.as_str())).collect()).collect()
}

fn reasons(resolution: &Resolution, name: &str) -> Vec<String> {
    resolution.excluded.iter().find(|excluded| excluded.name == name).expect("it is excluded").reasons.clone()
}

#[test]
fn those_that_fit_are_ranked_with_a_way_to_install_them() {
    let catalog = catalog();
    let resolution = catalog.resolve(&question("cpu")).expect("all is known");
    assert_eq!(names(&resolution), [[(1, "fast"), (2, "slow")]]);
    let first = &resolution.cohorts[0].ranked[0];
    assert_eq!((first.install.as_deref(), first.licence.as_deref()), (Some("cargo add kernels"), Some("MIT")));
    assert_eq!((first.ratio_to_first.estimate, first.trust), (1.0, Trust::Verified));
    assert_eq!((resolution.basis.as_str(), &resolution.case), ("geometric mean over the suite", &None));
    assert_finds(&reasons(&resolution, "wrong"), "case s128b2 did not pass: wrong-values");
    assert_finds(&reasons(&resolution, "gpu"), "no run on cpu; runs on Example GPU");
    for device in ["example-cpu", "Example CPU", "EXAMPLE CPU"] {
        assert_eq!(catalog.resolve(&question(device)).expect("all is known").cohorts, resolution.cohorts, "{device}");
    }
}

#[test]
fn axes_choose_a_case_or_the_nearest() {
    let catalog = catalog();
    let of = |seq_len, batch_size| {
        let axes = [("seq_len".to_owned(), seq_len), ("batch_size".to_owned(), batch_size)].into();
        catalog.resolve(&Question { axes, ..question("cpu") }).expect("all is known")
    };
    let exact = of(1024, 2);
    assert_eq!((exact.case.as_deref(), exact.basis.as_str()), (Some("s1024b2"), "case s1024b2 has exactly these axes"));
    assert_eq!(names(&exact), [[(1, "fast"), (2, "slow")]]);
    let time_ns = exact.cohorts[0].ranked[0].time_ns.estimate;
    assert!((time_ns / (2.0 * 1024.0 * 30_000.0) - 1.0).abs() < 0.01, "{time_ns}");
    let nearest = of(1000, 2);
    assert_eq!(nearest.basis, "no case has these axes; times are of s1024b2, the nearest");
    assert_eq!(nearest.cohorts, exact.cohorts);
}

#[test]
fn a_mode_and_a_trust_leave_others_out() {
    let catalog = catalog();
    let split = Question { mode: Some("split".to_owned()), ..question("cuda") };
    let resolution = catalog.resolve(&split).expect("all is known");
    assert_eq!(names(&resolution), [[(1, "gpu")]]);
    assert_finds(&reasons(&resolution, "rough"), "it computes in mode fast");
    let verified = Question { trust: Some(Trust::Verified), ..question("cpu") };
    let resolution = catalog.resolve(&verified).expect("all is known");
    assert_eq!(names(&resolution), [[(1, "fast")]]);
    assert_finds(&reasons(&resolution, "slow"), "is reproducible, asked for verified");
    let nowhere = catalog.resolve(&question("Another GPU")).expect("the question makes sense");
    assert_eq!((nowhere.device, nowhere.cohorts.len(), nowhere.excluded.len()), (None, 0, 5));
}

#[test]
fn questions_that_make_no_sense_say_what_would() {
    let catalog = catalog();
    let error = |question: Question| catalog.resolve(&question).expect_err("it makes no sense");
    let found = error(Question { operation: "softmax".to_owned(), ..question("cpu") });
    assert_eq!(found.to_string(), "operation: found \"softmax\", expected one of qkv-rope-backward");
    let axis = |name: &str, size| Question { axes: [(name.to_owned(), size)].into(), ..question("cpu") };
    assert_eq!(error(axis("seq_len", 0)).to_string(), "axes.seq_len: found 0, expected at least 1");
    assert_eq!(
        error(axis("head_dim", 64)).to_string(),
        "axes.head_dim: found 64, expected 96: the operation's constant"
    );
    assert!(error(axis("length", 1)).to_string().contains("expected one of the axes batch_size, seq_len"));
    assert!(error(axis("q_out_dim", 1)).to_string().contains("it follows from num_heads * head_dim"));
    catalog.resolve(&axis("head_dim", 96)).expect("it is the constant");
    let found = error(Question { mode: Some("tf32".to_owned()), ..question("cpu") });
    assert!(matches!(found, ResolveError::Mode { .. }), "{found}");
}

#[test]
fn names_find_what_they_name() {
    let catalog = catalog();
    let operation = &catalog.operations()[0];
    for name in [
        "qkv-rope-backward",
        "064_multi_head_qkv_projection_with_rope_backward",
        "e810e0e29d64",
        &operation.id.to_string(),
    ] {
        assert_eq!(catalog.operation(name), Some(operation), "{name}");
    }
    for name in ["e810e0e", "e810e0e29d65", "", "ROPE"] {
        assert_eq!(catalog.operation(name), None, "{name}");
    }
    assert!(catalog.search("", 10).is_empty() && catalog.search("  ", 10).is_empty());
    assert_eq!(catalog.search("ROPE backward", 10)[0].slug, "qkv-rope-backward");
    assert_eq!(catalog.search("example", 2).len(), 2);
    assert!(catalog.search("rope zzz", 10).is_empty());
    let slug = |name: &str| catalog.implementation(name).map(|entry| entry.spec.name.clone());
    assert_eq!((slug("fast"), slug("none")), (Some("fast".to_owned()), None));
}

//! Every way in which a call can be wrong, and what it says.

use qkv_rope_op::{
    Case, Cost, Dims, Error, OwnedInputs, OwnedOutputs, Pairing, Precision, Problem, Recipe, Requested, SUITE, Tensor,
    View, ViewMut, Write,
};

fn dims() -> Dims {
    Dims::new(2, 3, 5, 4, 2, 8).unwrap()
}

fn inputs() -> OwnedInputs {
    OwnedInputs::generate(dims(), Recipe::Benchmark, 1)
}

fn message<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn contradictory_dimensions_are_refused() {
    assert_eq!(message(Dims::new(1, 1, 1, 1, 1, 7)), "dimensions: head size D must be even, found 7");
    assert_eq!(message(dims().with_rotary_dim(3)), "dimensions: rotary size R must be even, found 3");
    assert_eq!(message(dims().with_rotary_dim(10)), "dimensions: rotary size R = 10 is larger than head size D = 8");
}

#[test]
fn dimensions_that_overflow_are_refused() {
    let big = 1 << 40;
    let overflow = "dimensions: B*S or (H + 2K)*D overflows 64 bits";
    assert_eq!(message(Dims::new(big, big, 1, 1, 1, 2)), overflow);
    assert_eq!(message(Dims::new(1, 1, 1, big, 1, big)), overflow);
    assert_eq!(message(Dims::new(1, 1, 1, 1, usize::MAX, 2)), overflow);
    let unaddressable = "dimensions: a tensor of 1099511627776 x 1099511627776 f32 elements is not addressable";
    assert_eq!(message(Dims::new(big, 1, big, 1, 1, 2)), unaddressable);
    let gradient = Dims::new(big, 1, 1, 0, 0, 2).unwrap().with_tokens(1 << 61, 1);
    assert!(gradient.is_err(), "2^61 rotary rows of 2 f32 are 2^64 bytes");
    assert!(Dims::new(1 << 20, 1 << 20, 1, 1, 1, 2).is_ok(), "2^40 tokens alone are addressable");
}

#[test]
fn dimensions_survive_json_and_nothing_else_gets_in() {
    let text = serde_json::to_string(&dims()).unwrap();
    assert_eq!(text, r#"{"B":2,"S":3,"E":5,"H":4,"K":2,"D":8,"R":8}"#);
    assert_eq!(serde_json::from_str::<Dims>(&text).unwrap(), dims());
    let odd = serde_json::from_str::<Dims>(&text.replace(r#""D":8"#, r#""D":9"#)).unwrap_err();
    assert!(odd.to_string().starts_with("dimensions: head size D must be even, found 9"));
    assert!(serde_json::from_str::<Dims>(r#"{"B":2,"S":3,"E":5,"H":4,"K":2,"D":8,"R":8,"Z":1}"#).is_err());
}

#[test]
fn views_reach_no_further_than_their_memory() {
    let memory = [0.0; 12];
    assert!(View::new(&memory, [3, 4], [4, 1]).is_ok());
    let expected = "view of shape [3, 4] with strides [5, 1] needs 14 elements, found 12";
    assert_eq!(message(View::new(&memory, [3, 4], [5, 1])), expected);
    let expected = "view of shape [3, 5] with strides [5, 1] needs 15 elements, found 12";
    assert_eq!(message(View::contiguous(&memory, [3, 5])), expected);
    let huge = View::new(&memory, [1 << 40, 4], [1 << 40, 1]);
    assert!(message(huge).contains("needs 1208925819613529663078404 elements"), "no overflow on the way");
    assert!(View::new(&memory, [0, 99], [usize::MAX, 1]).is_ok(), "an empty tensor needs nothing");
    assert_eq!(View::contiguous(&memory, [0, 99]).unwrap().address_range().len(), 0);
}

#[test]
fn rows_must_be_contiguous() {
    let expected =
        "view of shape [3, 4] has stride 3 in its last dimension, expected 1: copy it to contiguous memory first";
    assert_eq!(message(View::new(&[0.0; 12], [3, 4], [1, 3])), expected);
    assert!(View::new(&[0.0; 12], [12, 1], [1, 99]).is_ok(), "the stride of one element does not matter");
}

#[test]
fn outputs_must_not_overlap_themselves() {
    let mut memory = [0.0; 12];
    let expected = "output view of shape [3, 4] with strides [3, 1] writes an element more than once";
    assert_eq!(message(ViewMut::new(&mut memory, [3, 4], [3, 1])), expected);
    assert!(ViewMut::new(&mut memory, [3, 4], [0, 1]).is_err(), "an expanded output");
    assert!(ViewMut::new(&mut memory, [2, 3, 2], [2, 4, 1]).is_ok(), "a transposed output");
}

#[test]
fn rows_come_in_packed_order_whatever_the_strides() {
    let memory: Vec<f32> = (0..12_u8).map(f32::from).collect();
    let transposed = View::new(&memory, [3, 2, 2], [2, 6, 1]).unwrap();
    let rows: Vec<&[f32]> = transposed.rows().collect();
    assert_eq!(rows, [[0.0, 1.0], [6.0, 7.0], [2.0, 3.0], [8.0, 9.0], [4.0, 5.0], [10.0, 11.0]]);
}

#[test]
fn a_call_must_be_what_was_planned() {
    let (inputs, problem) = (inputs(), Problem::new(dims()));
    let mut outputs = OwnedOutputs::poisoned(&problem, 0);
    assert_eq!(problem.validate(&inputs.views(), &outputs.views()), Ok(()));

    let accumulating = Problem { outputs: Requested::all(Write::Accumulate), ..problem };
    let expected = "grad_hidden_states: found an output to overwrite, expected an output to accumulate into as planned";
    assert_eq!(message(accumulating.validate(&inputs.views(), &outputs.views())), expected);

    let mut views = outputs.views();
    views.grad_k_weight = None;
    let expected = "grad_k_weight: found no output, expected an output to overwrite as planned";
    assert_eq!(message(problem.validate(&inputs.views(), &views)), expected);
}

#[test]
fn missing_inputs_are_named_with_what_needs_them() {
    let problem = Problem::new(dims());
    let mut outputs = OwnedOutputs::poisoned(&problem, 0);
    let mut validate = |inputs: &OwnedInputs| message(problem.validate(&inputs.views(), &outputs.views()));
    let expected = "v_weight: missing, but grad_hidden_states is computed from it";
    assert_eq!(validate(&inputs().without(Tensor::VWeight)), expected);
    let expected = "hidden_states: missing, but grad_q_weight is computed from it";
    assert_eq!(validate(&inputs().without(Tensor::HiddenStates)), expected);
    assert!(inputs().without(Tensor::Cos).tensor(Tensor::Cos).is_some(), "tables are never optional");

    let only_values = Requested { grad_v_weight: Some(Write::Overwrite), ..Requested::none() };
    let problem = Problem { outputs: only_values, ..problem };
    let inputs = inputs().without(Tensor::QWeight).without(Tensor::KWeight).without(Tensor::VWeight);
    assert_eq!(problem.validate(&inputs.views(), &OwnedOutputs::poisoned(&problem, 0).views()), Ok(()));
}

#[test]
fn wrong_shapes_are_named_with_both() {
    let problem = Problem::new(dims());
    let longer = OwnedInputs::generate(Dims::new(2, 3, 6, 4, 2, 8).unwrap(), Recipe::Benchmark, 1);
    let expected = "hidden_states: found shape [2, 3, 6], expected [2, 3, 5]";
    let mut outputs = OwnedOutputs::poisoned(&problem, 0);
    assert_eq!(message(problem.validate(&longer.views(), &outputs.views())), expected);
    assert_eq!(message(problem.validate_inputs(&longer.views())), expected);

    let mut memory = vec![0.0; 4 * 8 * 6];
    let mut views = outputs.views();
    views.grad_q_weight.as_mut().unwrap().view = ViewMut::contiguous(&mut memory, [32, 6]).unwrap();
    let expected = "grad_q_weight: found shape [32, 6], expected [32, 5]";
    assert_eq!(message(problem.validate(&inputs().views(), &views)), expected);
}

#[test]
fn outputs_must_not_overlap_anything() {
    let (inputs, problem) = (inputs(), Problem::new(dims()));
    let mut outputs = OwnedOutputs::poisoned(&problem, 0);
    let mut views = outputs.views();
    let address = views.grad_k_weight.as_mut().unwrap().view.as_mut_ptr();
    // SAFETY: nobody reads or writes through this view; only its addresses are looked at.
    let alias = unsafe { ViewMut::from_raw_parts(address, [16, 5], [5, 1]) };
    views.grad_v_weight.as_mut().unwrap().view = alias.unwrap();
    let expected = "grad_k_weight and grad_v_weight overlap in memory, and grad_k_weight is written";
    assert_eq!(message(problem.validate(&inputs.views(), &views)), expected);

    let hidden = inputs.views().hidden_states.unwrap();
    // SAFETY: as above.
    let alias = unsafe { ViewMut::from_raw_parts(hidden.as_ptr().cast_mut(), hidden.shape(), hidden.strides()) };
    let mut views = outputs.views();
    views.grad_hidden.as_mut().unwrap().view = alias.unwrap();
    let expected = "grad_hidden_states and hidden_states overlap in memory, and grad_hidden_states is written";
    assert_eq!(message(problem.validate(&inputs.views(), &views)), expected);
}

#[test]
fn files_give_the_right_number_of_elements() {
    let given = |change: fn(Tensor, Vec<f32>) -> Option<Vec<f32>>| {
        let inputs = inputs();
        let tensors = Tensor::INPUTS.into_iter().filter_map(|tensor| {
            change(tensor, inputs.tensor(tensor).unwrap().to_vec()).map(|values| (tensor, values))
        });
        OwnedInputs::from_vecs(dims(), tensors.collect::<Vec<_>>())
    };
    assert_eq!(given(|_, values| Some(values)).unwrap(), inputs());
    let short = given(|tensor, values| Some(if tensor == Tensor::KWeight { vec![0.0; 3] } else { values }));
    assert_eq!(message(short), "k_weight: found shape [3], expected [16, 5]");
    let absent = given(|tensor, values| (tensor != Tensor::Sin).then_some(values));
    assert_eq!(message(absent), "sin: missing, every call needs it");
    let output = OwnedInputs::from_vecs(dims(), [(Tensor::GradQWeight, vec![0.0; 160])]);
    assert_eq!(message(output), "grad_q_weight: found shape [160], expected []");

    let shared = given(|tensor, values| {
        let table = matches!(tensor, Tensor::Cos | Tensor::Sin);
        Some(if table { values[..3 * 8].to_vec() } else { values })
    });
    let shared = shared.unwrap();
    assert_eq!((shared.views().cos.strides(), shared.views().cos.shape()), ([0, 8, 1], [2, 3, 8]));
    assert_eq!(shared.views().sin.row(&[0, 2]), shared.views().sin.row(&[1, 2]));
}

#[test]
fn partners_are_the_other_index_of_their_pair() {
    for pairing in [Pairing::HalfSplit, Pairing::Interleaved] {
        for rotary_dim in [2, 4, 10, 96] {
            for pair in 0..rotary_dim / 2 {
                let (first, second) = pairing.indices(pair, rotary_dim);
                let (of_first, of_second) = (pairing.partner(first, rotary_dim), pairing.partner(second, rotary_dim));
                assert_eq!((of_first.index, of_first.is_second), (second, true));
                assert_eq!((of_second.index, of_second.is_second), (first, false));
            }
        }
    }
}

#[test]
fn the_suite_costs_what_the_contract_says() {
    for case in SUITE {
        let cost = Cost::of(&Problem::new(case.dims()));
        let tokens = case.dims().tokens() as u128;
        assert_eq!(cost.flops, 2 * 2 * 3072 * 1536 * tokens, "18.87 MFLOP per token");
        // Gradients, hidden states in and out, both tables; weights in and out.
        assert_eq!(cost.min_bytes, 4 * (tokens * (3072 + 2 * 1536 + 2 * 96) + 2 * 3072 * 1536));
    }
    let total: u128 = SUITE.into_iter().map(|case| Cost::of(&Problem::new(case.dims())).flops).sum();
    assert_eq!(total / 1_000_000_000, 1053, "1.05 TFLOP for the suite");
}

/// The floors in the contract for an H200 (989 TFLOP/s in fp16, 4.8 TB/s): 49.7 µs, and 95.5 at 495 TFLOP/s.
#[test]
fn floors_are_those_of_the_contract() {
    let geometric_mean = |flops_per_ns: f64| {
        let floors = SUITE.map(|case| Cost::of(&Problem::new(case.dims())).floor_ns(flops_per_ns, 4800.0));
        (floors.iter().map(|floor| floor.ln()).sum::<f64>() / 16.0).exp() / 1000.0
    };
    assert!((geometric_mean(989_000.0) - 49.7).abs() < 0.1, "{}", geometric_mean(989_000.0));
    assert!((geometric_mean(495_000.0) - 95.5).abs() < 0.2, "{}", geometric_mean(495_000.0));
}

#[test]
fn outputs_that_are_left_out_cost_nothing() {
    let full = Problem::new(Case::find("s128b2").unwrap().dims());
    let cost = |outputs| Cost::of(&Problem { outputs, ..full });
    assert_eq!(cost(Requested::none()), Cost { flops: 0, min_bytes: 0 });
    let hidden = cost(Requested { grad_hidden: Some(Write::Overwrite), ..Requested::none() });
    assert_eq!(hidden.flops * 2, Cost::of(&full).flops);
    let value = cost(Requested { grad_v_weight: Some(Write::Accumulate), ..Requested::none() });
    assert_eq!(value.min_bytes, 4 * (256 * 384 + 256 * 1536 + 2 * 384 * 1536), "value gradients need no tables");
}

#[test]
fn problems_survive_json() {
    let problem = Problem {
        pairing: Pairing::Interleaved,
        precision: Precision::Split,
        outputs: Requested { grad_hidden: None, ..Requested::all(Write::Accumulate) },
        ..Problem::new(dims())
    };
    let text = serde_json::to_string(&problem).unwrap();
    assert!(text.contains(r#""pairing":"interleaved","precision":"split""#), "{text}");
    assert_eq!(serde_json::from_str::<Problem>(&text).unwrap(), problem);
}

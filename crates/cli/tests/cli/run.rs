//! `run` and `inputs`: what is computed is right, whatever the file looks like.

use qkv_rope_op::reference::backward;
use qkv_rope_op::{OwnedInputs, Pairing, Problem, Recipe, Tensor};
use safetensors::SafeTensors;

use crate::files::{Draft, Folder, small_dims, small_inputs};

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

/// Outputs of a file by name, after checking shapes.
fn outputs(folder: &Folder, name: &str) -> Vec<(Tensor, Vec<f32>)> {
    let bytes = std::fs::read(folder.path(name)).expect("the output exists");
    let file = SafeTensors::deserialize(&bytes).expect("the output is a safetensors file");
    let wanted = Tensor::OUTPUTS.into_iter().filter(|tensor| file.names().contains(&tensor.name()));
    wanted
        .map(|tensor| {
            let view = file.tensor(tensor.name()).expect("listed");
            assert_eq!(view.shape(), small_dims().shape(tensor));
            (tensor, floats(view.data()))
        })
        .collect()
}

fn assert_near_reference(found: &[(Tensor, Vec<f32>)], inputs: &OwnedInputs, pairing: Pairing) {
    let problem = Problem { pairing, ..Problem::new(inputs.dims()) };
    let expected = backward(&problem, &inputs.views()).expect("the inputs fit the problem");
    for (tensor, values) in found {
        let expected = expected.tensor(*tensor).expect("all outputs were asked for");
        assert_eq!(values.len(), expected.len());
        let error: f64 = values.iter().zip(expected).map(|(&found, &exact)| (f64::from(found) - exact).powi(2)).sum();
        let scale: f64 = expected.iter().map(|exact| exact * exact).sum();
        assert!((error / scale).sqrt() <= 2e-6, "{tensor}");
    }
}

#[test]
fn gradients_are_those_of_the_reference_in_both_styles() {
    let folder = Folder::new();
    folder.write("in.safetensors", &Draft::small().bytes());
    for (style, pairing) in [("half-split", Pairing::HalfSplit), ("interleaved", Pairing::Interleaved)] {
        let text = folder.succeed(&["run", "in.safetensors", "-o", "out.safetensors", "--style", style]);
        assert!(text.starts_with("out.safetensors: grad_hidden_states, grad_q_weight"), "{text}");
        let found = outputs(&folder, "out.safetensors");
        assert_eq!(found.len(), 4);
        assert_near_reference(&found, &small_inputs(), pairing);
    }
    assert_eq!(folder.names(), ["in.safetensors", "out.safetensors"], "nothing else is left behind");
}

#[test]
fn outputs_left_out_are_absent_and_the_others_have_the_same_bits() {
    let folder = Folder::new();
    folder.write("in.safetensors", &Draft::small().bytes());
    folder.succeed(&["run", "in.safetensors", "-o", "all.safetensors"]);
    let some = "grad_q_weight,grad_v_weight";
    folder.succeed(&["run", "in.safetensors", "-o", "some.safetensors", "--outputs", some, "--threads", "1"]);
    let mut all = outputs(&folder, "all.safetensors");
    all.retain(|(tensor, _)| [Tensor::GradQWeight, Tensor::GradVWeight].contains(tensor));
    assert_eq!(outputs(&folder, "some.safetensors"), all);
}

#[test]
fn inputs_that_no_output_needs_may_be_absent() {
    let folder = Folder::new();
    let mut draft = Draft { entries: Vec::new(), data: Vec::new(), padding: 0 };
    let inputs = small_inputs();
    let weights = [Tensor::QWeight, Tensor::KWeight, Tensor::VWeight];
    for tensor in Tensor::INPUTS.into_iter().filter(|tensor| !weights.contains(tensor)) {
        draft.add(tensor.name(), &inputs.dims().shape(tensor), inputs.tensor(tensor).expect("generated"));
    }
    folder.write("in.safetensors", &draft.bytes());
    folder.succeed(&["run", "in.safetensors", "-o", "out.safetensors", "--outputs", "grad_k_weight"]);
    assert_near_reference(&outputs(&folder, "out.safetensors"), &inputs, Pairing::HalfSplit);
}

#[test]
fn data_at_any_byte_offset_gives_the_same_bytes() {
    let folder = Folder::new();
    let mut results = Vec::new();
    for padding in 0..9 {
        folder.write("in.safetensors", &Draft { padding, ..Draft::small() }.bytes());
        folder.succeed(&["run", "in.safetensors", "-o", "out.safetensors"]);
        results.push(std::fs::read(folder.path("out.safetensors")).expect("written"));
    }
    results.dedup();
    assert_eq!(results.len(), 1);
}

#[test]
fn tables_may_be_shared_by_all_batches() {
    let dims = small_dims();
    let elems = dims.seq() * dims.rotary_dim();
    let shared = small_inputs();
    let tensors = Tensor::INPUTS.map(|tensor| {
        let mut values = shared.tensor(tensor).expect("generated").to_vec();
        if matches!(tensor, Tensor::Cos | Tensor::Sin) {
            values.truncate(elems);
        }
        (tensor, values)
    });
    let inputs = OwnedInputs::from_vecs(dims, tensors.clone()).expect("tables of one batch are allowed");
    for leading in [vec![], vec![1]] {
        let mut draft = Draft { entries: Vec::new(), data: Vec::new(), padding: 0 };
        for (tensor, values) in &tensors {
            let shape = match tensor {
                Tensor::Cos | Tensor::Sin => [leading.clone(), vec![dims.seq(), dims.rotary_dim()]].concat(),
                _ => dims.shape(*tensor),
            };
            draft.add(tensor.name(), &shape, values);
        }
        let folder = Folder::new();
        folder.write("in.safetensors", &draft.bytes());
        folder.succeed(&["run", "in.safetensors", "-o", "out.safetensors"]);
        assert_near_reference(&outputs(&folder, "out.safetensors"), &inputs, Pairing::HalfSplit);
    }
}

#[test]
fn no_tokens_give_zero_weight_gradients() {
    let folder = Folder::new();
    folder.succeed(&["inputs", "--dims", "B=0,S=5,E=24,H=4,K=3,D=8,R=6", "-o", "in.safetensors"]);
    folder.succeed(&["run", "in.safetensors", "-o", "out.safetensors"]);
    let bytes = std::fs::read(folder.path("out.safetensors")).expect("written");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let hidden = file.tensor("grad_hidden_states").expect("there");
    assert_eq!(hidden.shape(), [0, 5, 24]);
    let weight = file.tensor("grad_q_weight").expect("there");
    assert!(weight.shape() == [32, 24] && weight.data().iter().all(|&byte| byte == 0));
}

#[test]
fn inputs_writes_the_contents_of_the_recipe() {
    let folder = Folder::new();
    let sizes = small_dims().to_string();
    let arguments = ["inputs", "--dims", &sizes, "--recipe", "spread", "--seed", "9", "-o", "in.safetensors", "--json"];
    let summary: serde_json::Value = serde_json::from_str(&folder.succeed(&arguments)).expect("JSON");
    assert_eq!((&summary["recipe"], &summary["seed"]), (&"spread".into(), &9.into()));
    let bytes = std::fs::read(folder.path("in.safetensors")).expect("written");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let inputs = OwnedInputs::generate(small_dims(), Recipe::Spread, 9);
    for tensor in Tensor::INPUTS {
        let view = file.tensor(tensor.name()).expect("all inputs are there");
        assert_eq!(view.shape(), small_dims().shape(tensor));
        assert_eq!(floats(view.data()), inputs.tensor(tensor).expect("generated"));
    }
}

#[test]
fn extra_tensors_are_refused_unless_allowed() {
    let folder = Folder::new();
    let mut draft = Draft::small();
    draft.add("lm_head", &[1], &[1.0]);
    folder.write("in.safetensors", &draft.bytes());
    assert_eq!(folder.run(&["run", "in.safetensors", "-o", "out.safetensors"]).status.code(), Some(2));
    folder.succeed(&["run", "in.safetensors", "-o", "out.safetensors", "--allow-extra"]);
    assert_near_reference(&outputs(&folder, "out.safetensors"), &small_inputs(), Pairing::HalfSplit);
}

#[test]
fn an_existing_output_is_replaced_and_an_input_never() {
    let folder = Folder::new();
    folder.write("in.safetensors", &Draft::small().bytes());
    folder.write("out.safetensors", b"old");
    folder.succeed(&["run", "in.safetensors", "-o", "out.safetensors"]);
    assert_eq!(outputs(&folder, "out.safetensors").len(), 4);
    let before = std::fs::read(folder.path("in.safetensors")).expect("there");
    std::fs::hard_link(folder.path("in.safetensors"), folder.path("link.safetensors")).expect("links are supported");
    for target in ["in.safetensors", "./in.safetensors", "link.safetensors"] {
        assert_eq!(folder.run(&["run", "in.safetensors", "-o", target]).status.code(), Some(2), "{target}");
    }
    assert_eq!(std::fs::read(folder.path("in.safetensors")).expect("there"), before);
}

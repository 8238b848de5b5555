//! Tensors in the host's memory: every view is checked against the storage behind it.

use std::ops::Deref;

use candle_core::{Error, Layout, Result, Storage, Tensor};
use qkv_rope::process::shared_cpu;
use qkv_rope::{Backend, Inputs, Output, Outputs, Problem, View, ViewMut};

use crate::{Gradients, Tensors, fixed, output_shapes};

pub(crate) fn backward(problem: &Problem, tensors: &Tensors) -> Result<Gradients> {
    let [query, key, value, hidden, q_weight, k_weight, v_weight, cos, sin] =
        tensors.inputs.each_ref().map(Tensor::storage_and_layout);
    let inputs = Inputs {
        grad_query: view("grad_query", &query.0, query.1)?,
        grad_key: view("grad_key", &key.0, key.1)?,
        grad_value: view("grad_value", &value.0, value.1)?,
        hidden_states: Some(view("hidden_states", &hidden.0, hidden.1)?),
        q_weight: Some(view("q_weight", &q_weight.0, q_weight.1)?),
        k_weight: Some(view("k_weight", &k_weight.0, k_weight.1)?),
        v_weight: Some(view("v_weight", &v_weight.0, v_weight.1)?),
        cos: view("cos", &cos.0, cos.1)?,
        sin: view("sin", &sin.0, sin.1)?,
    };
    let shapes = output_shapes(problem);
    let [mut hidden, mut q_weight, mut k_weight, mut v_weight] =
        shapes.each_ref().map(|shape| vec![0_f32; shape.iter().product()]);
    let mut outputs = Outputs {
        grad_hidden: Some(output(&mut hidden, &shapes[0])?),
        grad_q_weight: Some(output(&mut q_weight, &shapes[1])?),
        grad_k_weight: Some(output(&mut k_weight, &shapes[2])?),
        grad_v_weight: Some(output(&mut v_weight, &shapes[3])?),
    };
    let mut session = shared_cpu(None).map_err(Error::wrap)?.session(problem).map_err(Error::wrap)?;
    session.backward(&inputs, &mut outputs).map_err(Error::wrap)?;
    let device = tensors.inputs[0].device();
    let [hidden_shape, q_shape, k_shape, v_shape] = shapes;
    Ok(Gradients {
        hidden_states: Tensor::from_vec(hidden, hidden_shape, device)?,
        q_weight: Tensor::from_vec(q_weight, q_shape, device)?,
        k_weight: Tensor::from_vec(k_weight, k_shape, device)?,
        v_weight: Tensor::from_vec(v_weight, v_shape, device)?,
    })
}

fn view<'a, const RANK: usize>(
    name: &str,
    storage: &'a impl Deref<Target = Storage>,
    layout: &Layout,
) -> Result<View<'a, RANK>> {
    let Storage::Cpu(storage) = storage.deref() else {
        candle_core::bail!("{name}: its storage is not in the host's memory");
    };
    let data = storage.as_slice::<f32>()?.get(layout.start_offset()..).unwrap_or_default();
    let (shape, strides) = (fixed(name, layout.dims())?, fixed(name, layout.stride())?);
    View::new(data, shape, strides).map_err(|error| Error::Msg(format!("{name}: {error}")))
}

fn output<'a, const RANK: usize>(memory: &'a mut [f32], shape: &[usize]) -> Result<Output<'a, RANK>> {
    Ok(Output::overwrite(ViewMut::contiguous(memory, fixed("output", shape)?).map_err(Error::wrap)?))
}

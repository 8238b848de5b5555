//! Tensors on an NVIDIA GPU: the work goes to the stream of candle's device, and memory comes from that stream too, so
//! candle's own work before and after it is in order.

use candle_core::backend::BackendDevice;
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, DeviceLocation, Error, Layout, Result, Storage, Tensor};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};
use qkv_rope::cuda::WorkspacePtr;
use qkv_rope::device::shared_session;
use qkv_rope::{Inputs, Output, Outputs, Problem, View, ViewMut};

use crate::{Gradients, Tensors, fixed, output_shapes};

pub(crate) fn backward(problem: &Problem, tensors: &Tensors, device: &CudaDevice) -> Result<Gradients> {
    let DeviceLocation::Cuda { gpu_id } = device.location() else {
        candle_core::bail!("grad_query: its device is no GPU");
    };
    let session = shared_session(gpu_id, problem).map_err(Error::wrap)?;
    let stream = device.cuda_stream();
    let shapes = output_shapes(problem);
    let [mut hidden_grad, mut q_grad, mut k_grad, mut v_grad] = [
        room::<f32>(device, shapes[0].iter().product())?,
        room(device, shapes[1].iter().product())?,
        room(device, shapes[2].iter().product())?,
        room(device, shapes[3].iter().product())?,
    ];
    let storages = tensors.inputs.each_ref().map(Tensor::storage_and_layout);
    let [query, key, value, hidden, q_weight, k_weight, v_weight, cos, sin] = &storages;
    let mut uses = Vec::new();
    let inputs = Inputs {
        grad_query: view("grad_query", &query.0, query.1, &stream, &mut uses)?,
        grad_key: view("grad_key", &key.0, key.1, &stream, &mut uses)?,
        grad_value: view("grad_value", &value.0, value.1, &stream, &mut uses)?,
        hidden_states: Some(view("hidden_states", &hidden.0, hidden.1, &stream, &mut uses)?),
        q_weight: Some(view("q_weight", &q_weight.0, q_weight.1, &stream, &mut uses)?),
        k_weight: Some(view("k_weight", &k_weight.0, k_weight.1, &stream, &mut uses)?),
        v_weight: Some(view("v_weight", &v_weight.0, v_weight.1, &stream, &mut uses)?),
        cos: view("cos", &cos.0, cos.1, &stream, &mut uses)?,
        sin: view("sin", &sin.0, sin.1, &stream, &mut uses)?,
    };
    let mut workspace = room::<u8>(device, session.workspace_bytes() as usize)?;
    let mut outputs = Outputs {
        grad_hidden: Some(output(&mut hidden_grad, &shapes[0], &stream, &mut uses)?),
        grad_q_weight: Some(output(&mut q_grad, &shapes[1], &stream, &mut uses)?),
        grad_k_weight: Some(output(&mut k_grad, &shapes[2], &stream, &mut uses)?),
        grad_v_weight: Some(output(&mut v_grad, &shapes[3], &stream, &mut uses)?),
    };
    let bytes = workspace.len() as u64;
    let (address, in_use) = workspace.device_ptr_mut(&stream);
    // SAFETY: candle's storages are memory of this device; their use on this stream is noted until `uses` is dropped,
    // and freeing them is put on their stream too. The session stays in its cache while it is in use.
    unsafe { session.enqueue(&inputs, &mut outputs, WorkspacePtr { address, bytes }, stream.cu_stream().cast()) }
        .map_err(Error::wrap)?;
    drop(in_use);
    drop(uses);
    drop(workspace);
    let [hidden_shape, q_shape, k_shape, v_shape] = shapes;
    Ok(Gradients {
        hidden_states: tensor(hidden_grad, hidden_shape, device),
        q_weight: tensor(q_grad, q_shape, device),
        k_weight: tensor(k_grad, k_shape, device),
        v_weight: tensor(v_grad, v_shape, device),
    })
}

/// Memory with unspecified contents; the driver has no allocation of zero bytes.
fn room<T: cudarc::driver::DeviceRepr>(device: &CudaDevice, elems: usize) -> Result<CudaSlice<T>> {
    // SAFETY: outputs are written whole before they are read, and the workspace is never read from outside.
    unsafe { device.alloc(elems.max(1)) }
}

fn tensor(memory: CudaSlice<f32>, shape: Vec<usize>, device: &CudaDevice) -> Tensor {
    let storage = CudaStorage::wrap_cuda_slice(memory, device.clone());
    Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false)
}

fn view<'a, const RANK: usize>(
    name: &str,
    storage: &'a Storage,
    layout: &Layout,
    stream: &'a CudaStream,
    uses: &mut Vec<SyncOnDrop<'a>>,
) -> Result<View<'a, RANK>> {
    let Storage::Cuda(storage) = storage else {
        candle_core::bail!("{name}: its storage is not on a GPU");
    };
    let (address, in_use) = storage.as_cuda_slice::<f32>()?.device_ptr(stream);
    uses.push(in_use);
    let start = address as usize + layout.start_offset() * size_of::<f32>();
    let (shape, strides) = (fixed(name, layout.dims())?, fixed(name, layout.stride())?);
    // SAFETY: a GPU's address, passed on and never read here; candle keeps layouts inside their storage.
    unsafe { View::from_raw_parts(std::ptr::without_provenance(start), shape, strides) }
        .map_err(|error| Error::Msg(format!("{name}: {error}")))
}

fn output<'a, const RANK: usize>(
    memory: &'a mut CudaSlice<f32>,
    shape: &[usize],
    stream: &'a CudaStream,
    uses: &mut Vec<SyncOnDrop<'a>>,
) -> Result<Output<'a, RANK>> {
    let (address, in_use) = memory.device_ptr_mut(stream);
    uses.push(in_use);
    let shape: [usize; RANK] = fixed("output", shape)?;
    let mut strides = [1; RANK];
    for dim in (1..RANK).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    // SAFETY: as in `view`; the room was made for this shape and is nobody else's.
    let view = unsafe { ViewMut::from_raw_parts(std::ptr::without_provenance_mut(address as usize), shape, strides) };
    Ok(Output::overwrite(view.map_err(Error::wrap)?))
}

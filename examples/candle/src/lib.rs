//! The backward pass of the QKV projection with rotary embedding on candle tensors: on the CPU, and with the feature
//! `cuda` on the stream of candle's device.
//!
//! Candle's own automatic differentiation has no operation of several outputs, so this is a function: call it with the
//! gradients of query, key and value where attention's own backward pass leaves them.

#[cfg(feature = "cuda")]
mod cuda;
mod host;

use candle_core::{DType, Device, Error, Result, Tensor};
use qkv_rope::{Dims, Pairing, Precision, Problem};

/// The inputs, f32 and all on one device. Any strides, 0 included; a tensor whose last dimension is not contiguous is
/// copied first.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// [B, H, S, D]
    pub grad_query: &'a Tensor,
    /// [B, K, S, D]
    pub grad_key: &'a Tensor,
    /// [B, K, S, D]
    pub grad_value: &'a Tensor,
    /// [B, S, E]
    pub hidden_states: &'a Tensor,
    /// [H*D, E]
    pub q_weight: &'a Tensor,
    /// [K*D, E]
    pub k_weight: &'a Tensor,
    /// [K*D, E]
    pub v_weight: &'a Tensor,
    /// [B, S, R], or [1, S, R] for all batches
    pub cos: &'a Tensor,
    /// As cos
    pub sin: &'a Tensor,
}

/// The outputs, densely packed on the device of the inputs.
#[derive(Debug)]
pub struct Gradients {
    /// [B, S, E]
    pub hidden_states: Tensor,
    /// [H*D, E]
    pub q_weight: Tensor,
    /// [K*D, E]
    pub k_weight: Tensor,
    /// [K*D, E]
    pub v_weight: Tensor,
}

/// Computes the four gradients. `precision` is [`Precision::Ieee`] on the CPU, [`Precision::Split`] or
/// [`Precision::Fast`] on GPUs.
///
/// On a GPU the work is put on the stream of candle's device and the call returns.
///
/// # Errors
/// What is wrong with the tensors, by name; or what the device reports.
pub fn backward(layer: &Layer<'_>, pairing: Pairing, precision: Precision) -> Result<Gradients> {
    let (batch, query_heads, seq, head_dim) = layer.grad_query.dims4()?;
    let (_, kv_heads, _, _) = layer.grad_key.dims4()?;
    let (_, _, hidden) = layer.hidden_states.dims3()?;
    let (_, _, rotary_dim) = layer.cos.dims3()?;
    let dims = Dims::new(batch, seq, hidden, query_heads, kv_heads, head_dim);
    let dims = dims.and_then(|dims| dims.with_rotary_dim(rotary_dim)).map_err(Error::wrap)?;
    let problem = Problem { pairing, precision, ..Problem::new(dims) };
    let tensors = Tensors::of(layer, batch)?;
    match layer.grad_query.device() {
        Device::Cpu => host::backward(&problem, &tensors),
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => cuda::backward(&problem, &tensors, device),
        other => {
            candle_core::bail!("grad_query: found it on {:?}, which this build has no kernels for", other.location())
        }
    }
}

/// The inputs in the contract's order, ready to be viewed.
struct Tensors {
    inputs: [Tensor; 9],
}

impl Tensors {
    fn of(layer: &Layer<'_>, batch: usize) -> Result<Self> {
        let device = layer.grad_query.device();
        let ready = |name: &str, tensor: &Tensor| {
            if tensor.dtype() != DType::F32 {
                candle_core::bail!("{name}: found {:?}, expected F32", tensor.dtype());
            }
            if !tensor.device().same_device(device) {
                let (found, expected) = (tensor.device().location(), device.location());
                candle_core::bail!("{name}: found it on {found:?}, expected {expected:?} as grad_query");
            }
            let ends_well = tensor.stride().last().is_none_or(|&stride| stride == 1);
            if ends_well { Ok(tensor.clone()) } else { tensor.contiguous() }
        };
        let table = |name: &str, tensor: &Tensor| {
            let (first, seq, rotary_dim) = tensor.dims3()?;
            let tensor = ready(name, tensor)?;
            if first == 1 { tensor.broadcast_as((batch, seq, rotary_dim)) } else { Ok(tensor) }
        };
        let inputs = [
            ready("grad_query", layer.grad_query)?,
            ready("grad_key", layer.grad_key)?,
            ready("grad_value", layer.grad_value)?,
            ready("hidden_states", layer.hidden_states)?,
            ready("q_weight", layer.q_weight)?,
            ready("k_weight", layer.k_weight)?,
            ready("v_weight", layer.v_weight)?,
            table("cos", layer.cos)?,
            table("sin", layer.sin)?,
        ];
        Ok(Self { inputs })
    }
}

/// The shapes of the four outputs.
fn output_shapes(problem: &Problem) -> [Vec<usize>; 4] {
    qkv_rope::Tensor::OUTPUTS.map(|tensor| problem.dims.shape(tensor))
}

fn fixed<const RANK: usize>(name: &str, found: &[usize]) -> Result<[usize; RANK]> {
    found.try_into().map_err(|_| Error::Msg(format!("{name}: found {} dimensions, expected {RANK}", found.len())))
}

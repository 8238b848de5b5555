//! The backward pass of multi-head QKV projection with rotary position embedding (RoPE, grouped-query attention), as
//! one call: given the gradients of query, key and value, those of the hidden states and of the three weights.
//!
//! Every layer of a Llama-style model computes this after attention's own backward. Frameworks do it as an un-rotation,
//! copies and six matrix products; here U (the un-rotated gradients) is never written to memory.
//!
//! ```
//! use qkv_rope::{Device, Dims, Inputs, Output, Outputs, Problem, View, ViewMut};
//!
//! # fn main() -> Result<(), qkv_rope::Error> {
//! // B = 1, S = 4, E = 32, H = 2, K = 1, D = 8: T = 4 tokens.
//! let dims = Dims::new(1, 4, 32, 2, 1, 8)?;
//! let (grad_query, grad_key, grad_value) = (vec![0.5; 64], vec![0.25; 32], vec![1.0; 32]);
//! let (hidden, q_weight, kv_weight) = (vec![0.1; 128], vec![0.2; 512], vec![0.3; 256]);
//! let (cos, sin) = (vec![0.8; 32], vec![0.6; 32]);
//! let (mut grad_hidden, mut grad_q, mut grad_k, mut grad_v) =
//!     (vec![0.0; 128], vec![0.0; 512], vec![0.0; 256], vec![0.0; 256]);
//!
//! let inputs = Inputs {
//!     grad_query: View::contiguous(&grad_query, [1, 2, 4, 8])?,
//!     grad_key: View::contiguous(&grad_key, [1, 1, 4, 8])?,
//!     grad_value: View::contiguous(&grad_value, [1, 1, 4, 8])?,
//!     hidden_states: Some(View::contiguous(&hidden, [1, 4, 32])?),
//!     q_weight: Some(View::contiguous(&q_weight, [16, 32])?),
//!     k_weight: Some(View::contiguous(&kv_weight, [8, 32])?),
//!     v_weight: Some(View::contiguous(&kv_weight, [8, 32])?),
//!     cos: View::contiguous(&cos, [1, 4, 8])?,
//!     sin: View::contiguous(&sin, [1, 4, 8])?,
//! };
//! let mut outputs = Outputs {
//!     grad_hidden: Some(Output::overwrite(ViewMut::contiguous(&mut grad_hidden, [1, 4, 32])?)),
//!     grad_q_weight: Some(Output::overwrite(ViewMut::contiguous(&mut grad_q, [16, 32])?)),
//!     grad_k_weight: Some(Output::accumulate(ViewMut::contiguous(&mut grad_k, [8, 32])?)),
//!     grad_v_weight: Some(Output::overwrite(ViewMut::contiguous(&mut grad_v, [8, 32])?)),
//! };
//! let problem = Problem { outputs: outputs.requested(), ..Problem::new(dims) };
//!
//! // Once per shape ...
//! let backend = Device::Auto.open()?;
//! let mut session = backend.session(&problem)?;
//! // ... and once per layer and step.
//! session.backward(&inputs, &mut outputs)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`backward`] does all of it in one call, for when convenience matters more than the cost of mapping a workspace.

pub mod device;
pub mod process;

pub use qkv_rope_cpu as cpu;
pub use qkv_rope_cuda as cuda;
pub use qkv_rope_op::{
    Backend, Cost, Dims, Error, Inputs, Output, Outputs, Pairing, Plan, Precision, Problem, Requested, Session, Step,
    Tensor, View, ViewMut, Write,
};

use qkv_rope_cpu::{CpuBackend, CpuOptions};
use qkv_rope_cuda::CudaBackend;

/// Where to compute.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Device {
    /// The fastest device that holds ordinary host memory: the CPU, on the widest instruction set that it has and the
    /// caller's rayon pool.
    #[default]
    Auto,
    /// The CPU, as the options say.
    Cpu(CpuOptions),
    /// The NVIDIA GPU of this number, for tensors in the host's memory, which are copied there and back in each call.
    /// Callers whose tensors are on the GPU use [`cuda::DeviceSession`] or [`device::shared_session`].
    Cuda(usize),
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// [`Error::Refused`] when the machine lacks what the options ask for, [`Error::Failed`] when it gives out.
    pub fn open(self) -> Result<Box<dyn Backend>, Error> {
        match self {
            Self::Auto => Ok(Box::new(CpuBackend::new(CpuOptions::default())?)),
            Self::Cpu(options) => Ok(Box::new(CpuBackend::new(options)?)),
            Self::Cuda(ordinal) => Ok(Box::new(CudaBackend::open(ordinal)?)),
        }
    }
}

/// Computes the outputs that are `Some` on [`Device::Auto`], with sizes taken from the tensors.
///
/// A workspace is mapped and released in each call; training loops keep a [`Session`] instead.
///
/// # Errors
/// Whatever is wrong with the tensors, before anything is written; or what the device reports.
pub fn backward(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>, pairing: Pairing) -> Result<(), Error> {
    let problem = Problem { pairing, outputs: outputs.requested(), ..Problem::new(sizes(inputs, outputs)?) };
    Device::Auto.open()?.session(&problem)?.backward(inputs, outputs)
}

/// The sizes that the first tensor to have each axis gives; the others are checked against them afterwards.
fn sizes(inputs: &Inputs<'_>, outputs: &Outputs<'_>) -> Result<Dims, Error> {
    let [batch, query_heads, seq, head_dim] = inputs.grad_query.shape();
    let [_, kv_heads, ..] = inputs.grad_key.shape();
    let [.., rotary_dim] = inputs.cos.shape();
    let weights = [inputs.q_weight, inputs.k_weight, inputs.v_weight].into_iter().flatten();
    let weight_grads = [&outputs.grad_q_weight, &outputs.grad_k_weight, &outputs.grad_v_weight].into_iter().flatten();
    let hidden = (inputs.hidden_states.map(|view| view.shape()[2]))
        .or_else(|| outputs.grad_hidden.as_ref().map(|output| output.view.shape()[2]))
        .or_else(|| weights.map(|view| view.shape()[1]).next())
        .or_else(|| weight_grads.map(|output| output.view.shape()[1]).next());
    Dims::new(batch, seq, hidden.unwrap_or(0), query_heads, kv_heads, head_dim)?.with_rotary_dim(rotary_dim)
}

//! From the structs of the border to checked views.

use qkv_rope::{Error, Inputs, Output, Outputs, Tensor, View, ViewMut};

use crate::error::{Failure, qkv_rope_status};
use crate::types::{QKV_ROPE_MAX_RANK, qkv_rope_inputs, qkv_rope_output, qkv_rope_outputs, qkv_rope_tensor, write};

/// Shape and strides of rank `RANK`, and whether there are elements.
struct Layout<const RANK: usize> {
    shape: [usize; RANK],
    strides: [usize; RANK],
    empty: bool,
}

fn failure(status: qkv_rope_status, tensor: Tensor, text: &str) -> Failure {
    Failure::new(status, format!("{tensor}: {text}"))
}

fn layout<const RANK: usize>(
    tensor: Tensor,
    rank: u32,
    shape: &[u64; QKV_ROPE_MAX_RANK],
    strides: &[i64; QKV_ROPE_MAX_RANK],
) -> Result<Layout<RANK>, Failure> {
    if rank as usize != RANK {
        return Err(failure(qkv_rope_status::QKV_ROPE_SHAPE, tensor, &format!("found rank {rank}, expected {RANK}")));
    }
    let mut checked = Layout { shape: [0; RANK], strides: [0; RANK], empty: false };
    for dim in 0..RANK {
        let (extent, stride) = (shape[dim], strides[dim]);
        checked.shape[dim] = extent as usize;
        checked.strides[dim] = usize::try_from(stride).map_err(|_| {
            let text = format!("stride {stride} in dimension {dim} is negative");
            failure(qkv_rope_status::QKV_ROPE_STRIDES, tensor, &text)
        })?;
    }
    checked.empty = checked.shape.contains(&0);
    Ok(checked)
}

fn check_address(tensor: Tensor, address: usize, empty: bool) -> Result<(), Failure> {
    if address == 0 && !empty {
        return Err(failure(qkv_rope_status::QKV_ROPE_NULL_POINTER, tensor, "its data is null"));
    }
    if !address.is_multiple_of(align_of::<f32>()) {
        let text = format!("address {address:#x} is not a multiple of {}", align_of::<f32>());
        return Err(failure(qkv_rope_status::QKV_ROPE_MISALIGNED, tensor, &text));
    }
    Ok(())
}

/// A view that says which tensor it is when it is refused.
fn named(tensor: Tensor) -> impl Fn(Error) -> Failure {
    move |error| {
        let Failure { status, text } = Failure::from(error);
        Failure::new(status, format!("{tensor}: {text}"))
    }
}

impl qkv_rope_tensor {
    /// Whether the caller filled it in: an empty tensor may have null data, but it has a rank.
    fn is_given(&self) -> bool {
        let used = self.shape.iter().take(self.rank as usize);
        !self.data.is_null() || (self.rank > 0 && used.into_iter().any(|&extent| extent == 0))
    }

    /// # Safety
    /// As [`View::from_raw_parts`], for what shape and strides reach from `data`.
    unsafe fn view<'a, const RANK: usize>(&self, tensor: Tensor) -> Result<View<'a, RANK>, Failure> {
        if self.reserved != 0 {
            let text = format!("reserved: found {}, must be 0", self.reserved);
            return Err(failure(qkv_rope_status::QKV_ROPE_INVALID_VALUE, tensor, &text));
        }
        let Layout { shape, strides, empty } = layout::<RANK>(tensor, self.rank, &self.shape, &self.strides)?;
        check_address(tensor, self.data.addr(), empty)?;
        // SAFETY: promised by the caller, beyond the address, which was checked.
        unsafe { View::from_raw_parts(self.data, shape, strides) }.map_err(named(tensor))
    }

    /// # Safety
    /// As [`qkv_rope_tensor::view`].
    unsafe fn optional<'a, const RANK: usize>(&self, tensor: Tensor) -> Result<Option<View<'a, RANK>>, Failure> {
        if !self.is_given() {
            return Ok(None);
        }
        // SAFETY: promised by the caller.
        unsafe { self.view(tensor) }.map(Some)
    }

    /// # Safety
    /// As [`qkv_rope_tensor::view`].
    unsafe fn required<'a, const RANK: usize>(&self, tensor: Tensor) -> Result<View<'a, RANK>, Failure> {
        // SAFETY: promised by the caller.
        let view = unsafe { self.optional(tensor) }?;
        Ok(view.ok_or(Error::Absent { tensor })?)
    }
}

impl qkv_rope_output {
    /// # Safety
    /// As [`ViewMut::from_raw_parts`], for what shape and strides reach from `data`.
    unsafe fn view<'a, const RANK: usize>(&self, tensor: Tensor) -> Result<Option<Output<'a, RANK>>, Failure> {
        let Some(write) = write(tensor.name(), self.write)? else { return Ok(None) };
        let Layout { shape, strides, empty } = layout::<RANK>(tensor, self.rank, &self.shape, &self.strides)?;
        check_address(tensor, self.data.addr(), empty)?;
        // SAFETY: promised by the caller, beyond the address, which was checked.
        let view = unsafe { ViewMut::from_raw_parts(self.data, shape, strides) }.map_err(named(tensor))?;
        Ok(Some(Output { view, write }))
    }
}

impl qkv_rope_inputs {
    /// # Safety
    /// The memory of every tensor is readable and nobody writes it for `'a`.
    #[expect(
        clippy::multiple_unsafe_ops_per_block,
        reason = "the same operation for each of nine tensors, on one promise"
    )]
    pub(crate) unsafe fn views<'a>(&self) -> Result<Inputs<'a>, Failure> {
        // SAFETY: promised by the caller for every tensor.
        unsafe {
            Ok(Inputs {
                grad_query: self.grad_query.required(Tensor::GradQuery)?,
                grad_key: self.grad_key.required(Tensor::GradKey)?,
                grad_value: self.grad_value.required(Tensor::GradValue)?,
                hidden_states: self.hidden_states.optional(Tensor::HiddenStates)?,
                q_weight: self.q_weight.optional(Tensor::QWeight)?,
                k_weight: self.k_weight.optional(Tensor::KWeight)?,
                v_weight: self.v_weight.optional(Tensor::VWeight)?,
                cos: self.cos.required(Tensor::Cos)?,
                sin: self.sin.required(Tensor::Sin)?,
            })
        }
    }
}

impl qkv_rope_outputs {
    /// # Safety
    /// The memory of every output that is written is the caller's alone for `'a`.
    #[expect(
        clippy::multiple_unsafe_ops_per_block,
        reason = "the same operation for each of four tensors, on one promise"
    )]
    pub(crate) unsafe fn views<'a>(&self) -> Result<Outputs<'a>, Failure> {
        // SAFETY: promised by the caller for every output.
        unsafe {
            Ok(Outputs {
                grad_hidden: self.grad_hidden_states.view(Tensor::GradHiddenStates)?,
                grad_q_weight: self.grad_q_weight.view(Tensor::GradQWeight)?,
                grad_k_weight: self.grad_k_weight.view(Tensor::GradKWeight)?,
                grad_v_weight: self.grad_v_weight.view(Tensor::GradVWeight)?,
            })
        }
    }
}

//! The judge's block of memory on a device, with its mirror in the host's memory.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, PinnedHostSlice, result, sys};
use kernelproof_eval::judge::Span;
use qkv_rope_op::{Dims, Inputs, Output, Outputs, Tensor, View, ViewMut};

use crate::error::{Error, driver};

/// Elements in pinned host memory and as many on the device.
#[derive(Debug)]
pub(crate) struct Block {
    stream: Arc<CudaStream>,
    host: PinnedHostSlice<f32>,
    device: CudaSlice<f32>,
}

impl Block {
    /// A block of zeros.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn new(stream: &Arc<CudaStream>, elems: usize) -> Result<Self, Error> {
        // The driver has no allocation of zero bytes.
        let elems = elems.max(1);
        let device = stream.alloc_zeros::<f32>(elems).map_err(driver("allocating a block"))?;
        // SAFETY: it is filled right below, before anyone reads it.
        let host = unsafe { stream.context().alloc_pinned_with_flags::<f32>(elems, 0) };
        let mut block =
            Self { stream: stream.clone(), host: host.map_err(driver("allocating pinned memory"))?, device };
        block.host()?.fill(0.0);
        Ok(block)
    }

    /// The host's side. Nothing is copied while the caller holds it: every copy below is waited for.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn host(&mut self) -> Result<&mut [f32], Error> {
        self.host.as_mut_slice().map_err(driver("waiting for the block"))
    }

    /// Address of the device's side.
    pub(crate) fn address(&self) -> u64 {
        let (address, _in_use) = self.device.device_ptr(&self.stream);
        address
    }

    /// Carries the first `elems` elements of the host's side to the device.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn upload(&mut self, elems: usize) -> Result<(), Error> {
        let (address, stream) = (self.address(), self.stream.clone());
        // SAFETY: both sides have the same length, and the copy is waited for below.
        unsafe { result::memcpy_htod_async(address, &self.host()?[..elems], stream.cu_stream()) }
            .map_err(driver("copying the block to the GPU"))?;
        stream.synchronize().map_err(driver("copying the block to the GPU"))
    }

    /// Fills elements of the device's side with these bits, in the order of the stream.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn fill(&mut self, range: Range<usize>, bits: u32) -> Result<(), Error> {
        let address = self.address() + (range.start * size_of::<f32>()) as u64;
        let elems = range.end.min(self.device.len()).saturating_sub(range.start);
        // SAFETY: the range ends where the block does; the context is current, because the stream was used on this thread.
        let filled = unsafe { sys::cuMemsetD32Async(address, bits, elems, self.stream.cu_stream()) };
        filled.result().map_err(driver("poisoning outputs"))
    }

    /// Carries elements of the device's side to the host, in the order of the stream: what other streams have
    /// not finished is not waited for.
    ///
    /// # Errors
    /// When the driver fails.
    pub(crate) fn download(&mut self, elems: Range<usize>) -> Result<(), Error> {
        let (address, stream) = (self.address() + (elems.start * size_of::<f32>()) as u64, self.stream.clone());
        let end = elems.end.min(self.device.len());
        // SAFETY: as in `upload`.
        unsafe { result::memcpy_dtoh_async(&mut self.host()?[elems.start..end], address, stream.cu_stream()) }
            .map_err(driver("copying the block from the GPU"))?;
        stream.synchronize().map_err(driver("copying the block from the GPU"))
    }
}

/// Views of the thirteen tensors, densely packed at their spans in device memory that begins at `base`. They hold addresses
/// that the host cannot read.
///
/// # Errors
/// When a span has not the elements of its tensor.
pub(crate) fn views(dims: Dims, base: u64, spans: &[Span; 13]) -> Result<(Inputs<'static>, Outputs<'static>), Error> {
    let place = |index: usize| base as usize + spans[index].start * size_of::<f32>();
    let inputs = Inputs {
        grad_query: input(dims, Tensor::GradQuery, place(0))?,
        grad_key: input(dims, Tensor::GradKey, place(1))?,
        grad_value: input(dims, Tensor::GradValue, place(2))?,
        hidden_states: Some(input(dims, Tensor::HiddenStates, place(3))?),
        q_weight: Some(input(dims, Tensor::QWeight, place(4))?),
        k_weight: Some(input(dims, Tensor::KWeight, place(5))?),
        v_weight: Some(input(dims, Tensor::VWeight, place(6))?),
        cos: input(dims, Tensor::Cos, place(7))?,
        sin: input(dims, Tensor::Sin, place(8))?,
    };
    let outputs = Outputs {
        grad_hidden: Some(output(dims, Tensor::GradHiddenStates, place(9))?),
        grad_q_weight: Some(output(dims, Tensor::GradQWeight, place(10))?),
        grad_k_weight: Some(output(dims, Tensor::GradKWeight, place(11))?),
        grad_v_weight: Some(output(dims, Tensor::GradVWeight, place(12))?),
    };
    Ok((inputs, outputs))
}

fn shape_of<const RANK: usize>(dims: Dims, tensor: Tensor) -> Result<[usize; RANK], Error> {
    let shape = dims.shape(tensor);
    let expected = vec![0; RANK];
    shape.clone().try_into().map_err(|_| qkv_rope_op::Error::Shape { tensor, found: shape, expected }.into())
}

fn strides<const RANK: usize>(shape: [usize; RANK]) -> [usize; RANK] {
    let mut strides = [1; RANK];
    for dim in (1..RANK).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

fn input<const RANK: usize>(dims: Dims, tensor: Tensor, address: usize) -> Result<View<'static, RANK>, Error> {
    let shape = shape_of(dims, tensor)?;
    let base = std::ptr::without_provenance::<f32>(address);
    // SAFETY: a device address, only passed on: an executor checks and forwards views and never reads them.
    Ok(unsafe { View::from_raw_parts(base, shape, strides(shape)) }?)
}

fn output<const RANK: usize>(dims: Dims, tensor: Tensor, address: usize) -> Result<Output<'static, RANK>, Error> {
    let shape = shape_of(dims, tensor)?;
    let base = std::ptr::without_provenance_mut::<f32>(address);
    // SAFETY: as in `input`; spans do not meet.
    Ok(Output::overwrite(unsafe { ViewMut::from_raw_parts(base, shape, strides(shape)) }?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_begin_where_their_spans_do() {
        let dims = Dims::new(2, 3, 4, 2, 1, 4).expect("valid");
        let spans = std::array::from_fn(|index| Span { start: 1024 * index, len: 0 });
        let (inputs, outputs) = views(dims, 1 << 20, &spans).expect("they fit");
        assert_eq!(inputs.sin.as_ptr().addr(), (1 << 20) + 8 * 4096);
        let mut last = outputs.grad_v_weight.expect("all are wanted");
        assert_eq!(last.view.as_mut_ptr().addr(), (1 << 20) + 12 * 4096);
        assert_eq!(inputs.grad_query.strides(), [24, 12, 4, 1]);
    }
}

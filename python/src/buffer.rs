//! GPU memory of our own, for results and scratch where the caller's library cannot be asked for some.

use std::ffi::c_void;
use std::sync::Arc;

use pyo3::prelude::*;
use qkv_rope::cuda::{Error, Gpu, Memory};

use crate::dlpack::{self, DlDevice, DlTensor, F32, Managed};

const CUDA: i32 = 2;

/// A densely packed f32 array in a GPU's memory that any library with DLPack can take: `jax.numpy.from_dlpack(buffer)`.
#[pyclass(frozen, module = "qkv_rope._native")]
pub(crate) struct Buffer {
    memory: Arc<Memory>,
    ordinal: i32,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

impl Buffer {
    pub(crate) fn new(gpu: &Arc<Gpu>, ordinal: usize, shape: &[usize]) -> Result<Self, Error> {
        let bytes = shape.iter().product::<usize>() * size_of::<f32>();
        let mut strides = vec![1_i64; shape.len()];
        for dim in (1..shape.len()).rev() {
            strides[dim - 1] = strides[dim] * shape[dim] as i64;
        }
        let shape = shape.iter().map(|&extent| extent as i64).collect();
        Ok(Self { memory: Arc::new(Memory::new(gpu, bytes)?), ordinal: ordinal as i32, shape, strides })
    }
}

#[pymethods]
impl Buffer {
    /// As the DLPack protocol has it.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CUDA, self.ordinal)
    }

    /// As the DLPack protocol has it. The contents are final, so every stream may read them; options that ask for
    /// more than a view are not offered.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (stream, max_version);
        if copy == Some(true) || dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            return Err(pyo3::exceptions::PyBufferError::new_err("a buffer is lent in place, never copied"));
        }
        let mut shared =
            Box::new(Shared { _memory: self.memory.clone(), shape: self.shape.clone(), strides: self.strides.clone() });
        let tensor = DlTensor {
            data: std::ptr::with_exposed_provenance_mut(self.memory.address() as usize),
            device: DlDevice { kind: CUDA, ordinal: self.ordinal },
            rank: shared.shape.len() as i32,
            dtype: F32,
            shape: shared.shape.as_mut_ptr(),
            strides: shared.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let context = Box::into_raw(shared).cast::<c_void>();
        dlpack::lend(py, Box::new(Managed { tensor, context, deleter: Some(give_back) }))
    }
}

/// What a lent tensor points to.
struct Shared {
    _memory: Arc<Memory>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

unsafe extern "C" fn give_back(managed: *mut Managed) {
    // SAFETY: called once with the struct that `__dlpack__` boxed.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: the context is the box that `__dlpack__` put there.
    drop(unsafe { Box::from_raw(managed.context.cast::<Shared>()) });
}

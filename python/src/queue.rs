//! Where a call's work goes: the host's threads, or the stream that the caller's library is on.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use qkv_rope::cuda::Memory;
use qkv_rope::device::shared_gpu;

use crate::buffer::Buffer;
use crate::call::cuda_error;
use crate::dlpack;
use crate::tensor::{Library, Place};

/// The device and stream of a call, taken from its first tensor.
pub(crate) struct Queue {
    pub(crate) library: Library,
    pub(crate) place: Place,
    /// The driver's handle; 0 on the host and for the legacy default stream.
    pub(crate) stream: u64,
}

impl Queue {
    /// Where `object` is, and the current stream of its library there. Objects that are no tensors count as on the
    /// host.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let library = Library::of(object)?;
        let on_host = |library| Self { library, place: Place::Host, stream: 0 };
        match library {
            Library::Array => Ok(on_host(library)),
            Library::Torch => {
                if !object.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
                    return Ok(on_host(library));
                }
                static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let ordinal: usize = object.call_method0(intern!(py, "get_device"))?.extract()?;
                let stream = CURRENT.import(py, "torch.cuda", "current_stream")?.call1((ordinal,))?;
                let stream = stream.getattr(intern!(py, "cuda_stream"))?.extract()?;
                Ok(Self { library, place: Place::Cuda(ordinal), stream })
            }
            Library::CuPy | Library::Exchange => {
                let Ok(place) = dlpack::place_of(object)? else { return Ok(on_host(library)) };
                let Place::Cuda(ordinal) = place else { return Ok(on_host(library)) };
                if library == Library::Exchange {
                    return Ok(Self { library, place, stream: 0 });
                }
                static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let stream = CURRENT.import(py, "cupy.cuda", "get_current_stream")?.call1((ordinal,))?;
                Ok(Self { library, place, stream: stream.getattr(intern!(py, "ptr"))?.extract()? })
            }
        }
    }

    /// An unwritten f32 tensor where the work goes, of the library of `like` if that can make one.
    pub(crate) fn empty<'py>(&self, shape: &[usize], like: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        static NUMPY_EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = like.py();
        match (self.library, self.place) {
            (Library::Torch, _) => like.call_method1(intern!(py, "new_empty"), (PyTuple::new(py, shape)?,)),
            (Library::CuPy, Place::Cuda(ordinal)) => {
                cupy_empty(py, ordinal, PyTuple::new(py, shape)?.into_any(), "float32")
            }
            (_, Place::Host) => {
                let empty = NUMPY_EMPTY.import(py, "numpy", "empty")?;
                empty.call1((PyTuple::new(py, shape)?, intern!(py, "float32")))
            }
            (_, Place::Cuda(ordinal)) => {
                let buffer = py.detach(|| Buffer::new(&shared_gpu(ordinal)?, ordinal, shape)).map_err(cuda_error)?;
                Ok(Bound::new(py, buffer)?.into_any())
            }
        }
    }

    /// A result as its caller gets it: what `empty` made, in the library of `like` if that takes it.
    pub(crate) fn handed_over<'py>(
        &self,
        made: Bound<'py, PyAny>,
        like: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = like.py();
        let name = intern!(py, "__array_namespace__");
        if self.library != Library::Exchange || !like.hasattr(name)? {
            return Ok(made);
        }
        like.call_method0(name)?.call_method1(intern!(py, "from_dlpack"), (made,))
    }

    /// Memory for a GPU's call to work in, from the caller's library if that has any, so that its accounting, its
    /// streams and its CUDA graphs know of it.
    pub(crate) fn scratch<'py>(&self, bytes: u64, like: &Bound<'py, PyAny>) -> PyResult<Scratch<'py>> {
        let py = like.py();
        let Place::Cuda(ordinal) = self.place else { return Ok(Scratch { address: 0, bytes: 0, _owner: Owner::None }) };
        match self.library {
            Library::Torch => {
                static UINT8: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let options = pyo3::types::PyDict::new(py);
                options.set_item(intern!(py, "dtype"), UINT8.import(py, "torch", "uint8")?)?;
                let tensor = like.call_method(intern!(py, "new_empty"), ((bytes,),), Some(&options))?;
                let address = tensor.call_method0(intern!(py, "data_ptr"))?.extract()?;
                Ok(Scratch { address, bytes, _owner: Owner::Python(tensor) })
            }
            Library::CuPy => {
                let array = cupy_empty(py, ordinal, bytes.into_pyobject(py)?.into_any(), "uint8")?;
                let address = array.getattr(intern!(py, "data"))?.getattr(intern!(py, "ptr"))?.extract()?;
                Ok(Scratch { address, bytes, _owner: Owner::Python(array) })
            }
            Library::Array | Library::Exchange => {
                let memory = py.detach(|| Memory::new(&shared_gpu(ordinal)?, bytes as usize)).map_err(cuda_error)?;
                Ok(Scratch { address: memory.address(), bytes, _owner: Owner::Ours(memory) })
            }
        }
    }
}

/// Memory that a call works in.
pub(crate) struct Scratch<'py> {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    _owner: Owner<'py>,
}

#[expect(dead_code, reason = "kept for what dropping it does")]
enum Owner<'py> {
    None,
    Python(Bound<'py, PyAny>),
    Ours(Memory),
}

/// CuPy allocates on its current device only.
fn cupy_empty<'py>(
    py: Python<'py>,
    ordinal: usize,
    shape: Bound<'py, PyAny>,
    dtype: &str,
) -> PyResult<Bound<'py, PyAny>> {
    static DEVICE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let device = DEVICE.import(py, "cupy.cuda", "Device")?.call1((ordinal,))?;
    device.call_method0(intern!(py, "__enter__"))?;
    let made = EMPTY.import(py, "cupy", "empty")?.call1((shape, dtype));
    device.call_method1(intern!(py, "__exit__"), (py.None(), py.None(), py.None()))?;
    made
}

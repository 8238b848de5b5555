//! The native half of the Python package `qkv_rope`: reads tensors, keeps sessions, computes without the GIL. The
//! interface that people use, with its documentation, is in `lib/qkv_rope/`.

mod buffer;
mod call;
mod dlpack;
mod queue;
mod sessions;
mod tensor;

use pyo3::prelude::*;

/// The extension module.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(call::backward, module)?)?;
    module.add_class::<buffer::Buffer>()?;
    module.add_function(wrap_pyfunction!(call::cpu, module)?)?;
    module.add_function(wrap_pyfunction!(call::gpu, module)?)
}

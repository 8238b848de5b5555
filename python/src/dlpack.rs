//! DLPack: how array libraries lend each other memory, on any device. The structs are those of its header, version 1.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule, PyCapsuleMethods};

use crate::tensor::{MAX_RANK, Place};

const CPU: i32 = 1;
const CUDA: i32 = 2;
const FLOAT: u8 = 2;
const READ_ONLY: u64 = 1;
/// What DLPack calls the legacy default stream, whose driver handle is 0.
pub(crate) const LEGACY_STREAM: u64 = 1;

const NAME: &CStr = c"dltensor";
const USED_NAME: &CStr = c"used_dltensor";
const VERSIONED_NAME: &CStr = c"dltensor_versioned";
const USED_VERSIONED_NAME: &CStr = c"used_dltensor_versioned";

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DlDevice {
    pub(crate) kind: i32,
    pub(crate) ordinal: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DlType {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// f32, one to an element.
pub(crate) const F32: DlType = DlType { code: FLOAT, bits: 32, lanes: 1 };

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DlTensor {
    pub(crate) data: *mut c_void,
    pub(crate) device: DlDevice,
    pub(crate) rank: i32,
    pub(crate) dtype: DlType,
    pub(crate) shape: *mut i64,
    pub(crate) strides: *mut i64,
    pub(crate) byte_offset: u64,
}

#[repr(C)]
pub(crate) struct Managed {
    pub(crate) tensor: DlTensor,
    pub(crate) context: *mut c_void,
    pub(crate) deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// Where an object's memory is, or the number of a kind of device that is not ours.
pub(crate) fn place_of(object: &Bound<'_, PyAny>) -> PyResult<Result<Place, i32>> {
    let (kind, ordinal): (i32, usize) = object.call_method0(intern!(object.py(), "__dlpack_device__"))?.extract()?;
    Ok(match kind {
        CPU => Ok(Place::Host),
        CUDA => Ok(Place::Cuda(ordinal)),
        other => Err(other),
    })
}

/// Memory that an object lends until this is dropped.
pub(crate) struct Capsule<'py> {
    /// Holds the struct that `managed` points to until it is renamed, and nothing afterwards.
    _capsule: Bound<'py, PyCapsule>,
    managed: Lent,
}

enum Lent {
    Plain(NonNull<Managed>),
    Versioned(NonNull<Versioned>),
}

/// A lent tensor as its owner describes it.
pub(crate) struct Described {
    pub(crate) address: usize,
    pub(crate) rank: usize,
    pub(crate) shape: [usize; MAX_RANK],
    /// In elements; None when densely packed.
    pub(crate) strides: Option<[isize; MAX_RANK]>,
    pub(crate) read_only: bool,
}

impl<'py> Capsule<'py> {
    /// Asks for the memory, ready for work on `stream` when it is a GPU's.
    pub(crate) fn ask(object: &Bound<'py, PyAny>, place: Place, stream: u64) -> PyResult<Self> {
        let py = object.py();
        let stream = match place {
            Place::Host => None,
            Place::Cuda(_) => Some(if stream == 0 { LEGACY_STREAM } else { stream }),
        };
        let name = intern!(py, "__dlpack__");
        let options =
            [("stream", stream.into_pyobject(py)?.into_any()), ("max_version", (1, 0).into_pyobject(py)?.into_any())];
        let capsule = match object.call_method(name, (), Some(&options.into_py_dict(py)?)) {
            // Of before version 1.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                object.call_method(name, (), Some(&[("stream", stream)].into_py_dict(py)?))?
            }
            other => other?,
        };
        Self::take(capsule.cast_into::<PyCapsule>()?)
    }

    fn take(capsule: Bound<'py, PyCapsule>) -> PyResult<Self> {
        let versioned = capsule.is_valid_checked(Some(VERSIONED_NAME));
        let (name, used) = if versioned { (VERSIONED_NAME, USED_VERSIONED_NAME) } else { (NAME, USED_NAME) };
        let pointer = capsule.pointer_checked(Some(name))?;
        // SAFETY: the capsule is alive and the name is static. From here on the deleter is this function's to call.
        if unsafe { pyo3::ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) } != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        let managed = if versioned { Lent::Versioned(pointer.cast()) } else { Lent::Plain(pointer.cast()) };
        Ok(Self { _capsule: capsule, managed })
    }

    /// What is lent.
    ///
    /// # Errors
    /// A text when it is not plain f32 of at most four dimensions.
    pub(crate) fn tensor(&self) -> Result<Described, String> {
        let (tensor, flags) = match self.managed {
            // SAFETY: the producer keeps the struct until its deleter is called, in drop.
            Lent::Plain(managed) => (unsafe { managed.as_ref() }.tensor, 0),
            Lent::Versioned(managed) => {
                // SAFETY: as above.
                let managed = unsafe { managed.as_ref() };
                if managed.major != 1 {
                    return Err(format!("found DLPack version {}.{}, expected 1", managed.major, managed.minor));
                }
                (managed.tensor, managed.flags)
            }
        };
        let DlType { code, bits, lanes } = tensor.dtype;
        if (code, bits, lanes) != (FLOAT, 32, 1) {
            return Err(format!("found DLPack type code {code} of {bits} bits and {lanes} lanes, expected float32"));
        }
        let rank = usize::try_from(tensor.rank).unwrap_or(usize::MAX);
        if rank > MAX_RANK {
            return Err(format!("found {} dimensions, expected at most {MAX_RANK}", tensor.rank));
        }
        let mut shape = [0; MAX_RANK];
        // SAFETY: the producer says that there are `rank` extents, and keeps them as long as the struct.
        for (found, &extent) in shape.iter_mut().zip(unsafe { numbers(tensor.shape, rank) }) {
            *found = usize::try_from(extent).map_err(|_| format!("found a dimension of {extent} elements"))?;
        }
        let mut strides = [0; MAX_RANK];
        // SAFETY: as many strides, unless there are none.
        for (found, &stride) in strides.iter_mut().zip(unsafe { numbers(tensor.strides, rank) }) {
            *found = stride as isize;
        }
        let packed = tensor.strides.is_null();
        let address = tensor.data.addr().wrapping_add(tensor.byte_offset as usize);
        Ok(Described { address, rank, shape, strides: (!packed).then_some(strides), read_only: flags & READ_ONLY != 0 })
    }
}

/// # Safety
/// `first` is null or points to `rank` numbers that live for `'a`.
unsafe fn numbers<'a>(first: *const i64, rank: usize) -> &'a [i64] {
    if first.is_null() || rank == 0 {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(first, rank) }
}

impl Drop for Capsule<'_> {
    fn drop(&mut self) {
        match self.managed {
            Lent::Plain(managed) => {
                // SAFETY: alive until now, see `tensor`.
                if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: taken out of the capsule, so nobody else calls it; not used afterwards.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
            Lent::Versioned(managed) => {
                // SAFETY: as above.
                if let Some(deleter) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: as above.
                    unsafe { deleter(managed.as_ptr()) };
                }
            }
        }
    }
}

/// A capsule that lends what `managed` describes. The struct frees itself through its deleter.
pub(crate) fn lend(py: Python<'_>, managed: Box<Managed>) -> PyResult<Bound<'_, PyAny>> {
    let pointer = Box::into_raw(managed);
    // SAFETY: the pointer is not null and the name is static; the destructor takes back what nobody consumed.
    let capsule = unsafe { pyo3::ffi::PyCapsule_New(pointer.cast(), NAME.as_ptr(), Some(unused)) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

unsafe extern "C" fn unused(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: called by Python with the capsule that `lend` made. A consumer renames it.
    if unsafe { pyo3::ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: valid under this name, so it has the pointer from `lend`.
    let managed = unsafe { pyo3::ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()) }.cast::<Managed>();
    // SAFETY: nobody consumed it, so the struct is alive.
    if let Some(deleter) = unsafe { (*managed).deleter } {
        // SAFETY: as above.
        unsafe { deleter(managed) };
    }
}

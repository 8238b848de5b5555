//! What Python hands over: PyTorch tensors by `data_ptr()` and strides, NumPy arrays and their like by the array
//! interface (`__array_interface__`), everything else by DLPack; without copies and without importing any of them.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use qkv_rope::{Tensor, View, ViewMut};

use crate::dlpack::{self, Capsule};

/// The most dimensions of a tensor.
pub(crate) const MAX_RANK: usize = 4;

/// Where a tensor's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The host's memory.
    Host,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// Which library a tensor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    /// PyTorch.
    Torch,
    /// NumPy, or anything with an array interface.
    Array,
    /// CuPy: DLPack, with a stream and a pool that calls can use.
    CuPy,
    /// Anything else with DLPack.
    Exchange,
}

impl Library {
    /// Whose tensor `object` is, or would be: what is none counts as an array.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if object.hasattr(intern!(py, "data_ptr"))? {
            return Ok(Self::Torch);
        }
        let exchange = !object.hasattr(intern!(py, "__array_interface__"))?
            && object.hasattr(intern!(py, "__dlpack__"))?
            && object.hasattr(intern!(py, "__dlpack_device__"))?;
        if !exchange {
            return Ok(Self::Array);
        }
        let module = object.get_type().module()?;
        let module: String = module.extract()?;
        Ok(if module.split('.').next() == Some("cupy") { Self::CuPy } else { Self::Exchange })
    }
}

/// An f32 tensor, and the objects that keep its memory alive.
pub(crate) struct Found<'py> {
    tensor: Tensor,
    owner: Bound<'py, PyAny>,
    /// The exchange that the memory is lent under.
    _lent: Option<Capsule<'py>>,
    library: Library,
    place: Place,
    address: usize,
    rank: usize,
    shape: [usize; MAX_RANK],
    /// In elements.
    strides: [isize; MAX_RANK],
    writable: bool,
    /// Whether address and strides are whole elements.
    aligned: bool,
}

fn type_error(tensor: Tensor, text: impl std::fmt::Display) -> PyErr {
    PyTypeError::new_err(format!("{tensor}: {text}"))
}

fn value_error(tensor: Tensor, text: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{tensor}: {text}"))
}

impl<'py> Found<'py> {
    /// An input: copied when its last dimension is not contiguous, or when it runs backwards or is misaligned.
    ///
    /// `stream` is where a GPU's work will go, as DLPack numbers streams.
    pub(crate) fn input(tensor: Tensor, object: &Bound<'py, PyAny>, stream: u64) -> PyResult<Self> {
        let found = Self::read(tensor, object, stream)?;
        if found.is_direct() {
            return Ok(found);
        }
        let name = match found.library {
            Library::Torch => intern!(object.py(), "contiguous"),
            // ndarray.copy() is C-contiguous and aligned; so is that of CuPy and JAX.
            Library::Array | Library::CuPy | Library::Exchange => intern!(object.py(), "copy"),
        };
        if !object.hasattr(name)? {
            return Err(type_error(tensor, "its last dimension is not contiguous, and it has no copy()"));
        }
        let copied = Self::read(tensor, &object.call_method0(name)?, stream)?;
        if !copied.is_direct() {
            return Err(value_error(tensor, "its last dimension is not contiguous, nor is that of its copy"));
        }
        Ok(copied)
    }

    /// An output, written in place.
    pub(crate) fn output(tensor: Tensor, object: &Bound<'py, PyAny>, stream: u64) -> PyResult<Self> {
        let found = Self::read(tensor, object, stream)?;
        if !found.writable {
            return Err(value_error(tensor, "found a read-only array as output"));
        }
        if !found.is_direct() {
            let what =
                "found an output whose last dimension is not contiguous, or that runs backwards or is misaligned";
            return Err(value_error(tensor, what));
        }
        Ok(found)
    }

    fn read(tensor: Tensor, object: &Bound<'py, PyAny>, stream: u64) -> PyResult<Self> {
        let py = object.py();
        if object.hasattr(intern!(py, "data_ptr"))? {
            return Self::torch(tensor, object);
        }
        if let Some(interface) = object.getattr_opt(intern!(py, "__array_interface__"))? {
            return Self::array(tensor, object, &interface);
        }
        match Library::of(object)? {
            library @ (Library::CuPy | Library::Exchange) => Self::exchanged(tensor, object, library, stream),
            Library::Torch | Library::Array => {
                let found = object.get_type().name()?;
                let expected = "expected a PyTorch tensor, a NumPy array or one with __dlpack__";
                Err(type_error(tensor, format_args!("found {found}, {expected}")))
            }
        }
    }

    fn exchanged(tensor: Tensor, object: &Bound<'py, PyAny>, library: Library, stream: u64) -> PyResult<Self> {
        let place = dlpack::place_of(object)?.map_err(|kind| {
            value_error(tensor, format_args!("found it on DLPack device type {kind}, expected 1 or 2"))
        })?;
        let capsule = Capsule::ask(object, place, stream)?;
        let lent = capsule.tensor().map_err(|why| type_error(tensor, why))?;
        let found = Self {
            tensor,
            owner: object.clone(),
            library,
            place,
            address: lent.address,
            rank: lent.rank,
            shape: lent.shape,
            strides: lent.strides.unwrap_or_else(|| packed(lent.rank, &lent.shape)),
            writable: !lent.read_only,
            aligned: lent.address.is_multiple_of(align_of::<f32>()),
            _lent: Some(capsule),
        };
        found.checked()
    }

    fn torch(tensor: Tensor, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        static FLOAT32: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = object.py();
        let float32 = FLOAT32.import(py, "torch", "float32")?;
        let dtype = object.getattr(intern!(py, "dtype"))?;
        if !dtype.is(float32) {
            return Err(type_error(tensor, format_args!("found dtype {dtype}, expected torch.float32")));
        }
        let place = if object.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
            Place::Host
        } else if object.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
            Place::Cuda(object.call_method0(intern!(py, "get_device"))?.extract()?)
        } else {
            let device = object.getattr(intern!(py, "device"))?;
            return Err(value_error(tensor, format_args!("found it on device {device}, expected cpu or cuda")));
        };
        if object.call_method0(intern!(py, "is_neg"))?.is_truthy()? {
            return Err(value_error(tensor, "its negative bit is set: pass resolve_neg() of it"));
        }
        let read = || -> PyResult<(usize, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
            let address = object.call_method0(intern!(py, "data_ptr"))?.extract()?;
            Ok((address, object.getattr(intern!(py, "shape"))?, object.call_method0(intern!(py, "stride"))?))
        };
        let (address, shape, strides) =
            read().map_err(|error| type_error(tensor, format_args!("it has no plain memory: {error}")))?;
        let (rank, shape) = extents(tensor, shape.cast::<PyTuple>()?)?;
        let (_, strides) = extents::<isize>(tensor, strides.cast::<PyTuple>()?)?;
        let found = Self {
            tensor,
            owner: object.clone(),
            _lent: None,
            library: Library::Torch,
            place,
            address,
            rank,
            shape,
            strides,
            writable: true,
            aligned: address.is_multiple_of(align_of::<f32>()),
        };
        found.checked()
    }

    fn array(tensor: Tensor, object: &Bound<'py, PyAny>, interface: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let kind = interface.get_item(intern!(py, "typestr"))?;
        let expected = if cfg!(target_endian = "little") { "<f4" } else { ">f4" };
        if !kind.eq(expected)? {
            let kind = object.getattr_opt(intern!(py, "dtype"))?.unwrap_or(kind);
            return Err(type_error(tensor, format_args!("found dtype {kind}, expected float32")));
        }
        let data = interface.get_item(intern!(py, "data"))?;
        let (address, read_only): (usize, bool) =
            data.extract().map_err(|_| type_error(tensor, "its array interface has no address"))?;
        let shape = interface.get_item(intern!(py, "shape"))?;
        let (rank, shape) = extents(tensor, shape.cast::<PyTuple>()?)?;
        let given = interface.call_method1(intern!(py, "get"), (intern!(py, "strides"),))?;
        let mut strides = packed(rank, &shape);
        let mut aligned = address.is_multiple_of(align_of::<f32>());
        if !given.is_none() {
            let (stride_count, strides_bytes) = extents::<isize>(tensor, given.cast::<PyTuple>()?)?;
            if stride_count != rank {
                return Err(type_error(tensor, "its array interface has not one stride per dimension"));
            }
            aligned &= strides_bytes.iter().all(|stride| stride % size_of::<f32>() as isize == 0);
            strides = strides_bytes.map(|stride| stride / size_of::<f32>() as isize);
        }
        let (owner, library, place, writable) = (object.clone(), Library::Array, Place::Host, !read_only);
        Self { tensor, owner, _lent: None, library, place, address, rank, shape, strides, writable, aligned }.checked()
    }

    /// Elements without memory are what fake, wrapped and distributed tensors have.
    fn checked(self) -> PyResult<Self> {
        if self.address == 0 && !self.shape[..self.rank].contains(&0) {
            return Err(type_error(self.tensor, "it has no plain memory"));
        }
        Ok(self)
    }

    fn is_direct(&self) -> bool {
        let shape = &self.shape[..self.rank];
        let strides = &self.strides[..self.rank];
        let ends_well = match (shape.last(), strides.last()) {
            (Some(&extent), Some(&stride)) => extent <= 1 || stride == 1,
            _ => true,
        };
        let backwards = shape.iter().zip(strides).any(|(&extent, &stride)| extent > 1 && stride < 0);
        shape.contains(&0) || (self.aligned && ends_well && !backwards)
    }

    /// The library that results go to.
    pub(crate) fn library(&self) -> Library {
        self.library
    }

    /// That it is where the others are.
    ///
    /// # Errors
    /// When it is elsewhere.
    pub(crate) fn expect_at(&self, place: Place) -> PyResult<()> {
        if self.place == place {
            return Ok(());
        }
        let found = self.place;
        Err(value_error(self.tensor, format_args!("found it on device {found}, expected {place} as grad_query")))
    }

    /// The object whose memory it is: the caller's, or the copy.
    pub(crate) fn owner(&self) -> &Bound<'py, PyAny> {
        &self.owner
    }

    /// Extents, outermost first.
    ///
    /// # Errors
    /// When there are not `RANK`.
    pub(crate) fn shape<const RANK: usize>(&self) -> PyResult<[usize; RANK]> {
        let shape = &self.shape[..self.rank];
        shape
            .try_into()
            .map_err(|_| value_error(self.tensor, format_args!("found shape {shape:?}, expected {RANK} dimensions")))
    }

    fn layout<const RANK: usize>(&self) -> PyResult<([usize; RANK], [usize; RANK])> {
        let shape = self.shape()?;
        let mut strides = [0; RANK];
        for (stride, &found) in strides.iter_mut().zip(&self.strides) {
            // Only dimensions of extent 1 or none run backwards after `is_direct`, and they never move.
            *stride = found.max(0).unsigned_abs();
        }
        if let (true, Some(last)) = (shape.contains(&0), strides.last_mut()) {
            // An empty tensor has no elements to be apart; libraries give it any strides.
            *last = 1;
        }
        Ok((shape, strides))
    }

    /// A rotary table as [B, S, R]: one of shape [S, R] or [1, S, R] is the same for every batch.
    pub(crate) fn expanded(mut self, batch: usize) -> Self {
        if self.rank == 2 {
            self.shape = [1, self.shape[0], self.shape[1], 0];
            self.strides = [0, self.strides[0], self.strides[1], 0];
            self.rank = 3;
        }
        if self.rank == 3 && self.shape[0] == 1 {
            (self.shape[0], self.strides[0]) = (batch, 0);
        }
        self
    }

    /// The memory, to read.
    pub(crate) fn view<const RANK: usize>(&self) -> PyResult<View<'_, RANK>> {
        let (shape, strides) = self.layout()?;
        // SAFETY: the library that owns the tensor says that its shape and strides are readable from its address, which
        // is aligned; `owner` and `_lent` keep the memory for as long as self is borrowed. That others do not write it
        // meanwhile is the documented duty of the Python caller. A view of a GPU's memory is passed on, never read.
        unsafe { View::from_raw_parts(std::ptr::with_exposed_provenance(self.address), shape, strides) }
            .map_err(|error| value_error(self.tensor, error))
    }

    /// The memory, to write.
    pub(crate) fn view_mut<const RANK: usize>(&mut self) -> PyResult<ViewMut<'_, RANK>> {
        let (shape, strides) = self.layout()?;
        // SAFETY: as in `view`; it was found writable, and `Problem::validate` refuses outputs that overlap anything.
        unsafe { ViewMut::from_raw_parts(std::ptr::with_exposed_provenance_mut(self.address), shape, strides) }
            .map_err(|error| value_error(self.tensor, error))
    }
}

/// The integers of a tuple of at most four.
fn extents<'py, T>(tensor: Tensor, tuple: &Bound<'py, PyTuple>) -> PyResult<(usize, [T; MAX_RANK])>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr> + Copy + Default,
{
    let rank = tuple.len();
    if rank > MAX_RANK {
        return Err(value_error(tensor, format_args!("found {rank} dimensions, expected at most {MAX_RANK}")));
    }
    let mut found = [T::default(); MAX_RANK];
    for (found, item) in found.iter_mut().zip(tuple.iter_borrowed()) {
        *found = item.extract()?;
    }
    Ok((rank, found))
}

/// Strides of densely packed rows.
fn packed(rank: usize, shape: &[usize; MAX_RANK]) -> [isize; MAX_RANK] {
    let mut strides = [0; MAX_RANK];
    let mut stride = 1_usize;
    for dim in (0..rank).rev() {
        strides[dim] = stride as isize;
        stride = stride.saturating_mul(shape[dim]);
    }
    strides
}

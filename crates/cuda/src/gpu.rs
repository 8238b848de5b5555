//! One GPU: driver, context, loaded kernels. The only module that calls the driver.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::archive::Archive;
use crate::error::Error;
use crate::facts::Facts;
use crate::kernel::{Arch, Kernel};
use crate::plan::{Launch, MapSpec};

/// An NVIDIA GPU that this library has kernels for.
#[derive(Debug)]
pub struct Gpu {
    context: Arc<CudaContext>,
    facts: Facts,
    archive: Archive,
    loaded: Mutex<HashMap<Kernel, Loaded>>,
}

/// A kernel in the GPU's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    module: sys::CUmodule,
    function: sys::CUfunction,
}

// SAFETY: module and function handles are plain names that the driver lets any thread use.
unsafe impl Send for Loaded {}

pub(crate) fn driver_error(what: &str) -> impl FnOnce(DriverError) -> Error + '_ {
    move |error| Error::Driver { what: what.to_owned(), code: format!("{error}") }
}

/// The names that the driver's library has.
const DRIVER_NAMES: [&str; 2] = if cfg!(windows) { ["nvcuda.dll", "nvcuda"] } else { ["libcuda.so", "libcuda.so.1"] };

/// Whether the driver can be loaded. Asked here and not of cudarc, which has the question only in builds where no other
/// crate links with the driver (candle does).
fn driver_is_there() -> bool {
    // SAFETY: loads a library by name and looks nothing up in it; the driver's initialisers are safe to run.
    DRIVER_NAMES.into_iter().any(|name| unsafe { libloading::Library::new(name) }.is_ok())
}

/// Devices that the driver shows.
///
/// # Errors
/// [`Error::NoDriver`] on a machine without one, [`Error::Driver`] when it does not start.
pub fn device_count() -> Result<usize, Error> {
    if !driver_is_there() {
        return Err(Error::NoDriver { looked_for: DRIVER_NAMES.join(", ") });
    }
    result::init().map_err(driver_error("starting the driver"))?;
    let count = result::device::get_count().map_err(driver_error("counting devices"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The CUDA version that the driver implements: `13.0`.
///
/// # Errors
/// As [`device_count`].
pub fn driver_version() -> Result<String, Error> {
    device_count()?;
    let mut version = 0;
    // SAFETY: the pointer is to a live integer; the library is present, as device_count found.
    let code = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    code.result().map_err(driver_error("asking for its version"))?;
    Ok(format!("{}.{}", version / 1000, version % 1000 / 10))
}

impl Gpu {
    /// Opens device `ordinal` in its primary context, which PyTorch and others use too. The context that is current on
    /// this thread stays so.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::NoDevice`], [`Error::Architecture`] or what the driver says.
    pub fn open(ordinal: usize) -> Result<Arc<Self>, Error> {
        let found = device_count()?;
        if ordinal >= found {
            return Err(Error::NoDevice { ordinal, found, driver: driver_version()? });
        }
        let before = result::ctx::get_current().map_err(driver_error("asking for the current context"))?;
        let _entered = Entered { before: before.unwrap_or(std::ptr::null_mut()) };
        let context = CudaContext::new(ordinal).map_err(driver_error("opening the device's context"))?;
        let facts = facts_of(&context)?;
        let archive = Archive::of(facts.arch)?;
        Ok(Arc::new(Self { context, facts, archive, loaded: Mutex::new(HashMap::new()) }))
    }

    /// What plans for this GPU are made from.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The context, for streams and memory.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Loads a kernel unless it is loaded already.
    pub(crate) fn load(&self, kernel: Kernel) -> Result<Loaded, Error> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&found) = loaded.get(&kernel) {
            return Ok(found);
        }
        let Some(cubin) = self.archive.get(&kernel.to_string()) else {
            return Err(Error::Refused { why: format!("no kernel {kernel} was compiled for {}", self.facts.arch) });
        };
        let found = self.load_cubin(kernel, cubin)?;
        loaded.insert(kernel, found);
        Ok(found)
    }

    fn load_cubin(&self, kernel: Kernel, cubin: &[u8]) -> Result<Loaded, Error> {
        self.bind()?;
        let what = format!("loading kernel {kernel}");
        // SAFETY: the image is a whole cubin: the archive's lengths were checked when it was parsed, and xtask put only
        // the assembler's output there. The driver copies it.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast::<c_void>()) };
        let module = module.map_err(driver_error(&what))?;
        let symbol = CString::new(kernel.symbol()).map_err(|_| Error::Refused { why: what.clone() })?;
        // SAFETY: the module was just loaded.
        let function = unsafe { result::module::get_function(module, symbol) };
        let function = function.map_err(driver_error(&what))?;
        if let Some(bytes) = kernel.dynamic_shared_bytes() {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function was just found.
            let set = unsafe { result::function::set_function_attribute(function, attribute, bytes.cast_signed()) };
            set.map_err(driver_error(&what))?;
        }
        Ok(Loaded { module, function })
    }

    /// Makes the context current on this thread until the guard is dropped, then the caller's again: frameworks take
    /// their current device from it.
    pub(crate) fn enter(&self) -> Result<Entered, Error> {
        let before = result::ctx::get_current().map_err(driver_error("asking for the current context"))?;
        self.bind()?;
        Ok(Entered { before: before.unwrap_or(std::ptr::null_mut()) })
    }

    /// Waits until everything that was put on any stream of the device's primary context has run.
    ///
    /// # Errors
    /// What the driver says, also of work that failed earlier.
    pub fn synchronize(&self) -> Result<(), Error> {
        let _entered = self.enter()?;
        result::ctx::synchronize().map_err(driver_error("waiting for the GPU"))
    }

    /// Waits until everything that was put on `stream` has run.
    ///
    /// # Errors
    /// What the driver says, also of work that failed earlier.
    ///
    /// # Safety
    /// `stream` belongs to this context.
    pub unsafe fn wait_for(&self, stream: sys::CUstream) -> Result<(), Error> {
        let _entered = self.enter()?;
        // SAFETY: promised by the caller.
        unsafe { result::stream::synchronize(stream) }.map_err(driver_error("waiting for the stream"))
    }

    /// Makes the context current on this thread.
    pub(crate) fn bind(&self) -> Result<(), Error> {
        self.context.bind_to_thread().map_err(driver_error("making the context current"))
    }

    /// Puts one launch on a stream.
    ///
    /// # Safety
    /// `args` are the kernel's parameters in order and of its types; the memory that they name is as the kernel's
    /// documentation says until the launch has run; `stream` belongs to this context, which is current.
    pub(crate) unsafe fn launch(
        &self,
        kernel: Loaded,
        launch: &Launch,
        args: &mut [*mut c_void],
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        let mut early = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: launch.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared_bytes,
            hStream: stream,
            attrs: &raw mut early,
            numAttrs: u32::from(launch.early),
        };
        // SAFETY: the caller answers for arguments and stream; config lives through the call.
        let code = unsafe {
            sys::cuLaunchKernelEx(&raw const config, kernel.function, args.as_mut_ptr(), std::ptr::null_mut())
        };
        code.result().map_err(driver_error("launching a kernel"))
    }
}

/// Restores the context that was current before [`Gpu::enter`].
pub(crate) struct Entered {
    before: sys::CUcontext,
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: the context was current when the guard was made; its owner has it for as long as this call lasts. An
        // error leaves ours current, which is an open context too.
        let _ = unsafe { result::ctx::set_current(self.before) };
    }
}

/// What the tensor memory accelerator needs to know of a matrix.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct TensorMap(sys::CUtensorMap);

impl TensorMap {
    /// Describes nothing.
    pub(crate) const EMPTY: Self = Self(sys::CUtensorMap { opaque: [0; 16] });

    /// Describes a matrix in the workspace that starts at `workspace`.
    pub(crate) fn encode(&mut self, spec: &MapSpec, workspace: u64) -> Result<(), Error> {
        let address = std::ptr::without_provenance_mut::<c_void>((workspace + spec.at) as usize);
        let extents = [spec.cols, spec.rows];
        let pitch = [spec.pitch_bytes];
        let (box_extents, steps) = ([spec.box_cols, spec.box_rows], [1, 1]);
        // SAFETY: all pointers are to live arrays of rank 2, or rank 1 for the pitch; the address is only noted down.
        let code = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut self.0,
                sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                2,
                address,
                extents.as_ptr(),
                pitch.as_ptr(),
                box_extents.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        code.result().map_err(driver_error("describing a matrix to the tensor memory accelerator"))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if self.bind().is_err() {
            return;
        }
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, kernel) in loaded.drain() {
            // SAFETY: the module was loaded in this context and only this Gpu, and executors that keep it alive, use it.
            // An error would mean that the context is gone already, and the module with it.
            let _ = unsafe { result::module::unload(kernel.module) };
        }
    }
}

fn facts_of(context: &CudaContext) -> Result<Facts, Error> {
    use sys::CUdevice_attribute as Attribute;
    let read = |attribute| {
        let value = context.attribute(attribute).map_err(driver_error("reading a device attribute"))?;
        Ok::<u32, Error>(u32::try_from(value).unwrap_or(0))
    };
    let name = context.name().map_err(driver_error("reading the device's name"))?;
    let major = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let Some(arch) = Arch::for_capability(major, minor) else {
        let known = Arch::ALL.map(Arch::name).join(", ");
        return Err(Error::Architecture { name, major, minor, known });
    };
    Ok(Facts {
        name,
        arch,
        multiprocessors: read(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        l2_bytes: u64::from(read(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
    })
}

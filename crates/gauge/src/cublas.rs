//! cuBLAS, for one large product that shows what the device's matrix units reach. Not a dependency: where it is not
//! installed, there is no such ceiling.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::CUstream;
use libloading::Library;

use crate::dynamic;
use crate::error::Error;

const NAMES: [&str; 5] = [
    "libcublas.so.13",
    "libcublas.so.12",
    "libcublas.so",
    "/usr/local/cuda/lib64/libcublas.so.13",
    "/usr/local/cuda/lib64/libcublas.so",
];

/// cublasOperation_t, cudaDataType_t, cublasComputeType_t and cublasGemmAlgo_t (cublas_api.h, library_types.h).
const NO_TRANSPOSE: c_int = 0;
const F16: c_int = 2;
const F32: c_int = 0;
const COMPUTE_F32: c_int = 68;
const DEFAULT_ALGORITHM: c_int = -1;

type Create = unsafe extern "C" fn(*mut *mut c_void) -> u32;
type Destroy = unsafe extern "C" fn(*mut c_void) -> u32;
type SetStream = unsafe extern "C" fn(*mut c_void, CUstream) -> u32;
#[rustfmt::skip]
type GemmEx = unsafe extern "C" fn(
    *mut c_void, c_int, c_int, c_int, c_int, c_int, *const c_void, u64, c_int, c_int, u64, c_int, c_int, *const c_void,
    u64, c_int, c_int, c_int, c_int,
) -> u32;

/// A handle.
pub(crate) struct Cublas {
    handle: *mut c_void,
    gemm: GemmEx,
    destroy: Destroy,
    _library: Library,
}

impl Cublas {
    /// Opens cuBLAS on the current context and `stream`.
    ///
    /// # Errors
    /// When it is not there or does not start.
    pub(crate) fn open(stream: CUstream) -> Result<Self, Error> {
        // SAFETY: cuBLAS's initialisers are safe to run.
        let library = unsafe { dynamic::load("cuBLAS", "KERNELPROOF_CUBLAS", &NAMES) }?;
        // SAFETY: the types are those of cublas_api.h, here and below.
        let create: Create = unsafe { symbol(&library, "cublasCreate_v2") }?;
        // SAFETY: as above.
        let destroy: Destroy = unsafe { symbol(&library, "cublasDestroy_v2") }?;
        // SAFETY: as above.
        let set_stream: SetStream = unsafe { symbol(&library, "cublasSetStream_v2") }?;
        // SAFETY: as above.
        let gemm: GemmEx = unsafe { symbol(&library, "cublasGemmEx") }?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the place for the handle is there.
        check("cublasCreate", unsafe { create(&raw mut handle) })?;
        let cublas = Self { handle, gemm, destroy, _library: library };
        // SAFETY: the handle was just made; the caller's stream is of the current context.
        check("cublasSetStream", unsafe { set_stream(handle, stream) })?;
        Ok(cublas)
    }

    /// Puts C = A·B of three square matrices on the stream: fp16 operands, f32 sums and results.
    ///
    /// # Errors
    /// What cuBLAS says.
    ///
    /// # Safety
    /// The addresses are of `extent`² fp16, fp16 and f32 elements on the device until the work has run.
    pub(crate) unsafe fn product(&self, extent: c_int, [a, b, c]: [u64; 3]) -> Result<(), Error> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let (one, zero) = ((&raw const one).cast::<c_void>(), (&raw const zero).cast::<c_void>());
        // SAFETY: the caller answers for the matrices; the factors are read before the function returns.
        #[rustfmt::skip]
        let code = unsafe {
            (self.gemm)(
                self.handle, NO_TRANSPOSE, NO_TRANSPOSE, extent, extent, extent, one, a, F16, extent, b, F16, extent, zero,
                c, F32, extent, COMPUTE_F32, DEFAULT_ALGORITHM,
            )
        };
        check("cublasGemmEx", code)
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // SAFETY: the handle is this one's own. An error would mean that it is gone already.
        let _ = unsafe { (self.destroy)(self.handle) };
    }
}

/// # Safety
/// `Function` is the function's type.
unsafe fn symbol<Function: Copy>(library: &Library, name: &'static str) -> Result<Function, Error> {
    // SAFETY: the caller answers for the type; the copy lives beside the library.
    let found = unsafe { library.get::<Function>(name) };
    found.map(|found| *found).map_err(|_| Error::Missing { library: "cuBLAS", looked_for: name.to_owned() })
}

fn check(call: &'static str, code: u32) -> Result<(), Error> {
    if code == 0 { Ok(()) } else { Err(Error::Library { library: "cuBLAS", call, code }) }
}

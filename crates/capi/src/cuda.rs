//! Sessions for tensors in the memory of an NVIDIA GPU.

use std::ffi::c_void;
use std::sync::Arc;

use qkv_rope::cuda::{self, CUstream, DeviceSession, WorkspacePtr};
use qkv_rope::device::shared_gpu;

use crate::error::{Failure, guard, qkv_rope_status};
use crate::session::{check_pointer, read};
use crate::types::{QKV_ROPE_ABI_VERSION, qkv_rope_inputs, qkv_rope_outputs, qkv_rope_problem};

/// A problem prepared for tensors on one GPU. Calls only read it: any number may be in flight, from any threads and on
/// any streams, each with a workspace of its own.
#[derive(Debug)]
pub struct qkv_rope_cuda_session {
    /// The interface that made it: a handle from another copy of the library is refused.
    abi_version: u32,
    process_id: u32,
    session: DeviceSession,
}

impl From<cuda::Error> for Failure {
    fn from(error: cuda::Error) -> Self {
        use qkv_rope_status as status;
        let code = match error {
            cuda::Error::Call(error) => return error.into(),
            cuda::Error::NoDriver { .. } | cuda::Error::NoDevice { .. } | cuda::Error::Architecture { .. } => {
                status::QKV_ROPE_NO_DEVICE
            }
            cuda::Error::Refused { .. } => status::QKV_ROPE_REFUSED,
            cuda::Error::Layout { .. } => status::QKV_ROPE_STRIDES,
            cuda::Error::Workspace { .. } => status::QKV_ROPE_WORKSPACE,
            _ => status::QKV_ROPE_FAILED,
        };
        Self::new(code, error.to_string())
    }
}

/// The GPUs that the NVIDIA driver shows. QKV_ROPE_NO_DEVICE without a driver: qkv_rope_last_error() says what was
/// looked for. The library itself never needs one to be loaded.
///
/// # Safety
/// `count` is null or points to a writable uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_cuda_device_count(count: *mut u32) -> qkv_rope_status {
    guard(|| {
        check_pointer("count", count)?;
        let found = cuda::device_count()?;
        // SAFETY: not null, aligned, and writable as promised by the caller.
        unsafe { count.write(u32::try_from(found).unwrap_or(u32::MAX)) };
        Ok(())
    })
}

/// Prepares `problem` for tensors on GPU `device`, as the driver numbers them, in its primary context, which is that of
/// the CUDA runtime. Stores the handle in `*session`, or null on failure. The context that is current on this thread
/// stays so, as in every function here. `problem.precision` is QKV_ROPE_SPLIT or QKV_ROPE_FAST.
///
/// # Safety
/// `problem` is null or points to a qkv_rope_problem, `session` is null or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_cuda_session_create(
    problem: *const qkv_rope_problem,
    device: u32,
    session: *mut *mut qkv_rope_cuda_session,
) -> qkv_rope_status {
    guard(|| {
        check_pointer("session", session)?;
        // SAFETY: not null, aligned, and writable as promised by the caller.
        unsafe { session.write(std::ptr::null_mut()) };
        // SAFETY: promised by the caller.
        let problem = unsafe { read("problem", problem) }?.checked()?;
        let gpu: Arc<cuda::Gpu> = shared_gpu(device as usize)?;
        let made = Box::new(qkv_rope_cuda_session {
            abi_version: QKV_ROPE_ABI_VERSION,
            process_id: std::process::id(),
            session: DeviceSession::new(&gpu, &problem)?,
        });
        // SAFETY: as above.
        unsafe { session.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// The device memory that each call of the session needs to work in, at an address that is a multiple of 256.
///
/// # Safety
/// `session` is null or a handle that was not destroyed, `bytes` is null or points to a writable uint64_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_cuda_workspace_bytes(
    session: *const qkv_rope_cuda_session,
    bytes: *mut u64,
) -> qkv_rope_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let session = unsafe { read("session", session) }?;
        session.check()?;
        check_pointer("bytes", bytes)?;
        // SAFETY: not null, aligned, and writable as promised by the caller.
        unsafe { bytes.write(session.session.workspace_bytes()) };
        Ok(())
    })
}

/// Puts the session's problem on `stream`, a CUstream or cudaStream_t (null is the legacy default stream), and returns.
/// It allocates nothing and waits for nothing, so that it can be captured in a CUDA graph. The tensors' data are device
/// addresses; those that are multiples of 16 bytes, with strides that are, run faster. Errors that the GPU meets while
/// it runs are reported by whatever waits for the stream.
///
/// # Safety
/// `session` is null or a handle that was not destroyed; `inputs` and `outputs` are null or point to their structs.
/// Until the work has run (for a captured call: as long as its graph is launched) the session is not destroyed, the
/// memory that each tensor's shape and strides reach and the workspace are memory of the session's GPU, nothing else
/// writes them, and nothing else reads the outputs and the workspace. `stream` belongs to the GPU's primary context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_cuda_backward(
    session: *const qkv_rope_cuda_session,
    inputs: *const qkv_rope_inputs,
    outputs: *const qkv_rope_outputs,
    workspace: *mut c_void,
    workspace_bytes: u64,
    stream: *mut c_void,
) -> qkv_rope_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let session = unsafe { read("session", session) }?;
        session.check()?;
        // SAFETY: promised by the caller.
        let inputs = unsafe { read("inputs", inputs) }?;
        // SAFETY: promised by the caller.
        let outputs = unsafe { read("outputs", outputs) }?;
        // SAFETY: promised by the caller; a GPU's memory is passed on, never read.
        let inputs = unsafe { inputs.views() }?;
        // SAFETY: as above.
        let mut outputs = unsafe { outputs.views() }?;
        let workspace = WorkspacePtr { address: workspace.addr() as u64, bytes: workspace_bytes };
        session.check_workspace(workspace)?;
        let stream: CUstream = stream.cast();
        // SAFETY: promised by the caller.
        Ok(unsafe { session.session.enqueue(&inputs, &mut outputs, workspace, stream) }?)
    })
}

/// Frees a session; null is allowed. None of its calls may be running on the GPU, and no graph that has one may be
/// launched again.
///
/// # Safety
/// `session` is null or a handle that was not destroyed, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_cuda_session_destroy(session: *mut qkv_rope_cuda_session) {
    if session.is_null() {
        return;
    }
    let _ = guard(|| {
        // SAFETY: a handle of ours, promised by the caller to be alive and unused.
        let session = unsafe { Box::from_raw(session) };
        if session.process_id != std::process::id() {
            // The driver's objects are the parent's.
            std::mem::forget(session);
        }
        Ok(())
    });
}

impl qkv_rope_cuda_session {
    /// Some tensors need less than others; what a caller may count on does not depend on them.
    fn check_workspace(&self, workspace: WorkspacePtr) -> Result<(), Failure> {
        let needed = self.session.workspace_bytes();
        if workspace.bytes >= needed {
            return Ok(());
        }
        let text = format!("workspace: found {} bytes, expected {needed}", workspace.bytes);
        Err(Failure::new(qkv_rope_status::QKV_ROPE_WORKSPACE, text))
    }

    fn check(&self) -> Result<(), Failure> {
        if self.abi_version != QKV_ROPE_ABI_VERSION {
            let text = "session: not a handle that this version's qkv_rope_cuda_session_create made";
            return Err(Failure::new(qkv_rope_status::QKV_ROPE_WRONG_VERSION, text));
        }
        if self.process_id != std::process::id() {
            return Err(cuda::Error::Forked.into());
        }
        Ok(())
    }
}

//! Sessions for tensors that are on the GPU already: what bindings of frameworks use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys;
use qkv_rope_op::{Inputs, Outputs, Problem};

use crate::error::Error;
use crate::executor::{Executor, WorkspacePtr};
use crate::gpu::Gpu;
use crate::kernel::Access;
use crate::plan::Layout;

/// A problem prepared for tensors of any strides and alignment on one GPU. Calls borrow it, from any thread and on any
/// stream, each with a workspace of its own.
#[derive(Debug)]
pub struct DeviceSession {
    /// For rows that are multiples of 16 bytes at 16-byte aligned addresses.
    dense: Executor,
    /// For all else, slower.
    any: Executor,
    captured: AtomicBool,
}

impl DeviceSession {
    /// Loads the kernels and uploads the tables; nothing is allocated afterwards. May be done while a stream is
    /// captured.
    ///
    /// # Errors
    /// [`Error::Refused`] when the GPU cannot run the problem, or what the driver says.
    pub fn new(gpu: &Arc<Gpu>, problem: &Problem) -> Result<Self, Error> {
        let any = Layout { inputs: Access::Narrow, outputs: Access::Narrow, flat_hidden: false };
        Ok(Self {
            dense: Executor::new(gpu, problem, Layout::dense(problem.dims))?,
            any: Executor::new(gpu, problem, any)?,
            captured: AtomicBool::new(false),
        })
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.dense.plan().problem
    }

    /// The GPU that it runs on.
    pub fn gpu(&self) -> &Arc<Gpu> {
        self.dense.gpu()
    }

    /// Bytes of workspace with which any call can run.
    pub fn workspace_bytes(&self) -> u64 {
        self.dense.workspace_bytes().max(self.any.workspace_bytes())
    }

    /// Bytes of workspace that a call with these tensors needs: fewer when they are aligned and densely packed.
    pub fn workspace_bytes_for(&self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> u64 {
        self.executor(inputs, outputs).workspace_bytes()
    }

    fn executor(&self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> &Executor {
        if self.dense.fits(inputs, outputs) { &self.dense } else { &self.any }
    }

    /// Whether a call was captured into a CUDA graph, which uses this session's tables for as long as it exists.
    pub fn was_captured(&self) -> bool {
        self.captured.load(Ordering::Acquire)
    }

    /// Puts one backward pass on `stream` and returns: no allocation, no synchronisation.
    ///
    /// # Errors
    /// As [`Executor::enqueue`]. Strides of 2^31 elements and more are refused, except between batches.
    ///
    /// # Safety
    /// As [`Executor::enqueue`].
    pub unsafe fn enqueue(
        &self,
        inputs: &Inputs<'_>,
        outputs: &mut Outputs<'_>,
        workspace: WorkspacePtr,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        // SAFETY: promised by the caller.
        unsafe { self.executor(inputs, outputs).enqueue(inputs, outputs, workspace, stream) }?;
        // SAFETY: promised by the caller.
        if unsafe { is_captured(self.gpu(), stream) }? {
            self.captured.store(true, Ordering::Release);
        }
        Ok(())
    }
}

/// Whether what is put on `stream` goes into a CUDA graph.
///
/// # Safety
/// `stream` belongs to the context of `gpu`.
unsafe fn is_captured(gpu: &Gpu, stream: sys::CUstream) -> Result<bool, Error> {
    let _entered = gpu.enter()?;
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the pointer is to a live status; the stream is the caller's promise.
    let code = unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) };
    // An error says that the default stream cannot be asked while others are captured: it is not captured itself.
    Ok(code.result().is_ok() && status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
}

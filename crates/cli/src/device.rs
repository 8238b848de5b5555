//! From what the user asked for to a backend. A new device is a new arm here and nowhere else.

use std::num::NonZeroUsize;

use qkv_rope_cpu::{CpuBackend, CpuOptions, Isa, Threads};
use qkv_rope_cuda::CudaBackend;
use qkv_rope_op::Backend;

use crate::args::{Device, DeviceArgs};
use crate::failure::Failure;
use crate::machine;

impl DeviceArgs {
    /// Threads to use: what was asked for, or all that this process may use.
    pub(crate) fn thread_count(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(|| NonZeroUsize::new(machine::threads_available()).unwrap_or(NonZeroUsize::MIN))
    }

    /// Opens the device.
    ///
    /// # Errors
    /// When this machine lacks it.
    pub(crate) fn open(&self) -> anyhow::Result<Box<dyn Backend>> {
        match self.device {
            Device::Cpu => Ok(Box::new(cpu(self.isa, self.thread_count())?)),
            Device::Cuda(ordinal) => cuda(ordinal),
        }
    }
}

/// A GPU, or something that measuring on it needs, is not there.
pub(crate) fn unavailable(error: kernelproof_gauge::Error) -> Failure {
    Failure::unavailable(error.to_string())
}

/// A GPU of this machine, for tensors in the host's memory.
///
/// # Errors
/// When there is no driver, no such GPU, or none that kernels were compiled for.
pub(crate) fn cuda(ordinal: usize) -> anyhow::Result<Box<dyn Backend>> {
    let opened = CudaBackend::open(ordinal).map_err(qkv_rope_op::Error::from);
    Ok(Box::new(opened?))
}

/// The CPU backend on its own threads.
///
/// # Errors
/// When the processor lacks the instruction set or threads cannot be started.
pub(crate) fn cpu(isa: Option<Isa>, threads: NonZeroUsize) -> Result<CpuBackend, qkv_rope_op::Error> {
    CpuBackend::new(CpuOptions { isa, threads: Threads::Count(threads) })
}

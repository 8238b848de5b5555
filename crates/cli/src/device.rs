//! From what the user asked for to a backend. A new device is a new arm here and nowhere else.

use std::num::NonZeroUsize;

use qkv_rope_cpu::{CpuBackend, CpuOptions, Isa, Threads};
use qkv_rope_op::Backend;

use crate::args::{DeviceArgs, DeviceKind};
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
            DeviceKind::Cpu => Ok(Box::new(cpu(self.isa, self.thread_count())?)),
        }
    }
}

/// The CPU backend on its own threads.
///
/// # Errors
/// When the processor lacks the instruction set or threads cannot be started.
pub(crate) fn cpu(isa: Option<Isa>, threads: NonZeroUsize) -> Result<CpuBackend, qkv_rope_op::Error> {
    CpuBackend::new(CpuOptions { isa, threads: Threads::Count(threads) })
}

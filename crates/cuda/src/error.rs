//! What can go wrong between a call and the GPU.

use qkv_rope_op::Tensor;

use crate::kernel::Arch;

/// An error of the CUDA backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine has no NVIDIA driver.
    #[error("no NVIDIA driver: none of {looked_for} could be loaded")]
    NoDriver {
        /// The library names that were tried.
        looked_for: String,
    },
    /// The driver has no such device.
    #[error("no GPU {ordinal}: the NVIDIA driver (CUDA {driver}) shows {found} device(s)")]
    NoDevice {
        /// What was asked for.
        ordinal: usize,
        /// Devices that the driver shows.
        found: usize,
        /// CUDA version of the driver.
        driver: String,
    },
    /// The driver was started by a parent of this process.
    #[error(
        "the NVIDIA driver was started before fork(), after which it does not work: start this process by other means (in Python: multiprocessing's spawn)"
    )]
    Forked,
    /// The device is of an architecture that no cubin was made for.
    #[error("{name} has compute capability {major}.{minor}; kernels were compiled for {known}")]
    Architecture {
        /// The device's name.
        name: String,
        /// Its compute capability.
        major: u32,
        /// Its compute capability.
        minor: u32,
        /// Architectures in the archive.
        known: String,
    },
    /// The embedded cubins cannot be read.
    #[error("the embedded cubins for {arch} are damaged: {why}")]
    Archive {
        /// Their architecture.
        arch: Arch,
        /// What is wrong.
        why: String,
    },
    /// The driver refused a request.
    #[error("{what}: the NVIDIA driver answered {code}")]
    Driver {
        /// What was asked of it.
        what: String,
        /// The driver's error.
        code: String,
    },
    /// The problem cannot run on the GPU.
    #[error("{why}")]
    Refused {
        /// The reason.
        why: String,
    },
    /// A tensor of a call is not what the plan was made for.
    #[error("{tensor:?}: {found}, but the call was planned for {expected}")]
    Layout {
        /// The tensor.
        tensor: Tensor,
        /// What its address or strides are.
        found: String,
        /// What the plan assumed.
        expected: String,
    },
    /// The workspace that was passed is too small.
    #[error(
        "the workspace has {found} bytes at an address divisible by {found_alignment}; {needed} bytes aligned to 256 are needed"
    )]
    Workspace {
        /// Bytes passed.
        found: u64,
        /// Largest power of two that divides its address, up to 256.
        found_alignment: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The call does not fit the problem.
    #[error(transparent)]
    Call(#[from] qkv_rope_op::Error),
}

impl From<Error> for qkv_rope_op::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Call(error) => error,
            Error::Refused { why } => Self::Refused { backend: "cuda".to_owned(), why },
            other => Self::Failed { backend: "cuda".to_owned(), why: other.to_string() },
        }
    }
}

//! What can go wrong while measuring on a GPU.

use cudarc::driver::DriverError;
use kernelproof_eval::evaluation::Status;
use kernelproof_eval::judge::Fault;

/// An error of a measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The backend refused or failed.
    #[error(transparent)]
    Backend(#[from] qkv_rope_cuda::Error),
    /// The driver refused a request.
    #[error("{what}: the NVIDIA driver answered {code}")]
    Driver {
        /// What was asked of it.
        what: &'static str,
        /// The driver's error.
        code: String,
    },
    /// A library that measuring needs is not there.
    #[error("no {library}: none of {looked_for} could be loaded")]
    Missing {
        /// Its name.
        library: &'static str,
        /// File names that were tried.
        looked_for: String,
    },
    /// A library answered with an error.
    #[error("{library}: {call} answered {code}")]
    Library {
        /// Its name.
        library: &'static str,
        /// The function.
        call: &'static str,
        /// Its number of the error.
        code: u32,
    },
    /// The device's activity records do not show the call.
    #[error("the activity records of a call are no measurement: {why}")]
    Records {
        /// Why not.
        why: String,
    },
    /// A tensor does not fit the problem.
    #[error(transparent)]
    Call(#[from] qkv_rope_op::Error),
}

/// For `map_err` around a call of the driver.
pub(crate) fn driver(what: &'static str) -> impl FnOnce(DriverError) -> Error {
    move |error| Error::Driver { what, code: error.to_string() }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Backend(qkv_rope_cuda::Error::Refused { .. }) => Status::Unsupported,
            Error::Call(qkv_rope_op::Error::Refused { .. }) => Status::Unsupported,
            Error::Missing { .. } | Error::Library { .. } | Error::Records { .. } => Status::Inconclusive,
            _ => Status::CallFailed,
        };
        Self { status, detail: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_that_failed_is_no_verdict_on_the_implementation() {
        let fault = |error: Error| Fault::from(error).status;
        assert_eq!(fault(Error::Records { why: "none".to_owned() }), Status::Inconclusive);
        assert_eq!(fault(qkv_rope_cuda::Error::Refused { why: "no".to_owned() }.into()), Status::Unsupported);
        assert_eq!(fault(Error::Driver { what: "x", code: "y".to_owned() }), Status::CallFailed);
    }
}

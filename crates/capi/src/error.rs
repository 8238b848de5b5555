//! Status codes, and the text of the last error on each thread.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use qkv_rope::Error;

/// What became of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum qkv_rope_status {
    /// Done.
    QKV_ROPE_OK = 0,
    /// A pointer that must not be null is.
    QKV_ROPE_NULL_POINTER = 1,
    /// A pointer to float is not a multiple of 4, or one to a struct not of its alignment.
    QKV_ROPE_MISALIGNED = 2,
    /// The problem was filled in, or the session made, for another version of this interface.
    QKV_ROPE_WRONG_VERSION = 3,
    /// A pairing, precision or write mode that does not exist, or a reserved field that is not 0.
    QKV_ROPE_INVALID_VALUE = 4,
    /// Sizes contradict each other or are not addressable.
    QKV_ROPE_DIMS = 5,
    /// A tensor's rank or shape is not that of the problem.
    QKV_ROPE_SHAPE = 6,
    /// A stride is negative, a last dimension not contiguous, or an output maps two indices to one element.
    QKV_ROPE_STRIDES = 7,
    /// An input is null that a requested output is computed from.
    QKV_ROPE_MISSING_INPUT = 8,
    /// The outputs are not those that the session was created for.
    QKV_ROPE_WRONG_OUTPUTS = 9,
    /// An output shares memory with another tensor.
    QKV_ROPE_OVERLAP = 10,
    /// The library cannot run this problem on this machine.
    QKV_ROPE_REFUSED = 11,
    /// The machine gave out (memory, threads), or the session is not this process's. Outputs are unspecified.
    QKV_ROPE_FAILED = 12,
    /// A bug in the library; please report the text. Outputs are unspecified and the session must only be destroyed.
    QKV_ROPE_PANIC = 13,
    /// There is no such GPU, no NVIDIA driver, or no kernel for this GPU.
    QKV_ROPE_NO_DEVICE = 14,
    /// The workspace of a call on a GPU is too small or not aligned to 256 bytes.
    QKV_ROPE_WORKSPACE = 15,
}

/// An error on its way to the caller.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: qkv_rope_status,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(status: qkv_rope_status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use qkv_rope_status as status;
        let code = match error {
            Error::Dims { .. } => status::QKV_ROPE_DIMS,
            Error::Shape { .. } | Error::Bounds { .. } => status::QKV_ROPE_SHAPE,
            Error::LastDimStride { .. } | Error::SelfOverlap { .. } => status::QKV_ROPE_STRIDES,
            Error::MissingInput { .. } | Error::Absent { .. } => status::QKV_ROPE_MISSING_INPUT,
            Error::Request { .. } => status::QKV_ROPE_WRONG_OUTPUTS,
            Error::Overlap { .. } => status::QKV_ROPE_OVERLAP,
            Error::Refused { .. } => status::QKV_ROPE_REFUSED,
            _ => status::QKV_ROPE_FAILED,
        };
        Self::new(code, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// The text of the last error on the calling thread; empty when there was none. Valid until the next call of this
/// library that fails on the same thread. Never null, never freed.
#[unsafe(no_mangle)]
pub extern "C" fn qkv_rope_last_error() -> *const c_char {
    // A thread that is being torn down has no storage left.
    LAST.try_with(|last| last.try_borrow().map(|text| text.as_ptr()).unwrap_or(c"".as_ptr())).unwrap_or(c"".as_ptr())
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
    // As above: then the text is lost, the status is not.
    let _ = LAST.try_with(|last| last.try_borrow_mut().map(|mut last| *last = text));
}

/// Runs the body of an exported function: errors and panics become a status with a text.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> qkv_rope_status {
    // What the body shares is a session, which is marked as broken by its poisoned lock.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return qkv_rope_status::QKV_ROPE_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            let text = format!("a bug in qkv_rope: {said}");
            // Dropping an exotic payload may panic again.
            std::mem::forget(panic);
            Failure::new(qkv_rope_status::QKV_ROPE_PANIC, text)
        }
    };
    remember(&failure.text);
    failure.status
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last_error() -> String {
        // SAFETY: never null, and no call between here and the copy.
        unsafe { CStr::from_ptr(qkv_rope_last_error()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(guard(|| panic!("number {}", 7)), qkv_rope_status::QKV_ROPE_PANIC);
        assert_eq!(last_error(), "a bug in qkv_rope: number 7");
        assert_eq!(guard(|| std::panic::panic_any(3_u8)), qkv_rope_status::QKV_ROPE_PANIC);
        assert_eq!(last_error(), "a bug in qkv_rope: no message");
    }

    #[test]
    fn each_thread_has_its_own_text() {
        let failure = || Err(Failure::new(qkv_rope_status::QKV_ROPE_FAILED, "here\0and there"));
        assert_eq!(guard(failure), qkv_rope_status::QKV_ROPE_FAILED);
        assert_eq!(std::thread::spawn(last_error).join().expect("no panic"), "");
        assert_eq!(guard(|| Ok(())), qkv_rope_status::QKV_ROPE_OK);
        assert_eq!(last_error(), "here?and there", "success keeps the text");
    }
}

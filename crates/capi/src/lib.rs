//! The C interface: `include/qkv_rope.h` is generated from here and is its documentation.
//!
//! Every exported function runs inside [`guard`], so that no panic leaves the library and every error has a text.

#![expect(non_camel_case_types, reason = "these are the names that C sees")]

mod cuda;
mod error;
mod session;
mod tensor;
mod types;

pub use cuda::{
    qkv_rope_cuda_backward, qkv_rope_cuda_device_count, qkv_rope_cuda_session, qkv_rope_cuda_session_create,
    qkv_rope_cuda_session_destroy, qkv_rope_cuda_workspace_bytes,
};
pub use error::{qkv_rope_last_error, qkv_rope_status};
pub use session::{
    qkv_rope_backward, qkv_rope_session, qkv_rope_session_create, qkv_rope_session_destroy, qkv_rope_workspace_bytes,
};
pub use types::{
    QKV_ROPE_ABI_VERSION, QKV_ROPE_ACCUMULATE, QKV_ROPE_FAST, QKV_ROPE_HALF_SPLIT, QKV_ROPE_IEEE, QKV_ROPE_INTERLEAVED,
    QKV_ROPE_MAX_RANK, QKV_ROPE_NONE, QKV_ROPE_OVERWRITE, QKV_ROPE_SPLIT, qkv_rope_dims, qkv_rope_inputs,
    qkv_rope_output, qkv_rope_outputs, qkv_rope_problem, qkv_rope_tensor,
};

/// The QKV_ROPE_ABI_VERSION that the library was built with. Compare it with the header's after loading at run time.
#[unsafe(no_mangle)]
pub extern "C" fn qkv_rope_abi_version() -> u32 {
    QKV_ROPE_ABI_VERSION
}

/// The library's version as text: "0.1.0". Never null, never freed.
#[unsafe(no_mangle)]
pub extern "C" fn qkv_rope_version() -> *const std::ffi::c_char {
    const VERSION: &std::ffi::CStr =
        match std::ffi::CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

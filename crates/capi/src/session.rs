//! Sessions and the calls on them.

use std::num::NonZeroUsize;
use std::sync::Mutex;

use qkv_rope::process::shared_cpu;
use qkv_rope::{Backend, Session};

use crate::error::{Failure, guard, qkv_rope_status};
use crate::types::{QKV_ROPE_ABI_VERSION, qkv_rope_inputs, qkv_rope_outputs, qkv_rope_problem};

/// A problem prepared to be run many times: its plan, its workspace and its threads.
#[derive(Debug)]
pub struct qkv_rope_session {
    /// The interface that made it: a handle from another copy of the library is refused.
    abi_version: u32,
    process_id: u32,
    running: Mutex<Running>,
}

/// The session, behind the lock that makes calls wait for each other.
struct Running(Box<dyn Session>);

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Running")
    }
}

/// Checks a pointer to a struct of the border.
pub(crate) fn check_pointer<T>(name: &str, pointer: *const T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::new(qkv_rope_status::QKV_ROPE_NULL_POINTER, format!("{name} is null")));
    }
    if !pointer.is_aligned() {
        let text = format!("{name}: address {:#x} is not a multiple of {}", pointer.addr(), align_of::<T>());
        return Err(Failure::new(qkv_rope_status::QKV_ROPE_MISALIGNED, text));
    }
    Ok(())
}

/// # Safety
/// `pointer` is null, misaligned, or points to a `T` that lives and is not written for `'a`.
pub(crate) unsafe fn read<'a, T>(name: &str, pointer: *const T) -> Result<&'a T, Failure> {
    check_pointer(name, pointer)?;
    // SAFETY: not null, aligned, and the rest is promised by the caller.
    Ok(unsafe { &*pointer })
}

/// The memory that a session of `problem` maps beyond inputs and outputs.
///
/// # Safety
/// `problem` is null or points to a qkv_rope_problem, `bytes` is null or points to a writable uint64_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_workspace_bytes(
    problem: *const qkv_rope_problem,
    bytes: *mut u64,
) -> qkv_rope_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let problem = unsafe { read("problem", problem) }?;
        check_pointer("bytes", bytes)?;
        // One thread: the workspace does not depend on the count, and no pool is started for a question.
        let plan = shared_cpu(Some(NonZeroUsize::MIN))?.plan(&problem.checked()?)?;
        // SAFETY: not null, aligned, and writable as promised by the caller.
        unsafe { bytes.write(plan.workspace_bytes) };
        Ok(())
    })
}

/// Prepares `problem` to be run many times and stores the handle in `*session`, or null on failure. `threads` 0 means
/// one per available core, 1 the caller's own thread. Results do not depend on it, bit for bit.
///
/// # Safety
/// `problem` is null or points to a qkv_rope_problem, `session` is null or points to a writable pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_session_create(
    problem: *const qkv_rope_problem,
    threads: u32,
    session: *mut *mut qkv_rope_session,
) -> qkv_rope_status {
    guard(|| {
        check_pointer("session", session)?;
        // SAFETY: not null, aligned, and writable as promised by the caller.
        unsafe { session.write(std::ptr::null_mut()) };
        // SAFETY: promised by the caller.
        let problem = unsafe { read("problem", problem) }?.checked()?;
        let backend = shared_cpu(NonZeroUsize::new(threads as usize))?;
        let running = Mutex::new(Running(backend.session(&problem)?));
        let made =
            Box::new(qkv_rope_session { abi_version: QKV_ROPE_ABI_VERSION, process_id: std::process::id(), running });
        // SAFETY: as above.
        unsafe { session.write(Box::into_raw(made)) };
        Ok(())
    })
}

/// Computes the outputs of the session's problem; returns when they are written.
///
/// # Safety
/// `session` is null or a handle that was not destroyed. `inputs` and `outputs` are null or point to their structs; the
/// memory that each tensor's shape and strides reach is readable, that of outputs also writable, and no other thread
/// writes it (or, for outputs, reads it) during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_backward(
    session: *mut qkv_rope_session,
    inputs: *const qkv_rope_inputs,
    outputs: *const qkv_rope_outputs,
) -> qkv_rope_status {
    guard(|| {
        // SAFETY: promised by the caller.
        let session = unsafe { read("session", session.cast_const()) }?;
        session.check()?;
        // SAFETY: promised by the caller.
        let inputs = unsafe { read("inputs", inputs) }?;
        // SAFETY: promised by the caller.
        let outputs = unsafe { read("outputs", outputs) }?;
        // SAFETY: promised by the caller.
        let inputs = unsafe { inputs.views() }?;
        // SAFETY: promised by the caller; that outputs are apart from all else is checked before any is written.
        let mut outputs = unsafe { outputs.views() }?;
        let broken = |_| Failure::new(qkv_rope_status::QKV_ROPE_PANIC, "an earlier call on this session panicked");
        let mut running = session.running.lock().map_err(broken)?;
        Ok(running.0.backward(&inputs, &mut outputs)?)
    })
}

/// Frees a session; null is allowed. No call may be running on it.
///
/// # Safety
/// `session` is null or a handle that was not destroyed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qkv_rope_session_destroy(session: *mut qkv_rope_session) {
    if session.is_null() {
        return;
    }
    let _ = guard(|| {
        // SAFETY: a handle of ours, promised by the caller to be alive and unused.
        drop(unsafe { Box::from_raw(session) });
        Ok(())
    });
}

impl qkv_rope_session {
    fn check(&self) -> Result<(), Failure> {
        if self.abi_version != QKV_ROPE_ABI_VERSION {
            let text = "session: not a handle that this version's qkv_rope_session_create made";
            return Err(Failure::new(qkv_rope_status::QKV_ROPE_WRONG_VERSION, text));
        }
        if self.process_id != std::process::id() {
            let text = "session: created before fork(); a child must create its own";
            return Err(Failure::new(qkv_rope_status::QKV_ROPE_FAILED, text));
        }
        Ok(())
    }
}

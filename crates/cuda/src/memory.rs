//! Device memory that this library owns, made and filled without touching anybody's stream.

use std::sync::Arc;

use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::{DriverError, result, sys};

use crate::error::Error;
use crate::gpu::{Gpu, driver_error};

/// Device memory, freed when dropped. Whoever drops it knows that no work uses it any more.
#[derive(Debug)]
pub struct Memory {
    gpu: Arc<Gpu>,
    address: sys::CUdeviceptr,
    bytes: usize,
}

impl Memory {
    /// Memory with unspecified contents.
    ///
    /// # Errors
    /// What the driver says, usually that there is not enough.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        let _relaxed = Relaxed::on_this_thread()?;
        // SAFETY: the context is current. The driver has no allocation of zero bytes.
        let address = unsafe { result::malloc_sync(bytes.max(1)) };
        let address = address.map_err(driver_error(&format!("allocating {bytes} bytes")))?;
        Ok(Self { gpu: gpu.clone(), address, bytes })
    }

    /// Memory that holds these words when this returns.
    pub(crate) fn holding(gpu: &Arc<Gpu>, words: &[i32], what: &str) -> Result<Self, Error> {
        let memory = Self::new(gpu, size_of_val(words))?;
        if !words.is_empty() {
            let _entered = gpu.enter()?;
            // SAFETY: the context is current, and the memory has room for the words.
            unsafe { copy_apart(memory.address, words) }.map_err(driver_error(what))?;
        }
        Ok(memory)
    }

    /// Where it starts: a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whose memory it is.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (Ok(_entered), Ok(_relaxed)) = (self.gpu.enter(), Relaxed::on_this_thread()) else { return };
        // SAFETY: allocated by `new` in this context, freed once. An error would mean that the context is gone already.
        let _ = unsafe { result::free_sync(self.address) };
    }
}

/// Copies on a stream of its own, which waits for no other.
///
/// # Safety
/// The context is current and `to` is memory of it with room for `words`.
unsafe fn copy_apart(to: sys::CUdeviceptr, words: &[i32]) -> Result<(), DriverError> {
    let stream = result::stream::create(StreamKind::NonBlocking)?;
    // SAFETY: promised by the caller; the words are borrowed until the stream was waited for.
    let copied = unsafe { result::memcpy_htod_async(to, words, stream) };
    // SAFETY: made above.
    let waited = unsafe { result::stream::synchronize(stream) };
    // SAFETY: made above and used no more.
    let destroyed = unsafe { result::stream::destroy(stream) };
    copied.and(waited).and(destroyed)
}

/// Allows this thread, until dropped, what capturing a stream elsewhere would otherwise forbid: allocating memory and
/// loading kernels, which no captured work depends on.
pub(crate) struct Relaxed {
    before: sys::CUstreamCaptureMode,
}

impl Relaxed {
    pub(crate) fn on_this_thread() -> Result<Self, Error> {
        let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        Ok(Self { before: exchange(relaxed).map_err(driver_error("preparing beside a captured stream"))? })
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // An error leaves the thread relaxed.
        let _ = exchange(self.before);
    }
}

fn exchange(mut mode: sys::CUstreamCaptureMode) -> Result<sys::CUstreamCaptureMode, DriverError> {
    // SAFETY: the pointer is to a live mode, which the driver swaps with the thread's.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result()?;
    Ok(mode)
}

//! Times one call on one GPU, with caches that hold nothing of it.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent_flags};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result};
use qkv_rope_cuda::Gpu;

use crate::cupti::Recorder;
use crate::error::{Error, driver};
use crate::span;

/// What reads the time. Times by different timers are never set against each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimerChoice {
    /// CUPTI where it can be loaded, else events.
    #[default]
    Best,
    /// CUPTI or an error.
    Cupti,
    /// CUDA events.
    Events,
}

/// A call that was timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Integer nanoseconds.
    pub time_ns: u64,
    /// What the device did, an entry for each activity; `None` where the timer does not see it.
    pub activities: Option<Vec<String>>,
}

/// The caches are emptied by zeroing twice their size. Doing so this many times keeps the device busy for about 4 ms, in
/// which the host puts the whole call on the stream: what is timed is the device, and not how fast the host recovers from what
/// the judge did to its caches, or from having been stopped.
const FILLS: usize = 120;

/// A GPU, a stream of its own, a buffer that empties its second-level cache, and a timer.
#[derive(Debug)]
pub struct Stopwatch {
    gpu: Arc<Gpu>,
    stream: Arc<CudaStream>,
    flush: CudaSlice<u8>,
    recorder: Option<Recorder>,
}

impl Stopwatch {
    /// Name of the timer by CUPTI in protocols, here and in workers.
    pub const CUPTI: &'static str = "device span from the first to the last CUPTI activity record of the call";
    /// Name of the timer by events in protocols, here and in workers.
    pub const EVENTS: &'static str = "CUDA events around the call";

    /// Opens GPU `ordinal` for measuring.
    ///
    /// # Errors
    /// When there is no such GPU, or CUPTI was asked for and is not there.
    pub fn open(ordinal: usize, choice: TimerChoice) -> Result<Self, Error> {
        // A missing driver is the clearer error, so it is looked for first.
        qkv_rope_cuda::device_count()?;
        // Before the context: graphs and modules that are older than the recorder may be missed.
        let recorder = match (choice, Recorder::open()) {
            (TimerChoice::Events, _) | (TimerChoice::Best, Err(_)) => None,
            (_, recorder) => Some(recorder?),
        };
        let gpu = Gpu::open(ordinal)?;
        // SAFETY: all memory that this crate allocates is used on the one stream made below.
        unsafe { gpu.context().disable_event_tracking() };
        let stream = gpu.context().new_stream().map_err(driver("making a stream"))?;
        let flush_bytes = usize::try_from(2 * gpu.facts().l2_bytes).unwrap_or(usize::MAX).max(1);
        let flush = stream.alloc_zeros::<u8>(flush_bytes).map_err(driver("allocating the flush buffer"))?;
        Ok(Self { gpu, stream, flush, recorder })
    }

    /// The GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// The stream that calls are put on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The name of the timer, as protocols give it.
    pub fn timer(&self) -> &'static str {
        if self.recorder.is_some() { Self::CUPTI } else { Self::EVENTS }
    }

    /// Bytes that are zeroed before each call: twice the second-level cache, several times.
    pub fn flush_bytes(&self) -> usize {
        FILLS * self.flush.len()
    }

    /// Resets what was set to stay in the cache, zeroes twice its size again and again, and times what `call` puts on the stream after that. Waits
    /// for the whole device.
    ///
    /// # Errors
    /// What `call` says, the driver, or CUPTI.
    pub fn time(&self, call: impl FnOnce() -> Result<(), Error>) -> Result<Taken, Error> {
        self.gpu.context().bind_to_thread().map_err(driver("making the context current"))?;
        // SAFETY: the context is current.
        let reset = unsafe { sys::cuCtxResetPersistingL2Cache() };
        reset.result().map_err(driver("resetting the persisting cache"))?;
        self.wait()?;
        match &self.recorder {
            Some(recorder) => self.by_records(recorder, call),
            None => self.by_events(call),
        }
    }

    fn by_records(&self, recorder: &Recorder, call: impl FnOnce() -> Result<(), Error>) -> Result<Taken, Error> {
        recorder.take()?;
        self.empty_caches()?;
        call()?;
        self.wait()?;
        let (time_ns, activities) = span::of_call(&recorder.take()?, (FILLS, self.flush.len() as u64))?;
        Ok(Taken { time_ns, activities: Some(activities) })
    }

    fn by_events(&self, call: impl FnOnce() -> Result<(), Error>) -> Result<Taken, Error> {
        let event =
            || self.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(driver("recording an event"));
        self.empty_caches()?;
        let before = event()?;
        call()?;
        let after = event()?;
        self.wait()?;
        let time_ms = before.elapsed_ms(&after).map_err(driver("reading the events"))?;
        // Not negative, and far below 2^64.
        Ok(Taken { time_ns: (f64::from(time_ms) * 1e6).round() as u64, activities: None })
    }

    /// Waits for everything on the device that this process started.
    pub(crate) fn wait(&self) -> Result<(), Error> {
        self.gpu.context().synchronize().map_err(driver("waiting for the GPU"))
    }

    fn empty_caches(&self) -> Result<(), Error> {
        let (address, _in_use) = self.flush.device_ptr(&self.stream);
        for _ in 0..FILLS {
            // SAFETY: the range is the flush buffer, which nothing else uses.
            let filled = unsafe { result::memset_d8_async(address, 0, self.flush.len(), self.stream.cu_stream()) };
            filled.map_err(driver("zeroing the flush buffer"))?;
        }
        Ok(())
    }
}

//! NVIDIA's CUPTI: the device's own records of what it did and when.
//!
//! The activity interface, of which six functions and the first fields of four records are used. Their places have not moved since
//! CUDA 9 (CUDA Toolkit, `cupti_activity.h`: CUpti_ActivityKernel4 to 13, CUpti_ActivityMemcpy to 7, CUpti_ActivityMemset to
//! 5): time stamps at bytes 16 and 24 of all, bytes at 8 of copies and fills, a kernel's name at 104.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::Library;

use crate::dynamic;
use crate::error::Error;
use crate::span::{Activity, Kind};

const NAMES: [&str; 5] = [
    "libcupti.so.13",
    "libcupti.so.12",
    "libcupti.so",
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
    "/usr/local/cuda/lib64/libcupti.so",
];

const SUCCESS: u32 = 0;
const FLUSH_FORCED: u32 = 1;

/// CUpti_ActivityKind.
const COPY: u32 = 1;
const FILL: u32 = 2;
const KERNEL: u32 = 10;
const PEER_COPY: u32 = 22;

/// Records of a call are a few kilobytes; a buffer that is full is followed by another.
const BUFFER_BYTES: usize = 1 << 20;

const fn buffer_layout() -> Layout {
    match Layout::from_size_align(BUFFER_BYTES, 8) {
        Ok(layout) => layout,
        Err(_) => panic!("the size of a buffer is a power of two"),
    }
}

type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The functions, and the library that holds them.
struct Api {
    flush_all: unsafe extern "C" fn(u32) -> u32,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut c_void) -> u32,
    _library: Library,
}

/// The interface has no user data in its callbacks, so there is one recorder in a process.
static API: OnceLock<Api> = OnceLock::new();
static RECORDS: Mutex<Vec<Activity>> = Mutex::new(Vec::new());
static OPENING: Mutex<()> = Mutex::new(());

/// Records all kernels, copies and fills of this process from now on.
#[derive(Debug)]
pub(crate) struct Recorder(());

impl Recorder {
    /// Begins to record. Graphs that were instantiated before may be missed.
    ///
    /// # Errors
    /// [`Error::Missing`] without CUPTI; [`Error::Library`] when it may not record here.
    pub(crate) fn open() -> Result<Self, Error> {
        let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        if API.get().is_some() {
            return Ok(Self(()));
        }
        // SAFETY: CUPTI's initialisers are safe to run.
        let library = unsafe { dynamic::load("CUPTI", "KERNELPROOF_CUPTI", &NAMES) }?;
        // SAFETY: the type is the function's (cupti_activity.h).
        let register: unsafe extern "C" fn(BufferRequested, BufferCompleted) -> u32 =
            unsafe { symbol(&library, "cuptiActivityRegisterCallbacks") }?;
        // SAFETY: as above.
        let enable: unsafe extern "C" fn(u32) -> u32 = unsafe { symbol(&library, "cuptiActivityEnable") }?;
        // SAFETY: as above.
        let flush_all = unsafe { symbol(&library, "cuptiActivityFlushAll") }?;
        // SAFETY: as above.
        let next_record = unsafe { symbol(&library, "cuptiActivityGetNextRecord") }?;
        // SAFETY: both functions stay valid as long as this process.
        check("cuptiActivityRegisterCallbacks", unsafe { register(requested, completed) })?;
        for kind in [COPY, FILL, KERNEL, PEER_COPY] {
            // SAFETY: any number is allowed.
            check("cuptiActivityEnable", unsafe { enable(kind) })?;
        }
        API.get_or_init(|| Api { flush_all, next_record, _library: library });
        Ok(Self(()))
    }

    /// All that was recorded since it was last asked. The device must have finished what is wanted.
    ///
    /// # Errors
    /// What CUPTI says.
    pub(crate) fn take(&self) -> Result<Vec<Activity>, Error> {
        let Some(api) = API.get() else { return Ok(Vec::new()) };
        // SAFETY: callable at any time; it calls `completed` for what is there.
        check("cuptiActivityFlushAll", unsafe { (api.flush_all)(FLUSH_FORCED) })?;
        Ok(std::mem::take(&mut *RECORDS.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Looks a function up.
///
/// # Safety
/// `Function` is its type.
unsafe fn symbol<Function: Copy>(library: &Library, name: &'static str) -> Result<Function, Error> {
    // SAFETY: the caller answers for the type; the copy is used only while the library is loaded, which is for good.
    let found = unsafe { library.get::<Function>(name) };
    found.map(|found| *found).map_err(|_| Error::Missing { library: "CUPTI", looked_for: name.to_owned() })
}

fn check(call: &'static str, code: u32) -> Result<(), Error> {
    if code == SUCCESS { Ok(()) } else { Err(Error::Library { library: "CUPTI", call, code }) }
}

/// CUPTI wants a buffer.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most_records: *mut usize) {
    // SAFETY: the size is not zero.
    let memory = unsafe { alloc(buffer_layout()) };
    // SAFETY: CUPTI passes places for its answers. Without memory it gets none and drops records.
    unsafe { buffer.write(memory) };
    // SAFETY: as above.
    unsafe { size.write(if memory.is_null() { 0 } else { BUFFER_BYTES }) };
    // SAFETY: as above; 0 means as many as fit.
    unsafe { most_records.write(0) };
}

/// CUPTI gives a buffer back.
unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid_bytes: usize) {
    if buffer.is_null() {
        return;
    }
    if let Some(api) = API.get() {
        let mut record = std::ptr::null_mut();
        // Until the end of the buffer, or an error, which shows as a record that is missing.
        // SAFETY: the buffer is what CUPTI gave, `record` null or its last answer.
        while let SUCCESS = unsafe { (api.next_record)(buffer, valid_bytes, &raw mut record) } {
            // SAFETY: CUPTI says that a record is there.
            keep(unsafe { read(record.cast()) });
        }
    }
    // SAFETY: it came from `requested`, with the same layout.
    unsafe { dealloc(buffer, buffer_layout()) };
}

fn keep(activity: Option<Activity>) {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner).extend(activity);
}

/// Reads one record; `None` for kinds that nobody asked for.
///
/// # Safety
/// `record` is at the beginning of a record that CUPTI made.
unsafe fn read(record: *const u8) -> Option<Activity> {
    // SAFETY: every record begins with its kind.
    let code = unsafe { at::<u32>(record, 0) };
    let kind = match code {
        KERNEL => Kind::Kernel,
        COPY | PEER_COPY => Kind::Copy,
        FILL => Kind::Fill,
        _ => return None,
    };
    // SAFETY: all these records have their time stamps there.
    let start_ns = unsafe { at::<u64>(record, 16) };
    // SAFETY: as above.
    let end_ns = unsafe { at::<u64>(record, 24) };
    let name = match kind {
        Kind::Kernel => {
            // SAFETY: a kernel's record has a pointer to its name there.
            let name = unsafe { at::<*const c_char>(record, 104) };
            // SAFETY: CUPTI's names end with a zero.
            unsafe { text(name) }
        }
        // SAFETY: the record of a copy has its direction there.
        Kind::Copy => direction(unsafe { at::<u8>(record, 4) }).to_owned(),
        Kind::Fill => String::new(),
    };
    let bytes = match kind {
        Kind::Kernel => 0,
        // SAFETY: the records of copies and fills have their bytes there.
        Kind::Copy | Kind::Fill => unsafe { at::<u64>(record, 8) },
    };
    Some(Activity { kind, name, bytes, start_ns, end_ns })
}

/// # Safety
/// `offset` bytes into the record there is a `T`.
unsafe fn at<T: Copy>(record: *const u8, offset: usize) -> T {
    // SAFETY: the caller answers for place and type.
    let place = unsafe { record.add(offset) };
    // SAFETY: as above; records are aligned to 8 bytes, which is not relied on.
    unsafe { place.cast::<T>().read_unaligned() }
}

/// # Safety
/// `name` is null or ends with a zero.
unsafe fn text(name: *const c_char) -> String {
    if name.is_null() {
        return "a kernel without a name".to_owned();
    }
    // SAFETY: the caller answers for it.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// CUpti_ActivityMemcpyKind.
fn direction(code: u8) -> &'static str {
    match code {
        1 => "HtoD",
        2 => "DtoH",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "otherwise",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(code: u32, fill: impl FnOnce(&mut [u8; 144])) -> [u8; 144] {
        let mut bytes = [0; 144];
        bytes[..4].copy_from_slice(&code.to_le_bytes());
        bytes[16..24].copy_from_slice(&1000_u64.to_le_bytes());
        bytes[24..32].copy_from_slice(&1500_u64.to_le_bytes());
        fill(&mut bytes);
        bytes
    }

    #[test]
    fn records_are_read_as_the_header_lays_them_out() {
        let name = c"prep_entry";
        let kernel = record(KERNEL, |bytes| bytes[104..112].copy_from_slice(&(name.as_ptr() as u64).to_le_bytes()));
        // SAFETY: the record has the fields of a kernel, whose name lives.
        let kernel = unsafe { read(kernel.as_ptr()) }.expect("a kernel");
        assert_eq!((kernel.what().as_str(), kernel.start_ns, kernel.end_ns), ("prep_entry", 1000, 1500));
        let copy = record(COPY, |bytes| {
            bytes[4] = 8;
            bytes[8..16].copy_from_slice(&64_u64.to_le_bytes());
        });
        // SAFETY: the record has the fields of a copy.
        let copy = unsafe { read(copy.as_ptr()) }.expect("a copy");
        assert_eq!(copy.what(), "copy of 64 bytes DtoD");
        let fill = record(FILL, |bytes| bytes[8..16].copy_from_slice(&32_u64.to_le_bytes()));
        // SAFETY: the record has the fields of a fill.
        assert_eq!(unsafe { read(fill.as_ptr()) }.expect("a fill").what(), "fill of 32 bytes");
        // SAFETY: every record begins with its kind.
        assert_eq!(unsafe { read(record(17, |_| {}).as_ptr()) }, None);
    }

    #[test]
    fn a_buffer_is_given_and_taken_back() {
        let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 1);
        // SAFETY: the places are there.
        unsafe { requested(&raw mut buffer, &raw mut size, &raw mut most) };
        assert!(!buffer.is_null() && (size, most) == (BUFFER_BYTES, 0));
        // SAFETY: it is the buffer from above, with nothing in it.
        unsafe { completed(std::ptr::null_mut(), 0, buffer, size, 0) };
    }
}

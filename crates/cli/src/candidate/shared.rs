//! Memory that a worker process sees too.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use memmap2::MmapMut;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// A block of f32 elements without a name in any file system: nothing is left of it, however either process ends.
#[derive(Debug)]
pub(super) struct Shared {
    file: File,
    map: MmapMut,
}

impl Shared {
    /// A block of zeros.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(len_elems: usize) -> std::io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("kernelproof", flags)?);
        // An empty mapping is refused.
        ftruncate(&file, (len_elems * size_of::<f32>()).max(1) as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: the file cannot shrink, which its seals promise. The other process writes to it too, but `External`
        // gives the memory out only while that process is stopped, and any bytes are valid f32 elements.
        let map = unsafe { MmapMut::map_mut(&file) }?;
        Ok(Self { file, map })
    }

    /// Where a child of this process finds it.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.map.len()
    }

    pub(super) fn elems(&mut self) -> &mut [f32] {
        let whole = self.map.len() / size_of::<f32>() * size_of::<f32>();
        bytemuck::cast_slice_mut(&mut self.map[..whole])
    }
}

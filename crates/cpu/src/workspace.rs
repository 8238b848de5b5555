//! The memory of a session: one anonymous mapping, cut into regions.

use memmap2::MmapMut;

/// A region of the workspace that several threads write at once, in pieces that the caller keeps disjoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    base: *mut f32,
    len_elems: usize,
}

// SAFETY: a Region is an address; every use of it is unsafe and states why the piece is not shared.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The address of `len_elems` elements from `offset_elems`.
    ///
    /// # Panics
    /// When the piece is not inside the region.
    pub(crate) fn piece(self, offset_elems: usize, len_elems: usize) -> *mut f32 {
        let end = offset_elems.checked_add(len_elems);
        assert!(end.is_some_and(|end| end <= self.len_elems), "a piece outside its region of the workspace");
        self.base.wrapping_add(offset_elems)
    }
}

/// Zeroed memory in regions that start on cache-line boundaries.
#[derive(Debug)]
pub(crate) struct Workspace {
    map: MmapMut,
    regions: Vec<std::ops::Range<usize>>,
}

const LINE_ELEMS: usize = 16;

impl Workspace {
    /// Maps regions of the given lengths in elements. Pages are touched, and so use memory, when first written.
    pub(crate) fn new(lens_elems: &[usize]) -> std::io::Result<Self> {
        let mut regions = Vec::with_capacity(lens_elems.len());
        let mut end = 0;
        for &len in lens_elems {
            regions.push(end..end + len);
            end = (end + len).next_multiple_of(LINE_ELEMS);
        }
        let map = MmapMut::map_anon((end * size_of::<f32>()).max(1))?;
        // Large pages spare the packed blocks most TLB misses; where the kernel has none to give, nothing is lost.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, regions })
    }

    /// The regions, in the order in which they were asked for. The borrow keeps the mapping alive and unshared.
    pub(crate) fn regions(&mut self) -> Vec<Region> {
        let base: *mut f32 = self.map.as_mut_ptr().cast();
        self.regions
            .iter()
            .map(|range| Region { base: base.wrapping_add(range.start), len_elems: range.len() })
            .collect()
    }
}

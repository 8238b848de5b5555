//! Strided windows on f32 memory: what a framework's tensor looks like from here.

use std::marker::PhantomData;

use crate::error::Error;

/// A read-only tensor of `RANK` dimensions. Leading strides are free (0 expands a dimension); the last dimension is
/// contiguous. Alignment beyond that of `f32` is never assumed.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, const RANK: usize> {
    base: *const f32,
    layout: Layout<RANK>,
    memory: PhantomData<&'a [f32]>,
}

/// A tensor to write. As [`View`], and no two indices may name the same element.
#[derive(Debug)]
pub struct ViewMut<'a, const RANK: usize> {
    base: *mut f32,
    layout: Layout<RANK>,
    memory: PhantomData<&'a mut [f32]>,
}

// SAFETY: a View is a shared borrow of plain f32 memory, as &[f32] is.
unsafe impl<const RANK: usize> Send for View<'_, RANK> {}
// SAFETY: as above.
unsafe impl<const RANK: usize> Sync for View<'_, RANK> {}
// SAFETY: a ViewMut is an exclusive borrow of plain f32 memory, as &mut [f32] is.
unsafe impl<const RANK: usize> Send for ViewMut<'_, RANK> {}
// SAFETY: nothing is written through a shared ViewMut.
unsafe impl<const RANK: usize> Sync for ViewMut<'_, RANK> {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout<const RANK: usize> {
    shape: [usize; RANK],
    strides: [usize; RANK],
}

impl<const RANK: usize> Layout<RANK> {
    fn contiguous(shape: [usize; RANK]) -> Self {
        let mut strides = [1_usize; RANK];
        for dim in (1..RANK).rev() {
            strides[dim - 1] = strides[dim].saturating_mul(shape[dim]);
        }
        Self { shape, strides }
    }

    fn checked(shape: [usize; RANK], strides: [usize; RANK]) -> Result<Self, Error> {
        if let (Some(&extent), Some(&stride)) = (shape.last(), strides.last())
            && extent > 1
            && stride != 1
        {
            return Err(Error::LastDimStride { shape: shape.to_vec(), stride });
        }
        Ok(Self { shape, strides })
    }

    /// Elements from the first to one past the last, 0 when the tensor is empty.
    fn span_elems(&self) -> u128 {
        if self.shape.contains(&0) {
            return 0;
        }
        let reach = self.shape.iter().zip(self.strides).map(|(&extent, stride)| (extent as u128 - 1) * stride as u128);
        reach.sum::<u128>() + 1
    }

    fn fits(&self, found: usize) -> Result<(), Error> {
        let needed = self.span_elems();
        if needed > found as u128 {
            let (shape, strides) = (self.shape.to_vec(), self.strides.to_vec());
            return Err(Error::Bounds { shape, strides, needed, found });
        }
        Ok(())
    }

    /// Whether distinct indices are known to name distinct elements: each stride reaches past all that smaller
    /// strides span. Stricter than needed for exotic layouts, exact for slices, transposes and expansions.
    fn injective(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut dims: Vec<(usize, usize)> =
            self.strides.iter().copied().zip(self.shape).filter(|&(_, extent)| extent > 1).collect();
        dims.sort_unstable();
        let mut reach = 0u128;
        for (stride, extent) in dims {
            if (stride as u128) <= reach {
                return false;
            }
            reach += (extent as u128 - 1) * stride as u128;
        }
        true
    }

    /// The leading indices of row `row` of a densely packed tensor; the last element is unused.
    fn leading(&self, mut row: usize) -> [usize; RANK] {
        let mut indices = [0; RANK];
        for dim in (0..RANK - 1).rev() {
            indices[dim] = row % self.shape[dim];
            row /= self.shape[dim];
        }
        indices
    }

    fn offset(&self, leading: &[usize]) -> usize {
        assert_eq!(leading.len() + 1, RANK, "a row is named by all indices but the last");
        let mut offset = 0;
        for ((&index, &extent), &stride) in leading.iter().zip(&self.shape).zip(&self.strides) {
            assert!(index < extent, "index {index} in a dimension of {extent}");
            offset += index * stride;
        }
        offset
    }
}

impl<'a, const RANK: usize> View<'a, RANK> {
    /// A view of `data` with strides in elements, outermost first.
    ///
    /// # Errors
    /// [`Error::Bounds`] when it reaches past `data`, [`Error::LastDimStride`] when rows are not contiguous.
    pub fn new(data: &'a [f32], shape: [usize; RANK], strides: [usize; RANK]) -> Result<Self, Error> {
        let layout = Layout::checked(shape, strides)?;
        layout.fits(data.len())?;
        Ok(Self { base: data.as_ptr(), layout, memory: PhantomData })
    }

    /// A view of densely packed row-major `data`.
    ///
    /// # Errors
    /// [`Error::Bounds`] when `data` is too short.
    pub fn contiguous(data: &'a [f32], shape: [usize; RANK]) -> Result<Self, Error> {
        let layout = Layout::contiguous(shape);
        layout.fits(data.len())?;
        Ok(Self { base: data.as_ptr(), layout, memory: PhantomData })
    }

    /// A view of memory that a framework or C caller owns.
    ///
    /// # Errors
    /// [`Error::LastDimStride`] when rows are not contiguous.
    ///
    /// # Safety
    /// Every element that shape and strides reach from `base` must be initialised, 4-byte aligned, readable and
    /// unwritten by others for `'a`. `base` may dangle when the tensor is empty.
    pub unsafe fn from_raw_parts(
        base: *const f32,
        shape: [usize; RANK],
        strides: [usize; RANK],
    ) -> Result<Self, Error> {
        Ok(Self { base, layout: Layout::checked(shape, strides)?, memory: PhantomData })
    }

    /// The contiguous last dimension at the given leading indices.
    ///
    /// # Panics
    /// When an index is out of range.
    pub fn row(&self, leading: &[usize]) -> &'a [f32] {
        let offset = self.layout.offset(leading);
        let len = self.layout.shape[RANK - 1];
        if len == 0 {
            return &[];
        }
        // SAFETY: `offset` asserted the indices; the constructor established that all of the shape is readable for 'a.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: as above: `len` elements from `start` are inside the shape.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// All rows, in the order of a densely packed tensor.
    pub fn rows(&self) -> impl Iterator<Item = &'a [f32]> + use<'a, RANK> {
        let view = *self;
        let leading = view.layout.shape[..RANK - 1].iter().product();
        (0..leading).map(move |row| view.row(&view.layout.leading(row)[..RANK - 1]))
    }

    /// Address of the first element.
    pub fn as_ptr(&self) -> *const f32 {
        self.base
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> [usize; RANK] {
        self.layout.shape
    }

    /// Distances between neighbours, in elements, outermost first.
    pub fn strides(&self) -> [usize; RANK] {
        self.layout.strides
    }

    /// The addresses between the first element and one past the last; empty when the tensor is.
    pub fn address_range(&self) -> std::ops::Range<usize> {
        address_range(self.base, &self.layout)
    }
}

impl<'a, const RANK: usize> ViewMut<'a, RANK> {
    /// A view of `data` with strides in elements, outermost first.
    ///
    /// # Errors
    /// [`Error::Bounds`] when it reaches past `data`, [`Error::LastDimStride`] when rows are not contiguous,
    /// [`Error::SelfOverlap`] when two indices share an element.
    pub fn new(data: &'a mut [f32], shape: [usize; RANK], strides: [usize; RANK]) -> Result<Self, Error> {
        let layout = Layout::checked(shape, strides)?;
        layout.fits(data.len())?;
        Self::from_layout(data.as_mut_ptr(), layout)
    }

    /// A view of densely packed row-major `data`.
    ///
    /// # Errors
    /// [`Error::Bounds`] when `data` is too short.
    pub fn contiguous(data: &'a mut [f32], shape: [usize; RANK]) -> Result<Self, Error> {
        let layout = Layout::contiguous(shape);
        layout.fits(data.len())?;
        Self::from_layout(data.as_mut_ptr(), layout)
    }

    /// A view of memory that a framework or C caller owns.
    ///
    /// # Errors
    /// As [`ViewMut::new`], without the bounds, which the caller promises.
    ///
    /// # Safety
    /// Every element that shape and strides reach from `base` must be 4-byte aligned, initialised, writable and
    /// touched by nobody else for `'a`. `base` may dangle when the tensor is empty.
    pub unsafe fn from_raw_parts(base: *mut f32, shape: [usize; RANK], strides: [usize; RANK]) -> Result<Self, Error> {
        Self::from_layout(base, Layout::checked(shape, strides)?)
    }

    fn from_layout(base: *mut f32, layout: Layout<RANK>) -> Result<Self, Error> {
        if !layout.injective() {
            return Err(Error::SelfOverlap { shape: layout.shape.to_vec(), strides: layout.strides.to_vec() });
        }
        Ok(Self { base, layout, memory: PhantomData })
    }

    /// The contiguous last dimension at the given leading indices.
    ///
    /// # Panics
    /// When an index is out of range.
    pub fn row_mut(&mut self, leading: &[usize]) -> &mut [f32] {
        let offset = self.layout.offset(leading);
        let len = self.layout.shape[RANK - 1];
        if len == 0 {
            return &mut [];
        }
        // SAFETY: `offset` asserted the indices; the constructor established that all of the shape is writable for 'a.
        let start = unsafe { self.base.add(offset) };
        // SAFETY: as above, and &mut self makes this the only row handed out.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// A shorter-lived view of the same tensor.
    pub fn reborrow(&mut self) -> ViewMut<'_, RANK> {
        ViewMut { base: self.base, layout: self.layout, memory: PhantomData }
    }

    /// Address of the first element.
    pub fn as_mut_ptr(&mut self) -> *mut f32 {
        self.base
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> [usize; RANK] {
        self.layout.shape
    }

    /// Distances between neighbours, in elements, outermost first.
    pub fn strides(&self) -> [usize; RANK] {
        self.layout.strides
    }

    /// The addresses between the first element and one past the last; empty when the tensor is.
    pub fn address_range(&self) -> std::ops::Range<usize> {
        address_range(self.base, &self.layout)
    }
}

fn address_range<const RANK: usize>(base: *const f32, layout: &Layout<RANK>) -> std::ops::Range<usize> {
    let start = base.addr();
    let bytes = layout.span_elems().saturating_mul(size_of::<f32>() as u128);
    start..start.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX))
}

//! The two crates behind one pair of safe functions over row-major matrices.

use std::num::NonZeroUsize;

/// Threads that `matrixmultiply` can use at most.
const MATRIXMULTIPLY_THREADS: usize = 4;

/// A crate that multiplies matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Product {
    /// The crate `gemm`, with its AVX-512 path.
    Gemm,
    /// The crate `matrixmultiply`.
    Matrixmultiply,
}

/// A row-major matrix, or its transpose read in place.
#[derive(Clone, Copy)]
struct Matrix<'a> {
    data: &'a [f32],
    row_stride: isize,
    column_stride: isize,
}

impl<'a> Matrix<'a> {
    fn row_major(data: &'a [f32], [rows, columns]: [usize; 2]) -> Self {
        assert_eq!(data.len(), rows * columns, "a matrix has as many elements as its shape says");
        Self { data, row_stride: signed(columns), column_stride: 1 }
    }

    fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }
}

impl Product {
    /// The crate's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Matrixmultiply => "matrixmultiply",
        }
    }

    /// The version that the workspace asks for.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Gemm => "0.19",
            Self::Matrixmultiply => "0.3",
        }
    }

    /// Threads that it uses where `threads` are offered.
    pub(crate) fn threads(self, threads: usize) -> usize {
        match self {
            Self::Gemm => threads,
            Self::Matrixmultiply => threads.min(MATRIXMULTIPLY_THREADS),
        }
    }

    /// target (m x n) = left (m x k) · right (k x n), with sizes `[m, k, n]`.
    ///
    /// # Panics
    /// When a slice has another length than its shape.
    pub(crate) fn multiply(self, sizes: [usize; 3], left: &[f32], right: &[f32], target: &mut [f32]) {
        let [m, k, _] = sizes;
        self.product(sizes, Matrix::row_major(left, [m, k]), right, target);
    }

    /// target (m x n) = leftᵀ (m x k) · right (k x n), with sizes `[m, k, n]` and `left` stored as k x m.
    ///
    /// # Panics
    /// When a slice has another length than its shape.
    pub(crate) fn multiply_transposed(self, sizes: [usize; 3], left: &[f32], right: &[f32], target: &mut [f32]) {
        let [m, k, _] = sizes;
        self.product(sizes, Matrix::row_major(left, [k, m]).transposed(), right, target);
    }

    fn product(self, [m, k, n]: [usize; 3], left: Matrix<'_>, right: &[f32], target: &mut [f32]) {
        let right = Matrix::row_major(right, [k, n]);
        assert_eq!(target.len(), m * n, "a matrix has as many elements as its shape says");
        match self {
            Self::Gemm => gemm_crate([m, k, n], left, right, target),
            Self::Matrixmultiply => matrixmultiply_crate([m, k, n], left, right, target),
        }
    }
}

fn gemm_crate([m, k, n]: [usize; 3], left: Matrix<'_>, right: Matrix<'_>, target: &mut [f32]) {
    // SAFETY: lengths were asserted against the shapes by `row_major` and `product`, and strides are those shapes';
    // `target` is borrowed exclusively.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            target.as_mut_ptr(),
            1,
            signed(n),
            false,
            left.data.as_ptr(),
            left.column_stride,
            left.row_stride,
            right.data.as_ptr(),
            right.column_stride,
            right.row_stride,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::Rayon(rayon::current_num_threads()),
        );
    }
}

fn matrixmultiply_crate([m, k, n]: [usize; 3], left: Matrix<'_>, right: Matrix<'_>, target: &mut [f32]) {
    // SAFETY: lengths were asserted against the shapes by `row_major` and `product`, and strides are those shapes';
    // `target` is borrowed exclusively, and with beta = 0 it is not read.
    unsafe {
        matrixmultiply::sgemm(
            m,
            k,
            n,
            1.0,
            left.data.as_ptr(),
            left.row_stride,
            left.column_stride,
            right.data.as_ptr(),
            right.row_stride,
            right.column_stride,
            0.0,
            target.as_mut_ptr(),
            signed(n),
            1,
        );
    }
}

fn signed(extent: usize) -> isize {
    isize::try_from(extent).expect("extents of an allocated matrix fit")
}

/// Tells `matrixmultiply` how many threads to use; it reads its environment variable at its first product.
///
/// # Safety
/// No other thread may exist.
pub(crate) unsafe fn set_matrixmultiply_threads(threads: NonZeroUsize) {
    // SAFETY: the caller promises that nobody else reads the environment meanwhile.
    unsafe { std::env::set_var("MATMUL_NUM_THREADS", threads.to_string()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_crates_multiply_as_written_on_paper() {
        let left = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        for product in [Product::Gemm, Product::Matrixmultiply] {
            let mut target = [f32::NAN; 4];
            product.multiply([2, 3, 2], &left, &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0], &mut target);
            assert_eq!(target, [4.0, 5.0, 10.0, 11.0], "{}", product.name());
            let mut target = [f32::NAN; 3];
            product.multiply_transposed([3, 2, 1], &left, &[1.0, 10.0], &mut target);
            assert_eq!(target, [41.0, 52.0, 63.0], "{}", product.name());
        }
    }
}

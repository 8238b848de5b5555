//! The gradients, the tables and U as tensors of heads, tokens, the two elements of a pair, and pairs.

#[cutile::module]
pub mod views {
    use crate::words::words::*;
    use cutile::core::*;

    /// f32 `[heads, seq, 2, half]` of one batch entry.
    pub unsafe fn heads_view<const EL: i32, const BY: i32>(
        base: *mut f32, batch: i32, batch_stride: i64, heads: i32, seq: i32, half: i32, head_stride: i32, seq_stride: i32,
    ) -> Tensor<f32, { [-1, -1, 2, -1] }> {
        let half: i32 = unsafe { assume_div_by::<_, EL>(half) };
        let head_stride: i32 = unsafe { assume_div_by::<_, EL>(head_stride) };
        let seq_stride: i32 = unsafe { assume_div_by::<_, EL>(seq_stride) };
        let base: PointerTile<*mut f32, { [] }> = at::<f32>(base, batch, batch_stride);
        let base: PointerTile<*mut f32, { [] }> = unsafe { assume_div_by::<_, BY>(base) };
        let shape: Shape<{ [-1, -1, 2, -1] }> = Shape::<{ [-1, -1, 2, -1] }> { dims: &[heads, seq, half] };
        let strides: Array<{ [-1, -1, -1, 1] }> =
            Array::<{ [-1, -1, -1, 1] }> { dims: &[head_stride, seq_stride, half] };
        unsafe { make_tensor_view(base, shape, strides, new_token_unordered()) }
    }

    /// fp16 `[heads, seq, 2, half]` inside the rows of U that belong to one batch entry.
    pub unsafe fn u_view<const H16: i32>(
        u: *mut f16, batch: i32, batch_stride: i64, column: i32, heads: i32, seq: i32, half: i32, pitch: i32,
    ) -> Tensor<f16, { [-1, -1, 2, -1] }> {
        let half: i32 = unsafe { assume_div_by::<_, H16>(half) };
        let pitch: i32 = unsafe { assume_div_by::<_, 64>(pitch) };
        let base: PointerTile<*mut f16, { [] }> = at::<f16>(u, batch, batch_stride);
        let base: PointerTile<*mut f16, { [] }> = addptr(base, column);
        let base: PointerTile<*mut f16, { [] }> = unsafe { assume_div_by::<_, 8>(base) };
        let shape: Shape<{ [-1, -1, 2, -1] }> = Shape::<{ [-1, -1, 2, -1] }> { dims: &[heads, seq, half] };
        let strides: Array<{ [-1, -1, -1, 1] }> =
            Array::<{ [-1, -1, -1, 1] }> { dims: &[half + half, pitch, half] };
        unsafe { make_tensor_view(base, shape, strides, new_token_unordered()) }
    }

    /// f32 `[heads, seq, 2, pairs]` of one batch entry: both elements of every pair, whichever way heads are paired.
    pub unsafe fn pairs_view<const LANE: i32>(
        base: *mut f32, batch: i32, batch_stride: i64, column: i32, heads: i32, seq: i32, pairs: i32,
        head_stride: i32, seq_stride: i32, mate: i32,
    ) -> Tensor<f32, { [-1, -1, 2, -1] }> {
        let base: PointerTile<*mut f32, { [] }> = at::<f32>(base, batch, batch_stride);
        let base: PointerTile<*mut f32, { [] }> = addptr(base, column);
        let shape: Shape<{ [-1, -1, 2, -1] }> = Shape::<{ [-1, -1, 2, -1] }> { dims: &[heads, seq, pairs] };
        let strides: Array<{ [-1, -1, -1, LANE] }> =
            Array::<{ [-1, -1, -1, LANE] }> { dims: &[head_stride, seq_stride, mate] };
        unsafe { make_tensor_view(base, shape, strides, new_token_unordered()) }
    }

    /// The same of fp16 U.
    pub unsafe fn u_pairs_view<const LANE: i32>(
        u: *mut f16, batch: i32, batch_stride: i64, column: i32, heads: i32, seq: i32, pairs: i32, head_dim: i32,
        pitch: i32, mate: i32,
    ) -> Tensor<f16, { [-1, -1, 2, -1] }> {
        let base: PointerTile<*mut f16, { [] }> = at::<f16>(u, batch, batch_stride);
        let base: PointerTile<*mut f16, { [] }> = addptr(base, column);
        let shape: Shape<{ [-1, -1, 2, -1] }> = Shape::<{ [-1, -1, 2, -1] }> { dims: &[heads, seq, pairs] };
        let strides: Array<{ [-1, -1, -1, LANE] }> =
            Array::<{ [-1, -1, -1, LANE] }> { dims: &[head_dim, pitch, mate] };
        unsafe { make_tensor_view(base, shape, strides, new_token_unordered()) }
    }

    /// Elements of U that belong to one batch entry.
    pub fn u_stride(seq: i32, pitch: i32) -> i64 {
        let seq: Tile<i32, { [] }> = scalar_to_tile(seq);
        let seq: Tile<i64, { [] }> = exti(seq);
        let pitch: Tile<i32, { [] }> = scalar_to_tile(pitch);
        let pitch: Tile<i64, { [] }> = exti(pitch);
        tile_to_scalar(seq * pitch)
    }
}

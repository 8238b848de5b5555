//! What every kernel needs: words of tables, and powers of two.

#[cutile::module]
pub mod words {
    use cutile::core::*;

    /// One word of a table in global memory.
    ///
    /// # Safety
    /// `table[index]` is readable, and not written by this launch.
    pub unsafe fn word(table: *mut i32, index: i32) -> i32 {
        let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(table);
        let at: PointerTile<*mut i32, { [] }> = addptr(base, index);
        let (value, _done): (Tile<i32, { [] }>, Token) = unsafe {
            load_ptr_tko(at, ordering::Weak, None::<scope::TileBlock>, None, None, None, Latency::<0>)
        };
        tile_to_scalar(value)
    }

    /// Sets one word of a table in global memory.
    ///
    /// # Safety
    /// `table[index]` is writable, and no other program touches it in this launch.
    pub unsafe fn set_word(table: *mut i32, index: i32, value: i32) {
        let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(table);
        let at: PointerTile<*mut i32, { [] }> = addptr(base, index);
        let value: Tile<i32, { [] }> = scalar_to_tile(value);
        let _done: Token = unsafe {
            store_ptr_tko(at, value, ordering::Weak, None::<scope::TileBlock>, None, None, Latency::<0>)
        };
    }

    /// Stores tile `t` of the `count` words from `first`.
    ///
    /// # Safety
    /// They are writable, and no other program touches this tile of them in this launch.
    pub unsafe fn set_words<const N: i32>(
        table: *mut i32, first: i32, count: i32, t: i32, value: Tile<i32, { [N] }>,
    ) {
        let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(table);
        let base: PointerTile<*mut i32, { [] }> = addptr(base, first);
        let shape: Shape<{ [-1] }> = Shape::<{ [-1] }> { dims: &[count] };
        let strides: Array<{ [1] }> = Array::<{ [1] }> { dims: &[] };
        let view: Tensor<i32, { [-1] }> = unsafe { make_tensor_view(base, shape, strides, new_token_unordered()) };
        let mut tiles: PartitionMut<i32, { [N] }> = unsafe { view.partition_full_mut(shape![N]) };
        let _done: Token = unsafe {
            store_view_tko_mut(&mut tiles, value, [t], ordering::Weak, scope::TileBlock, None, tma::Disabled)
        };
    }

    /// `base + index * stride`, all in 64 bits.
    pub fn at<E: ElementType>(base: *mut E, index: i32, stride: i64) -> PointerTile<*mut E, { [] }> {
        let index: Tile<i32, { [] }> = scalar_to_tile(index);
        let index: Tile<i64, { [] }> = exti(index);
        let stride: Tile<i64, { [] }> = scalar_to_tile(stride);
        let base: PointerTile<*mut E, { [] }> = pointer_to_tile(base);
        addptr_tile(base, index * stride)
    }

    /// The f32 2^e, for e in -126..=127.
    pub fn exp2i<const N: i32>(e: Tile<i32, { [N] }>) -> Tile<f32, { [N] }> {
        let bias: Tile<i32, { [N] }> = broadcast_scalar(127i32, shape![N]);
        let unit: Tile<i32, { [N] }> = broadcast_scalar(8388608i32, shape![N]);
        bitcast((e + bias) * unit)
    }

    /// Two factors whose product is 2^e, for e in -252..=252, which one f32 cannot hold.
    pub fn factors<const N: i32>(e: Tile<i32, { [N] }>) -> (Tile<f32, { [N] }>, Tile<f32, { [N] }>) {
        let half: Tile<i32, { [N] }> = shri(e, broadcast_scalar(1i32, shape![N]));
        let first: Tile<f32, { [N] }> = exp2i::<N>(half);
        let second: Tile<f32, { [N] }> = exp2i::<N>(e - half);
        (first, second)
    }

    /// floor(log2(x)) of finite x > 0, -127 for 0 and denormals.
    pub fn exponent<const N: i32>(x: Tile<f32, { [N] }>) -> Tile<i32, { [N] }> {
        let bits: Tile<i32, { [N] }> = bitcast(x);
        let biased: Tile<i32, { [N] }> = shri(bits, broadcast_scalar(23i32, shape![N]));
        biased - broadcast_scalar(127i32, shape![N])
    }
}

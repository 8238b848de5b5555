//! What the product kernel could not store itself: sums of partial tiles, in order, and outputs that are accumulated
//! into or whose rows are not aligned.
//!
//! Task, 10 words: first scratch slot, slots, destination (0 dX, 1..=3 dWq, dWk, dWv), batch index, row in the batch
//! (or in the weight), rows, first row in the slot, first column in the destination, columns, accumulate.

#[cutile::module]
pub mod finish {
    use crate::words::words::*;
    use cutile::core::*;

    #[cutile::entry()]
    pub unsafe fn finish<const R: i32, const C: i32, const SLOT: i32, const EL: i32, const BY: i32>(
        tasks: *mut i32,
        scratch: *mut f32,
        hidden: *mut f32,
        q: *mut f32,
        k: *mut f32,
        v: *mut f32,
        hidden_b: i64,
        hidden_s: i32,
        q_s: i32,
        k_s: i32,
        v_s: i32,
    ) {
        let ready: Token = new_token_unordered();
        let pid: (i32, i32, i32) = get_tile_block_id();
        let task: i32 = pid.0 * 10i32;
        let slot: i32 = unsafe { word(tasks, task) };
        let slots: i32 = unsafe { word(tasks, task + 1i32) };
        let dest: i32 = unsafe { word(tasks, task + 2i32) };
        let batch: i32 = unsafe { word(tasks, task + 3i32) };
        let row: i32 = unsafe { word(tasks, task + 4i32) };
        let rows: i32 = unsafe { word(tasks, task + 5i32) };
        let slot_row: i32 = unsafe { word(tasks, task + 6i32) };
        let col: i32 = unsafe { word(tasks, task + 7i32) };
        let cols: i32 = unsafe { word(tasks, task + 8i32) };
        let accumulate: i32 = unsafe { word(tasks, task + 9i32) };
        let cols: i32 = unsafe { assume_div_by::<_, EL>(cols) };
        let mut base: PointerTile<*mut f32, { [] }> = at::<f32>(hidden, batch, hidden_b);
        let mut pitch: i32 = hidden_s;
        if dest == 1i32 {
            base = pointer_to_tile(q);
            pitch = q_s;
        }
        if dest == 2i32 {
            base = pointer_to_tile(k);
            pitch = k_s;
        }
        if dest == 3i32 {
            base = pointer_to_tile(v);
            pitch = v_s;
        }
        let row_t: Tile<i32, { [] }> = scalar_to_tile(row);
        let row_t: Tile<i64, { [] }> = exti(row_t);
        let pitch_t: Tile<i32, { [] }> = scalar_to_tile(pitch);
        let pitch_t: Tile<i64, { [] }> = exti(pitch_t);
        let base: PointerTile<*mut f32, { [] }> = addptr_tile(base, row_t * pitch_t);
        let base: PointerTile<*mut f32, { [] }> = addptr(base, col);
        let base: PointerTile<*mut f32, { [] }> = unsafe { assume_div_by::<_, BY>(base) };
        let pitch: i32 = unsafe { assume_div_by::<_, EL>(pitch) };
        let shape: Shape<{ [-1, -1] }> = Shape::<{ [-1, -1] }> { dims: &[rows, cols] };
        let strides: Array<{ [-1, 1] }> = Array::<{ [-1, 1] }> { dims: &[pitch] };
        let view: Tensor<f32, { [-1, -1] }> =
            unsafe { make_tensor_view(base, shape, strides, new_token_unordered()) };
        let mut tiles: PartitionMut<f32, { [R, C] }> = unsafe { view.partition_full_mut(shape![R, C]) };

        // The first part is taken as it is: adding it to zero would lose the sign of its zeros, and a tile of one part must
        // have the bits that the product kernel would have stored.
        let mut sum: Tile<f32, { [R, C] }> = unsafe { part::<R, C, SLOT>(scratch, slot, slot_row, ready) };
        for index in 1i32..slots {
            let value: Tile<f32, { [R, C] }> = unsafe { part::<R, C, SLOT>(scratch, slot + index, slot_row, ready) };
            sum = sum + value;
        }
        if accumulate == 1i32 {
            let old: Tile<f32, { [R, C] }> = unsafe {
                load_view_tko_mut(&tiles, [0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled)
            };
            sum = old + sum;
        }
        let _stored: Token = unsafe {
            store_view_tko_mut(&mut tiles, sum, [0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled)
        };
    }

    /// Rows of one partial tile.
    unsafe fn part<const R: i32, const C: i32, const SLOT: i32>(
        scratch: *mut f32, slot: i32, slot_row: i32, ready: Token,
    ) -> Tile<f32, { [R, C] }> {
        let from: PointerTile<*mut f32, { [] }> = slot_base::<SLOT>(scratch, slot);
        let from: PointerTile<*mut f32, { [] }> = addptr(from, slot_row * C);
        let from: PointerTile<*mut f32, { [] }> = unsafe { assume_div_by::<_, 16>(from) };
        let shape: Shape<{ [R, C] }> = Shape::<{ [R, C] }> { dims: &[] };
        let strides: Array<{ [C, 1] }> = Array::<{ [C, 1] }> { dims: &[] };
        let view: Tensor<f32, { [R, C] }> = unsafe { make_tensor_view(from, shape, strides, ready) };
        let tile: Partition<f32, { [R, C] }> = view.partition(shape![R, C]);
        load_view_tko(&tile, [0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled)
    }

    /// First element of a scratch slot of SLOT elements.
    fn slot_base<const SLOT: i32>(scratch: *mut f32, slot: i32) -> PointerTile<*mut f32, { [] }> {
        let slot: Tile<i32, { [] }> = scalar_to_tile(slot);
        let slot: Tile<i64, { [] }> = exti(slot);
        let elems: Tile<i32, { [] }> = scalar_to_tile(SLOT);
        let elems: Tile<i64, { [] }> = exti(elems);
        let base: PointerTile<*mut f32, { [] }> = pointer_to_tile(scratch);
        addptr_tile(base, slot * elems)
    }
}

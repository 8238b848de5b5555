//! Rows of the weights and of the hidden states to fp16.

#[cutile::module]
pub mod casting {
    use crate::words::words::*;
    use crate::powers::powers::*;
    use cutile::core::*;

    /// First element of a row.
    fn row_of(base: *mut f16, row: i32, pitch: i32) -> PointerTile<*mut f16, { [] }> {
        let row: Tile<i32, { [] }> = scalar_to_tile(row);
        let row: Tile<i64, { [] }> = exti(row);
        let pitch: Tile<i32, { [] }> = scalar_to_tile(pitch);
        let pitch: Tile<i64, { [] }> = exti(pitch);
        let base: PointerTile<*mut f16, { [] }> = pointer_to_tile(base);
        addptr_tile(base, row * pitch)
    }

    /// Rows of one matrix to fp16; returns the largest finite magnitude of each row.
    unsafe fn cast_rows<const R: i32, const C: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        from: PointerTile<*mut f32, { [] }>,
        from_rows: i32,
        from_pitch: i32,
        hi: PointerTile<*mut f16, { [] }>,
        lo: PointerTile<*mut f16, { [] }>,
        to_rows: i32,
        to_pitch: i32,
        cols: i32,
        row_tile: i32,
        s1: Tile<f32, { [R] }>,
        s2: Tile<f32, { [R] }>,
    ) -> Tile<f32, { [R] }> {
        let cols: i32 = unsafe { assume_div_by::<_, EL>(cols) };
        let from: PointerTile<*mut f32, { [] }> = unsafe { assume_div_by::<_, BY>(from) };
        let hi: PointerTile<*mut f16, { [] }> = unsafe { assume_div_by::<_, 16>(hi) };
        let lo: PointerTile<*mut f16, { [] }> = unsafe { assume_div_by::<_, 16>(lo) };
        let from_pitch: i32 = unsafe { assume_div_by::<_, EL>(from_pitch) };
        let to_pitch: i32 = unsafe { assume_div_by::<_, 64>(to_pitch) };
        let from_shape: Shape<{ [-1, -1] }> = Shape::<{ [-1, -1] }> { dims: &[from_rows, cols] };
        let to_shape: Shape<{ [-1, -1] }> = Shape::<{ [-1, -1] }> { dims: &[to_rows, cols] };
        let from_strides: Array<{ [-1, 1] }> = Array::<{ [-1, 1] }> { dims: &[from_pitch] };
        let to_strides: Array<{ [-1, 1] }> = Array::<{ [-1, 1] }> { dims: &[to_pitch] };
        let fv: Tensor<f32, { [-1, -1] }> =
            unsafe { make_tensor_view(from, from_shape, from_strides, new_token_unordered()) };
        let hv: Tensor<f16, { [-1, -1] }> =
            unsafe { make_tensor_view(hi, to_shape, to_strides, new_token_unordered()) };
        let lv: Tensor<f16, { [-1, -1] }> =
            unsafe { make_tensor_view(lo, to_shape, to_strides, new_token_unordered()) };
        let fp: Partition<f32, { [R, C] }> = fv.partition(shape![R, C]);
        let mut hp: PartitionMut<f16, { [R, C] }> = unsafe { hv.partition_full_mut(shape![R, C]) };
        let mut lp: PartitionMut<f16, { [R, C] }> = unsafe { lv.partition_full_mut(shape![R, C]) };
        let big: Tile<f32, { [R, C] }> = broadcast_scalar(3.4028235e38f32, shape![R, C]);
        let zero: Tile<f32, { [R, C] }> = broadcast_scalar(0.0f32, shape![R, C]);
        let mut top: Tile<f32, { [R, C] }> = broadcast_scalar(0.0f32, shape![R, C]);
        for c in 0i32..ceil_div(cols, C) {
            let x: Tile<f32, { [R, C] }> =
                load_view_tko(&fp, [row_tile, c], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a: Tile<f32, { [R, C] }> = absf(x);
            top = maxf(top, select(le_tile(a, big), a, zero), nan::Disabled, ftz::Disabled);
            let x = x * s1.reshape(shape![R, 1]).broadcast(shape![R, C]);
            let x = x * s2.reshape(shape![R, 1]).broadcast(shape![R, C]);
            let high: Tile<f16, { [R, C] }> = ftof(x, rounding::NearestEven);
            let _a: Token = unsafe {
                store_view_tko_mut(&mut hp, high, [row_tile, c], ordering::Weak, scope::TileBlock, None, tma::Disabled)
            };
            if TERMS == 2i32 {
                let back: Tile<f32, { [R, C] }> = ftof(high, rounding::NearestEven);
                let rest = x - back;
                let rest = select(le_tile(absf(rest), big), rest, zero);
                let low: Tile<f16, { [R, C] }> = ftof(rest, rounding::NearestEven);
                let _b: Token = unsafe {
                    store_view_tko_mut(&mut lp, low, [row_tile, c], ordering::Weak, scope::TileBlock, None, tma::Disabled)
                };
            }
        }
        reduce_max(top, 1i32)
    }

    /// One block of rows of the stacked weights to fp16; returns the largest finite magnitude of each row.
    pub unsafe fn cast_weights<const WR: i32, const XC: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        wq: *mut f32, wk: *mut f32, wv: *mut f32, wx: *mut f16, wx_lo: *mut f16, hidden: i32,
        wq_s: i32, wk_s: i32, wv_s: i32, q_rows: i32, kv_rows: i32, w_rows: i32, wx_pitch: i32,
        q_blocks: i32, kv_blocks: i32, block: i32, power: Tile<i32, { [WR] }>,
    ) -> Tile<f32, { [WR] }> {
        let (f1, f2): (Tile<f32, { [WR] }>, Tile<f32, { [WR] }>) = factors::<WR>(power);
        let mut from: PointerTile<*mut f32, { [] }> = pointer_to_tile(wq);
        let mut rows: i32 = q_rows;
        let mut to_rows: i32 = q_rows;
        let mut pitch: i32 = wq_s;
        let mut first: i32 = 0i32;
        let mut tile: i32 = block;
        if block >= q_blocks {
            from = pointer_to_tile(wk);
            rows = kv_rows;
            to_rows = kv_rows;
            pitch = wk_s;
            first = q_rows;
            tile = block - q_blocks;
        }
        if block >= q_blocks + kv_blocks {
            from = pointer_to_tile(wv);
            to_rows = w_rows - q_rows - kv_rows;
            pitch = wv_s;
            first = q_rows + kv_rows;
            tile = block - q_blocks - kv_blocks;
        }
        let hi: PointerTile<*mut f16, { [] }> = row_of(wx, first, wx_pitch);
        let lo: PointerTile<*mut f16, { [] }> = row_of(wx_lo, first, wx_pitch);
        unsafe {
            cast_rows::<WR, XC, TERMS, EL, BY>(from, rows, pitch, hi, lo, to_rows, wx_pitch, hidden, tile, f1, f2)
        }
    }

    /// One tile of rows of one batch entry of X to fp16; returns the largest finite magnitude of each row.
    pub unsafe fn cast_hidden<const WR: i32, const XC: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        x: *mut f32, wx: *mut f16, wx_lo: *mut f16, seq: i32, hidden: i32, x_b: i64, x_s: i32, w_rows: i32,
        wx_pitch: i32,
        batch: i32, t: i32, f1: Tile<f32, { [WR] }>, f2: Tile<f32, { [WR] }>,
    ) -> Tile<f32, { [WR] }> {
        let from: PointerTile<*mut f32, { [] }> = at::<f32>(x, batch, x_b);
        let hi: PointerTile<*mut f16, { [] }> = row_of(wx, w_rows + batch * seq, wx_pitch);
        let lo: PointerTile<*mut f16, { [] }> = row_of(wx_lo, w_rows + batch * seq, wx_pitch);
        unsafe { cast_rows::<WR, XC, TERMS, EL, BY>(from, seq, x_s, hi, lo, seq, wx_pitch, hidden, t, f1, f2) }
    }

    /// One block of rows of X, at the usual power of two.
    unsafe fn x_block<const WR: i32, const XC: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        x: *mut f32, wx: *mut f16, wx_lo: *mut f16, words: *mut i32, seq: i32, hidden: i32, x_b: i64, x_s: i32,
        w_rows: i32, wx_pitch: i32, x_tiles: i32, x_exps: i32, status: i32, block: i32,
    ) {
        let batch: i32 = block / x_tiles;
        let t: i32 = block - batch * x_tiles;
        let usual: Tile<i32, { [WR] }> = broadcast_scalar(10i32, shape![WR]);
        let f1: Tile<f32, { [WR] }> = exp2i::<WR>(usual);
        let f2: Tile<f32, { [WR] }> = broadcast_scalar(1.0f32, shape![WR]);
        let top: Tile<f32, { [WR] }> = unsafe {
            cast_hidden::<WR, XC, TERMS, EL, BY>(
                x, wx, wx_lo, seq, hidden, x_b, x_s, w_rows, wx_pitch, batch, t, f1, f2,
            )
        };
        let e: Tile<i32, { [WR] }> = exponent_or_none::<WR>(top);
        unsafe { set_words::<WR>(words, x_exps + batch * seq, seq, t, e) };
        let e: Tile<i32, { [] }> = reduce_max(e, 0i32);
        unsafe { set_word(words, status + block, tile_to_scalar(e)) };
    }

    /// One block of rows of W, at the usual power of two.
    unsafe fn w_block<const WR: i32, const XC: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        wq: *mut f32, wk: *mut f32, wv: *mut f32, wx: *mut f16, wx_lo: *mut f16, words: *mut i32, hidden: i32,
        wq_s: i32, wk_s: i32, wv_s: i32, q_rows: i32, kv_rows: i32, w_rows: i32, wx_pitch: i32,
        q_blocks: i32, kv_blocks: i32, status: i32, block: i32,
    ) {
        let usual: Tile<i32, { [WR] }> = broadcast_scalar(11i32, shape![WR]);
        let top: Tile<f32, { [WR] }> = unsafe {
            cast_weights::<WR, XC, TERMS, EL, BY>(
                wq, wk, wv, wx, wx_lo, hidden, wq_s, wk_s, wv_s, q_rows, kv_rows, w_rows, wx_pitch, q_blocks,
                kv_blocks, block, usual,
            )
        };
        let e: Tile<i32, { [WR] }> = exponent_or_none::<WR>(top);
        let e: Tile<i32, { [] }> = reduce_max(e, 0i32);
        unsafe { set_word(words, status + block, tile_to_scalar(e)) };
    }

    /// The blocks of rows of X, and of W after them, that follow the blocks of tokens.
    pub unsafe fn row_block<const WR: i32, const XC: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        x: *mut f32, wq: *mut f32, wk: *mut f32, wv: *mut f32, wx: *mut f16, wx_lo: *mut f16, words: *mut i32,
        seq: i32, hidden: i32, x_b: i64, x_s: i32, wq_s: i32, wk_s: i32, wv_s: i32,
        q_rows: i32, kv_rows: i32, w_rows: i32, wx_pitch: i32,
        token_blocks: i32, x_tiles: i32, x_blocks: i32, q_blocks: i32, kv_blocks: i32, x_exps: i32,
        status: i32, block: i32,
    ) {
        if block < token_blocks + x_blocks {
            unsafe {
                x_block::<WR, XC, TERMS, EL, BY>(
                    x, wx, wx_lo, words, seq, hidden, x_b, x_s, w_rows, wx_pitch, x_tiles, x_exps,
                    status + token_blocks, block - token_blocks,
                )
            };
        } else {
            unsafe {
                w_block::<WR, XC, TERMS, EL, BY>(
                    wq, wk, wv, wx, wx_lo, words, hidden, wq_s, wk_s, wv_s, q_rows, kv_rows, w_rows, wx_pitch,
                    q_blocks, kv_blocks, status + token_blocks + x_blocks, block - token_blocks - x_blocks,
                )
            };
        }
    }
}

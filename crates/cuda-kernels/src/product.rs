//! Both matrix products of the operation as one persistent kernel.
//!
//! `dX = U·W` contracts over the N stacked rows, `dW = Uᵀ·X` over the T tokens. `U` is `[T, N]`; `W` and `X` are the two
//! parts of one matrix `[NP + T, E]`, `NP` being N rounded up to the k tile, so that the right operand is always a tile
//! of consecutive rows of the same matrix. A program walks its part of a task table made on the host; a task is one
//! output tile, or one range of its sum. The two k loops follow each other and one of them is empty: a branch around
//! them, or a second epilogue, makes the compiler spill the accumulators.
//!
//! Task, 12 words: row tile of the result, column tile, k tiles `[x0, x1)` of dX, k tiles `[w0, w1)` of dW, destination
//! (0 dX, 1..=3 dWq, dWk, dWv, 4 scratch), first row in the destination, rows left there, column tile in the
//! destination, first word of the row exponents, their stride.

#[cutile::module]
pub mod product {
    use crate::words::words::*;
    use cutile::core::*;

    /// Words of `exps` before those of the tokens.
    const HEADER: i32 = 16;

    /// Row-major matrix of fp16 with 16-byte aligned rows, readable once `ready` is.
    unsafe fn matrix(base: *mut f16, rows: i32, cols: i32, pitch: i32, ready: Token) -> Tensor<f16, { [-1, -1] }> {
        let base: *mut f16 = unsafe { assume_div_by::<_, 16>(base) };
        let pitch: i32 = unsafe { assume_div_by::<_, 64>(pitch) };
        let base: PointerTile<*mut f16, { [] }> = pointer_to_tile(base);
        let shape: Shape<{ [-1, -1] }> = Shape::<{ [-1, -1] }> { dims: &[rows, cols] };
        let strides: Array<{ [-1, 1] }> = Array::<{ [-1, 1] }> { dims: &[pitch] };
        unsafe { make_tensor_view(base, shape, strides, ready) }
    }

    /// The exponents of a tile's rows: 2^e undoes the scales of both operands. Rows of dX have words of their own, those of dW
    /// share one. Read as a tile of a view: single words by address are fetched into shared memory by several warps at once,
    /// which is a race by the letter, of equal values.
    unsafe fn row_exponents<const BM: i32>(exps: *mut i32, tokens: i32, tile: i32, first: i32, stride: i32)
        -> Tile<i32, { [BM] }>
    {
        let shared: i32 = unsafe { word(exps, stride) };
        let common: Tile<i32, { [BM] }> = broadcast_scalar(unsafe { word(exps, first) }, shape![BM]);
        let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(exps);
        let base: PointerTile<*mut i32, { [] }> = addptr(base, HEADER);
        let base: PointerTile<*mut i32, { [] }> = unsafe { assume_div_by::<_, 16>(base) };
        let shape: Shape<{ [-1] }> = Shape::<{ [-1] }> { dims: &[tokens] };
        let strides: Array<{ [1] }> = Array::<{ [1] }> { dims: &[] };
        let view: Tensor<i32, { [-1] }> = unsafe { make_tensor_view(base, shape, strides, new_token_unordered()) };
        let rows: Partition<i32, { [BM] }> = view.partition(shape![BM]);
        let own: Tile<i32, { [BM] }> =
            load_view_tko(&rows, [tile * stride], ordering::Weak, scope::TileBlock, None, tma::Enabled);
        let value: Tile<i32, { [BM] }> = common + (own - common) * broadcast_scalar(stride, shape![BM]);
        let zero: Tile<i32, { [BM] }> = broadcast_scalar(0i32, shape![BM]);
        let value: Tile<i32, { [BM] }> = zero - value - broadcast_scalar(shared, shape![BM]);
        // What one f32 cannot hold, two factors can; further out everything is zero or infinite anyway.
        let low: Tile<i32, { [BM] }> = broadcast_scalar(-252i32, shape![BM]);
        let high: Tile<i32, { [BM] }> = broadcast_scalar(252i32, shape![BM]);
        mini(maxi(value, low), high)
    }

    /// The words of a task, in their order.
    unsafe fn read_task(tasks: *mut i32, task: i32)
        -> (i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32)
    {
        let at: i32 = task * 12i32;
        let m: i32 = unsafe { word(tasks, at) };
        let n: i32 = unsafe { word(tasks, at + 1i32) };
        let x0: i32 = unsafe { word(tasks, at + 2i32) };
        let x1: i32 = unsafe { word(tasks, at + 3i32) };
        let w0: i32 = unsafe { word(tasks, at + 4i32) };
        let w1: i32 = unsafe { word(tasks, at + 5i32) };
        let dest: i32 = unsafe { word(tasks, at + 6i32) };
        let row: i32 = unsafe { word(tasks, at + 7i32) };
        let left: i32 = unsafe { word(tasks, at + 8i32) };
        let col_tile: i32 = unsafe { word(tasks, at + 9i32) };
        let exp_first: i32 = unsafe { word(tasks, at + 10i32) };
        let exp_stride: i32 = unsafe { word(tasks, at + 11i32) };
        (m, n, x0, x1, w0, w1, dest, row, left, col_tile, exp_first, exp_stride)
    }

    /// Scales one finished sum and stores it where its task says.
    unsafe fn deposit<const BM: i32, const BN: i32>(
        sum: Tile<f32, { [BM, BN] }>,
        exps: Tile<i32, { [BM] }>,
        dest: i32,
        row: i32,
        left: i32,
        col_tile: i32,
        out: *mut f32,
        hidden: i32,
        at_hidden: i64,
        at_q: i64,
        at_k: i64,
        at_v: i64,
        pitch_hidden: i32,
        pitch_q: i32,
        pitch_k: i32,
        pitch_v: i32,
    ) {
        let out_base: PointerTile<*mut f32, { [] }> = pointer_to_tile(out);
        let mut base: i64 = 0i64;
        let mut pitch: i32 = BN;
        let mut cols: i32 = BN;
        if dest == 0i32 {
            base = at_hidden;
            pitch = pitch_hidden;
            cols = hidden;
        }
        if dest == 1i32 {
            base = at_q;
            pitch = pitch_q;
            cols = hidden;
        }
        if dest == 2i32 {
            base = at_k;
            pitch = pitch_k;
            cols = hidden;
        }
        if dest == 3i32 {
            base = at_v;
            pitch = pitch_v;
            cols = hidden;
        }
        let pitch: i32 = unsafe { assume_div_by::<_, 4>(pitch) };
        let cols: i32 = unsafe { assume_div_by::<_, 4>(cols) };
        let row_t: Tile<i32, { [] }> = scalar_to_tile(row);
        let pitch_t: Tile<i32, { [] }> = scalar_to_tile(pitch);
        let row_t: Tile<i64, { [] }> = exti(row_t);
        let pitch_t: Tile<i64, { [] }> = exti(pitch_t);
        let base_t: Tile<i64, { [] }> = scalar_to_tile(base);
        let start: PointerTile<*mut f32, { [] }> = addptr_tile(out_base, base_t + row_t * pitch_t);
        let start: PointerTile<*mut f32, { [] }> = unsafe { assume_div_by::<_, 16>(start) };
        let shape: Shape<{ [-1, -1] }> = Shape::<{ [-1, -1] }> { dims: &[left, cols] };
        let strides: Array<{ [-1, 1] }> = Array::<{ [-1, 1] }> { dims: &[pitch] };
        let dest_view: Tensor<f32, { [-1, -1] }> =
            unsafe { make_tensor_view(start, shape, strides, new_token_unordered()) };
        let mut dest_tiles: PartitionMut<f32, { [BM, BN] }> =
            unsafe { dest_view.partition_full_mut(shape![BM, BN]) };
        let (scale, rest): (Tile<f32, { [BM] }>, Tile<f32, { [BM] }>) = factors::<BM>(exps);
        let sum: Tile<f32, { [BM, BN] }> = sum * scale.reshape(shape![BM, 1]).broadcast(shape![BM, BN]);
        let sum: Tile<f32, { [BM, BN] }> = sum * rest.reshape(shape![BM, 1]).broadcast(shape![BM, BN]);
        let _stored: Token = unsafe {
            store_view_tko_mut(
                &mut dest_tiles,
                sum,
                [0i32, col_tile],
                ordering::Weak,
                scope::TileBlock,
                None,
                tma::Enabled,
            )
        };
    }

    #[cutile::entry()]
    pub unsafe fn product<const BM: i32, const BN: i32, const BK: i32>(
        u: *mut f16,
        wx: *mut f16,
        tasks: *mut i32,
        exps: *mut i32,
        out: *mut f32,
        tasks_first: i32,
        tasks_each: i32,
        tokens: i32,
        rows: i32,
        hidden: i32,
        u_pitch: i32,
        wx_pitch: i32,
        x_row_tiles: i32,
        wx_rows: i32,
        at_hidden: i64,
        at_q: i64,
        at_k: i64,
        at_v: i64,
        pitch_hidden: i32,
        pitch_q: i32,
        pitch_k: i32,
        pitch_v: i32,
    ) {
        let ready: Token = new_token_unordered();
        let u_view: Tensor<f16, { [-1, -1] }> = unsafe { matrix(u, tokens, rows, u_pitch, ready) };
        let wx_view: Tensor<f16, { [-1, -1] }> = unsafe { matrix(wx, wx_rows, hidden, wx_pitch, ready) };
        let a_x: Partition<f16, { [BM, BK] }> = u_view.partition(shape![BM, BK]);
        let a_w: Partition<f16, { [BK, BM] }> = u_view.partition(shape![BK, BM]);
        let b: Partition<f16, { [BK, BN] }> = wx_view.partition(shape![BK, BN]);

        let pid: (i32, i32, i32) = get_tile_block_id();
        // No task's address depends on a load: the first tiles are asked for as early as can be.
        let count: i32 = unsafe { word(tasks, pid.0) };
        let first: i32 = tasks_first + pid.0 * tasks_each;
        for task in 0i32..count {
            let (m, n, x0, x1, w0, w1, dest, row, left, col_tile, exp_first, exp_stride): (
                i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32,
            ) = unsafe { read_task(tasks, first + task) };
            let e: Tile<i32, { [BM] }> = unsafe { row_exponents::<BM>(exps, tokens, m, exp_first, exp_stride) };
            let mut sum: Tile<f32, { [BM, BN] }> = constant(0.0f32, shape![BM, BN]);
            for k in x0..x1 {
                let a: Tile<f16, { [BM, BK] }> =
                    load_view_tko(&a_x, [m, k], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                let w: Tile<f16, { [BK, BN] }> =
                    load_view_tko(&b, [k, n], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                sum = mma(a, w, sum);
            }
            for k in w0..w1 {
                let a: Tile<f16, { [BK, BM] }> =
                    load_view_tko(&a_w, [k, m], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                let x: Tile<f16, { [BK, BN] }> =
                    load_view_tko(&b, [k + x_row_tiles, n], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                sum = mma(a.transpose(), x, sum);
            }

            unsafe {
                deposit::<BM, BN>(
                    sum, e, dest, row, left, col_tile, out, hidden, at_hidden, at_q, at_k, at_v, pitch_hidden, pitch_q,
                    pitch_k, pitch_v,
                )
            };
        }
    }

    #[cutile::entry()]
    pub unsafe fn product_split<const BM: i32, const BN: i32, const BK: i32>(
        u: *mut f16,
        wx: *mut f16,
        u_lo: *mut f16,
        wx_lo: *mut f16,
        tasks: *mut i32,
        exps: *mut i32,
        out: *mut f32,
        tasks_first: i32,
        tasks_each: i32,
        tokens: i32,
        rows: i32,
        hidden: i32,
        u_pitch: i32,
        wx_pitch: i32,
        x_row_tiles: i32,
        chunk: i32,
        wx_rows: i32,
        at_hidden: i64,
        at_q: i64,
        at_k: i64,
        at_v: i64,
        pitch_hidden: i32,
        pitch_q: i32,
        pitch_k: i32,
        pitch_v: i32,
    ) {
        let ready: Token = new_token_unordered();
        let u_view: Tensor<f16, { [-1, -1] }> = unsafe { matrix(u, tokens, rows, u_pitch, ready) };
        let wx_view: Tensor<f16, { [-1, -1] }> = unsafe { matrix(wx, wx_rows, hidden, wx_pitch, ready) };
        let u_lo_view: Tensor<f16, { [-1, -1] }> = unsafe { matrix(u_lo, tokens, rows, u_pitch, ready) };
        let wx_lo_view: Tensor<f16, { [-1, -1] }> = unsafe { matrix(wx_lo, wx_rows, hidden, wx_pitch, ready) };
        let a_x_lo: Partition<f16, { [BM, BK] }> = u_lo_view.partition(shape![BM, BK]);
        let a_w_lo: Partition<f16, { [BK, BM] }> = u_lo_view.partition(shape![BK, BM]);
        let b_lo: Partition<f16, { [BK, BN] }> = wx_lo_view.partition(shape![BK, BN]);
        let a_x: Partition<f16, { [BM, BK] }> = u_view.partition(shape![BM, BK]);
        let a_w: Partition<f16, { [BK, BM] }> = u_view.partition(shape![BK, BM]);
        let b: Partition<f16, { [BK, BN] }> = wx_view.partition(shape![BK, BN]);

        let pid: (i32, i32, i32) = get_tile_block_id();
        // No task's address depends on a load: the first tiles are asked for as early as can be.
        let count: i32 = unsafe { word(tasks, pid.0) };
        let first: i32 = tasks_first + pid.0 * tasks_each;
        for task in 0i32..count {
            let (m, n, x0, x1, w0, w1, dest, row, left, col_tile, exp_first, exp_stride): (
                i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32,
            ) = unsafe { read_task(tasks, first + task) };
            let mut sum: Tile<f32, { [BM, BN] }> = constant(0.0f32, shape![BM, BN]);
            let mut small: Tile<f32, { [BM, BN] }> = constant(0.0f32, shape![BM, BN]);
            for c in 0i32..ceil_div(x1 - x0 + w1 - w0, chunk) {
                let mut part: Tile<f32, { [BM, BN] }> = constant(0.0f32, shape![BM, BN]);
                let x_start: i32 = x0 + c * chunk;
                for k in x_start..min(x_start + chunk, x1) {
                    let a: Tile<f16, { [BM, BK] }> =
                        load_view_tko(&a_x, [m, k], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    let w: Tile<f16, { [BK, BN] }> =
                        load_view_tko(&b, [k, n], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    let a_rest: Tile<f16, { [BM, BK] }> =
                        load_view_tko(&a_x_lo, [m, k], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    let w_rest: Tile<f16, { [BK, BN] }> =
                        load_view_tko(&b_lo, [k, n], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    small = mma(a_rest, w, small);
                    small = mma(a, w_rest, small);
                    part = mma(a, w, part);
                }
                let w_start: i32 = w0 + c * chunk;
                for k in w_start..min(w_start + chunk, w1) {
                    let a: Tile<f16, { [BK, BM] }> =
                        load_view_tko(&a_w, [k, m], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    let x: Tile<f16, { [BK, BN] }> =
                        load_view_tko(&b, [k + x_row_tiles, n], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    let a_rest: Tile<f16, { [BK, BM] }> =
                        load_view_tko(&a_w_lo, [k, m], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    let x_rest: Tile<f16, { [BK, BN] }> =
                        load_view_tko(&b_lo, [k + x_row_tiles, n], ordering::Weak, scope::TileBlock, None, tma::Enabled);
                    let a: Tile<f16, { [BM, BK] }> = a.transpose();
                    let a_rest: Tile<f16, { [BM, BK] }> = a_rest.transpose();
                    small = mma(a_rest, x, small);
                    small = mma(a, x_rest, small);
                    part = mma(a, x, part);
                }
                sum = sum + part;
            }
            let sum: Tile<f32, { [BM, BN] }> = sum + small;
            let e: Tile<i32, { [BM] }> = unsafe { row_exponents::<BM>(exps, tokens, m, exp_first, exp_stride) };
            unsafe {
                deposit::<BM, BN>(
                    sum, e, dest, row, left, col_tile, out, hidden, at_hidden, at_q, at_k, at_v, pitch_hidden, pitch_q,
                    pitch_k, pitch_v,
                )
            };
        }
    }
}

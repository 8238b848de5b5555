//! The powers of two of W and X, settled; whatever does not fit the usual ones is rounded again.

#[cutile::module]
pub mod settle {
    use crate::words::words::*;
    use crate::casting::casting::*;
    use crate::powers::powers::*;
    use cutile::core::*;

    /// Checks the powers of two that `prep` assumed for W and X, and redoes the tensor that they do not fit.
    #[cutile::entry()]
    pub unsafe fn settle<
        const WR: i32,
        const XC: i32,
        const TERMS: i32,
        const EL: i32,
        const BY: i32,
    >(
        x: *mut f32, wq: *mut f32, wk: *mut f32, wv: *mut f32, wx: *mut f16, wx_lo: *mut f16, words: *mut i32,
        seq: i32, batch: i32, hidden: i32, x_b: i64, x_s: i32, wq_s: i32, wk_s: i32, wv_s: i32,
        q_rows: i32, kv_rows: i32, w_rows: i32, wx_pitch: i32,
        q_blocks: i32, kv_blocks: i32, token_blocks: i32, x_blocks: i32, w_blocks: i32, x_exps: i32,
        status: i32, programs: i32,
    ) {
        let ready: Token = new_token_unordered();
        let pid: (i32, i32, i32) = get_tile_block_id();
        // All three are asked for before any is looked at: this kernel is nothing but latency.
        let mut moved_t: Tile<i32, { [1024] }> = broadcast_scalar(-1000i32, shape![1024]);
        let mut x_t: Tile<i32, { [1024] }> = broadcast_scalar(-1000i32, shape![1024]);
        let mut w_t: Tile<i32, { [1024] }> = broadcast_scalar(-1000i32, shape![1024]);
        for c in 0i32..ceil_div(max(max(token_blocks, x_blocks), w_blocks), 1024i32) {
            let moved_c: Tile<i32, { [1024] }> = unsafe { status_tile(words, status, token_blocks, c, ready) };
            let x_c: Tile<i32, { [1024] }> = unsafe { status_tile(words, status + token_blocks, x_blocks, c, ready) };
            let w_c: Tile<i32, { [1024] }> =
                unsafe { status_tile(words, status + token_blocks + x_blocks, w_blocks, c, ready) };
            moved_t = maxi(moved_t, moved_c);
            x_t = maxi(x_t, x_c);
            w_t = maxi(w_t, w_c);
        }
        let moved: Tile<i32, { [] }> = reduce_max(moved_t, 0i32);
        let moved: i32 = tile_to_scalar(moved);
        let x_t: Tile<i32, { [] }> = reduce_max(x_t, 0i32);
        let x_max: i32 = tile_to_scalar(x_t);
        let mut x_top: i32 = x_max - 10i32;
        let w_t: Tile<i32, { [] }> = reduce_max(w_t, 0i32);
        let w_top: i32 = tile_to_scalar(w_t);
        // Tokens of unusual power pull X the other way: only then all of its rows are looked at.
        if moved > 0i32 {
            if x_blocks > 0i32 {
                x_top = unsafe { largest_difference(words, x_exps, 16i32, batch * seq, ready) };
            }
        }
        let w_power: i32 = settle_power(w_top, 11i32);
        let x_power: i32 = settle_power(x_top, 20i32);
        if pid.0 == 0i32 {
            unsafe { set_word(words, 0i32, 0i32) };
            unsafe { set_word(words, 1i32, w_power) };
            unsafe { set_word(words, 2i32, x_power) };
        }
        if w_power != 11i32 {
            let power: Tile<i32, { [WR] }> = broadcast_scalar(w_power, shape![WR]);
            let rounds: i32 = ceil_div(w_blocks - pid.0, programs);
            for round in 0i32..rounds {
                let _top: Tile<f32, { [WR] }> = unsafe {
                    cast_weights::<WR, XC, TERMS, EL, BY>(
                        wq, wk, wv, wx, wx_lo, hidden, wq_s, wk_s, wv_s, q_rows, kv_rows, w_rows, wx_pitch, q_blocks,
                        kv_blocks, pid.0 + round * programs, power,
                    )
                };
            }
        }
        let mut again: i32 = x_power - 20i32;
        if moved > 0i32 {
            again = 1i32;
        }
        if x_blocks == 0i32 {
            again = 0i32;
        }
        if again != 0i32 {
            let row_tiles: i32 = ceil_div(seq, WR);
            let rounds: i32 = ceil_div(batch * row_tiles - pid.0, programs);
            for round in 0i32..rounds {
                let block: i32 = pid.0 + round * programs;
                let b: i32 = block / row_tiles;
                let t: i32 = block - b * row_tiles;
                let p: Tile<i32, { [WR] }> = unsafe { row_powers::<WR>(words, b, seq, t, ready) };
                let q: Tile<i32, { [WR] }> = broadcast_scalar(x_power, shape![WR]) - p;
                let q: Tile<i32, { [WR] }> = maxi(q, broadcast_scalar(-252i32, shape![WR]));
                let q: Tile<i32, { [WR] }> = mini(q, broadcast_scalar(252i32, shape![WR]));
                let (f1, f2): (Tile<f32, { [WR] }>, Tile<f32, { [WR] }>) = factors::<WR>(q);
                let _top: Tile<f32, { [WR] }> = unsafe {
                    cast_hidden::<WR, XC, TERMS, EL, BY>(
                        x, wx, wx_lo, seq, hidden, x_b, x_s, w_rows, wx_pitch, b, t, f1, f2,
                    )
                };
            }
        }
    }
}

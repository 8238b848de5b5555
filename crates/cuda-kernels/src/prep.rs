//! Un-rotates the gradients and rounds all operands to fp16, in one pass over memory.

#[cutile::module]
pub mod prep {
    use crate::words::words::*;
    use crate::casting::casting::*;
    use crate::heads::heads::*;
    use crate::powers::powers::*;
    use crate::views::views::*;
    use cutile::core::*;

    #[cutile::entry()]
    pub unsafe fn prep<
        const TOK: i32,
        const HB: i32,
        const P: i32,
        const XC: i32,
        const WR: i32,
        const TERMS: i32,
        const EL: i32,
        const BY: i32,
        const H16: i32,
        const UN: i32,
    >(
        gq: *mut f32, gk: *mut f32, gv: *mut f32, cos: *mut f32, sin: *mut f32, x: *mut f32,
        wq: *mut f32, wk: *mut f32, wv: *mut f32,
        u: *mut f16, u_lo: *mut f16, wx: *mut f16, wx_lo: *mut f16, words: *mut i32,
        seq: i32, q_heads: i32, kv_heads: i32, half: i32, hidden: i32,
        q_b: i64, k_b: i64, v_b: i64, cos_b: i64, sin_b: i64, x_b: i64,
        q_h: i32, q_s: i32, k_h: i32, k_s: i32, v_h: i32, v_s: i32, cos_s: i32, sin_s: i32, x_s: i32,
        wq_s: i32, wk_s: i32, wv_s: i32,
        q_rows: i32, kv_rows: i32, w_rows: i32,
        u_pitch: i32, wx_pitch: i32,
        seq_tiles: i32, token_blocks: i32, x_tiles: i32, x_blocks: i32,
        q_blocks: i32, kv_blocks: i32, x_exps: i32, status: i32,
    ) {
        let pid: (i32, i32, i32) = get_tile_block_id();
        if pid.0 < token_blocks {
            let batch: i32 = pid.0 / seq_tiles;
            let t: i32 = pid.0 - batch * seq_tiles;
            let q_t = unsafe { heads_view::<EL, BY>(gq, batch, q_b, q_heads, seq, half, q_h, q_s) };
            let k_t = unsafe { heads_view::<EL, BY>(gk, batch, k_b, kv_heads, seq, half, k_h, k_s) };
            let v_t = unsafe { heads_view::<EL, BY>(gv, batch, v_b, kv_heads, seq, half, v_h, v_s) };
            let c_t = unsafe { heads_view::<EL, BY>(cos, batch, cos_b, 1i32, seq, half, 0i32, cos_s) };
            let s_t = unsafe { heads_view::<EL, BY>(sin, batch, sin_b, 1i32, seq, half, 0i32, sin_s) };
            let q_p: Partition<f32, { [HB, TOK, 1, P] }> = q_t.partition(shape![HB, TOK, 1, P]);
            let k_p: Partition<f32, { [HB, TOK, 1, P] }> = k_t.partition(shape![HB, TOK, 1, P]);
            let v_p: Partition<f32, { [HB, TOK, 1, P] }> = v_t.partition(shape![HB, TOK, 1, P]);
            let c_p: Partition<f32, { [1, TOK, 1, P] }> = c_t.partition(shape![1, TOK, 1, P]);
            let s_p: Partition<f32, { [1, TOK, 1, P] }> = s_t.partition(shape![1, TOK, 1, P]);
            let c0: Tile<f32, { [1, TOK, 1, P] }> =
                load_view_tko(&c_p, [0i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let c1: Tile<f32, { [1, TOK, 1, P] }> =
                load_view_tko(&c_p, [0i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let s0: Tile<f32, { [1, TOK, 1, P] }> =
                load_view_tko(&s_p, [0i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let s1: Tile<f32, { [1, TOK, 1, P] }> =
                load_view_tko(&s_p, [0i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let c0 = c0.broadcast(shape![HB, TOK, 1, P]);
            let c1 = c1.broadcast(shape![HB, TOK, 1, P]);
            let s0 = s0.broadcast(shape![HB, TOK, 1, P]);
            let s1 = s1.broadcast(shape![HB, TOK, 1, P]);
            let head_dim: i32 = half + half;
            let u_b: i64 = u_stride(seq, u_pitch);
            let qh_t = unsafe { u_view::<H16>(u, batch, u_b, 0i32, q_heads, seq, half, u_pitch) };
            let kh_t = unsafe { u_view::<H16>(u, batch, u_b, q_heads * head_dim, kv_heads, seq, half, u_pitch) };
            let vh_t = unsafe {
                u_view::<H16>(u, batch, u_b, (q_heads + kv_heads) * head_dim, kv_heads, seq, half, u_pitch)
            };
            let ql_t = unsafe { u_view::<H16>(u_lo, batch, u_b, 0i32, q_heads, seq, half, u_pitch) };
            let kl_t = unsafe { u_view::<H16>(u_lo, batch, u_b, q_heads * head_dim, kv_heads, seq, half, u_pitch) };
            let vl_t = unsafe {
                u_view::<H16>(u_lo, batch, u_b, (q_heads + kv_heads) * head_dim, kv_heads, seq, half, u_pitch)
            };
            let mut qh: PartitionMut<f16, { [HB, TOK, 1, P] }> =
                unsafe { qh_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut kh: PartitionMut<f16, { [HB, TOK, 1, P] }> =
                unsafe { kh_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut vh: PartitionMut<f16, { [HB, TOK, 1, P] }> =
                unsafe { vh_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut ql: PartitionMut<f16, { [HB, TOK, 1, P] }> =
                unsafe { ql_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut kl: PartitionMut<f16, { [HB, TOK, 1, P] }> =
                unsafe { kl_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut vl: PartitionMut<f16, { [HB, TOK, 1, P] }> =
                unsafe { vl_t.partition_full_mut(shape![HB, TOK, 1, P]) };

            let mut p: Tile<i32, { [TOK] }> = broadcast_scalar(10i32, shape![TOK]);
            let mut passes: i32 = 1i32;
            let mut pass: i32 = 0i32;
            while pass < passes {
                let (f1, f2): (Tile<f32, { [TOK] }>, Tile<f32, { [TOK] }>) = factors::<TOK>(p);
                let mut top: Tile<f32, { [HB, TOK, 1, P] }> = broadcast_scalar(0.0f32, shape![HB, TOK, 1, P]);
                for step in 0i32..ceil_div(q_heads, UN * HB) {
                    top = unsafe {
                        turn::<HB, TOK, P, TERMS, UN>(
                            &q_p, &mut qh, &mut ql, c0, c1, s0, s1, f1, f2, top, UN * step, t,
                        )
                    };
                }
                for step in 0i32..ceil_div(kv_heads, UN * HB) {
                    top = unsafe {
                        turn::<HB, TOK, P, TERMS, UN>(
                            &k_p, &mut kh, &mut kl, c0, c1, s0, s1, f1, f2, top, UN * step, t,
                        )
                    };
                }
                for step in 0i32..ceil_div(kv_heads, UN * HB) {
                    top = unsafe {
                        keep::<HB, TOK, P, TERMS, UN>(&v_p, &mut vh, &mut vl, f1, f2, top, UN * step, t)
                    };
                }
                if pass == 0i32 {
                    p = token_powers::<HB, TOK, P>(top);
                    passes = min(moved::<TOK>(p), 1i32) + 1i32;
                }
                pass = pass + 1i32;
            }
            unsafe { set_words::<TOK>(words, 16i32 + batch * seq, seq, t, p) };
            // What `moved` says; a call of it here gives another cubin.
            let moved: Tile<i32, { [TOK] }> = absi(p - broadcast_scalar(10i32, shape![TOK]));
            let moved: Tile<i32, { [] }> = reduce_max(moved, 0i32);
            unsafe { set_word(words, status + pid.0, tile_to_scalar(moved)) };
        } else {
            unsafe {
                row_block::<WR, XC, TERMS, EL, BY>(
                    x, wq, wk, wv, wx, wx_lo, words, seq, hidden, x_b, x_s, wq_s, wk_s, wv_s, q_rows, kv_rows, w_rows,
                    wx_pitch, token_blocks, x_tiles, x_blocks, q_blocks, kv_blocks, x_exps, status, pid.0,
                )
            };
        }
    }

    /// As `prep`, for either pairing, partial rotation, any head size and 4-byte alignment; slower.
    #[cutile::entry()]
    pub unsafe fn prep_any<
        const TOK: i32,
        const P: i32,
        const XC: i32,
        const WR: i32,
        const TERMS: i32,
        const LANE: i32,
    >(
        gq: *mut f32, gk: *mut f32, gv: *mut f32, cos: *mut f32, sin: *mut f32, x: *mut f32,
        wq: *mut f32, wk: *mut f32, wv: *mut f32,
        u: *mut f16, u_lo: *mut f16, wx: *mut f16, wx_lo: *mut f16, words: *mut i32,
        seq: i32, q_heads: i32, kv_heads: i32, head_dim: i32, rotary_dim: i32, hidden: i32,
        q_b: i64, k_b: i64, v_b: i64, cos_b: i64, sin_b: i64, x_b: i64,
        q_h: i32, q_s: i32, k_h: i32, k_s: i32, v_h: i32, v_s: i32, cos_s: i32, sin_s: i32, x_s: i32,
        wq_s: i32, wk_s: i32, wv_s: i32,
        q_rows: i32, kv_rows: i32, w_rows: i32,
        u_pitch: i32, wx_pitch: i32,
        seq_tiles: i32, token_blocks: i32, x_tiles: i32, x_blocks: i32,
        q_blocks: i32, kv_blocks: i32, x_exps: i32, status: i32,
    ) {
        let pid: (i32, i32, i32) = get_tile_block_id();
        if pid.0 < token_blocks {
            let batch: i32 = pid.0 / seq_tiles;
            let t: i32 = pid.0 - batch * seq_tiles;
            let rotary_pairs: i32 = rotary_dim / 2i32;
            let tail_pairs: i32 = (head_dim - rotary_dim) / 2i32;
            let whole_pairs: i32 = head_dim / 2i32;
            let mut mate: i32 = 1i32;
            if LANE == 1i32 {
                mate = rotary_pairs;
            }
            let u_b: i64 = u_stride(seq, u_pitch);
            let mut p: Tile<i32, { [TOK] }> = broadcast_scalar(10i32, shape![TOK]);
            let mut passes: i32 = 1i32;
            let mut pass: i32 = 0i32;
            while pass < passes {
                let (f1, f2): (Tile<f32, { [TOK] }>, Tile<f32, { [TOK] }>) = factors::<TOK>(p);
                let mut top: Tile<f32, { [1, TOK, 1, P] }> = broadcast_scalar(0.0f32, shape![1, TOK, 1, P]);
                top = unsafe {
                    heads_any::<TOK, P, TERMS, LANE, 1>(
                        gq, batch, q_b, q_h, q_s, cos, cos_b, cos_s, sin, sin_b, sin_s, u, u_lo, u_b, u_pitch,
                        0i32, 0i32, q_heads, seq, rotary_pairs, head_dim, mate, f1, f2, top, t,
                    )
                };
                top = unsafe {
                    heads_any::<TOK, P, TERMS, 1, 0>(
                        gq, batch, q_b, q_h, q_s, cos, cos_b, cos_s, sin, sin_b, sin_s, u, u_lo, u_b, u_pitch,
                        0i32, rotary_dim, q_heads, seq, tail_pairs, head_dim, tail_pairs, f1, f2, top, t,
                    )
                };
                top = unsafe {
                    heads_any::<TOK, P, TERMS, LANE, 1>(
                        gk, batch, k_b, k_h, k_s, cos, cos_b, cos_s, sin, sin_b, sin_s, u, u_lo, u_b, u_pitch,
                        q_heads * head_dim, 0i32, kv_heads, seq, rotary_pairs, head_dim, mate, f1, f2, top, t,
                    )
                };
                top = unsafe {
                    heads_any::<TOK, P, TERMS, 1, 0>(
                        gk, batch, k_b, k_h, k_s, cos, cos_b, cos_s, sin, sin_b, sin_s, u, u_lo, u_b, u_pitch,
                        q_heads * head_dim, rotary_dim, kv_heads, seq, tail_pairs, head_dim, tail_pairs, f1, f2, top, t,
                    )
                };
                top = unsafe {
                    heads_any::<TOK, P, TERMS, 1, 0>(
                        gv, batch, v_b, v_h, v_s, cos, cos_b, cos_s, sin, sin_b, sin_s, u, u_lo, u_b, u_pitch,
                        (q_heads + kv_heads) * head_dim, 0i32, kv_heads, seq, whole_pairs, head_dim, whole_pairs,
                        f1, f2, top, t,
                    )
                };
                if pass == 0i32 {
                    p = token_powers::<1, TOK, P>(top);
                    passes = min(moved::<TOK>(p), 1i32) + 1i32;
                }
                pass = pass + 1i32;
            }
            unsafe { set_words::<TOK>(words, 16i32 + batch * seq, seq, t, p) };
            // What `moved` says; a call of it here gives another cubin.
            let moved: Tile<i32, { [TOK] }> = absi(p - broadcast_scalar(10i32, shape![TOK]));
            let moved: Tile<i32, { [] }> = reduce_max(moved, 0i32);
            unsafe { set_word(words, status + pid.0, tile_to_scalar(moved)) };
        } else {
            unsafe {
                row_block::<WR, XC, TERMS, 1, 4>(
                    x, wq, wk, wv, wx, wx_lo, words, seq, hidden, x_b, x_s, wq_s, wk_s, wv_s, q_rows, kv_rows, w_rows,
                    wx_pitch, token_blocks, x_tiles, x_blocks, q_blocks, kv_blocks, x_exps, status, pid.0,
                )
            };
        }
    }
}

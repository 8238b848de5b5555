//! Heads of the gradients, turned back or kept, to the fp16 rows of U.

#[cutile::module]
pub mod heads {
    use crate::views::views::*;
    use cutile::core::*;

    /// x where its magnitude is finite, else 0.
    fn finite<const A: i32, const B: i32, const C: i32, const D: i32>(
        x: Tile<f32, { [A, B, C, D] }>, magnitude: Tile<f32, { [A, B, C, D] }>,
    ) -> Tile<f32, { [A, B, C, D] }> {
        let big: Tile<f32, { [A, B, C, D] }> = broadcast_scalar(3.4028235e38f32, shape![A, B, C, D]);
        let zero: Tile<f32, { [A, B, C, D] }> = broadcast_scalar(0.0f32, shape![A, B, C, D]);
        select(le_tile(magnitude, big), x, zero)
    }

    /// |x| where finite, else 0.
    fn magnitude<const A: i32, const B: i32, const C: i32, const D: i32>(
        x: Tile<f32, { [A, B, C, D] }>,
    ) -> Tile<f32, { [A, B, C, D] }> {
        let a: Tile<f32, { [A, B, C, D] }> = absf(x);
        finite::<A, B, C, D>(a, a)
    }

    /// Scales one element of some pairs by both factors of their tokens and stores it as fp16; with two terms, what
    /// that leaves as well.
    unsafe fn put<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32>(
        x: Tile<f32, { [HB, TOK, 1, P] }>,
        s1: Tile<f32, { [TOK] }>,
        s2: Tile<f32, { [TOK] }>,
        hi: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        lo: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        h: i32,
        t: i32,
        part: i32,
        j: i32,
    ) {
        let x = x * s1.reshape(shape![1, TOK, 1, 1]).broadcast(shape![HB, TOK, 1, P]);
        let x = x * s2.reshape(shape![1, TOK, 1, 1]).broadcast(shape![HB, TOK, 1, P]);
        let high: Tile<f16, { [HB, TOK, 1, P] }> = ftof(x, rounding::NearestEven);
        let _a: Token = unsafe {
            store_view_tko_mut(hi, high, [h, t, part, j], ordering::Weak, scope::TileBlock, None, tma::Disabled)
        };
        if TERMS == 2i32 {
            let back: Tile<f32, { [HB, TOK, 1, P] }> = ftof(high, rounding::NearestEven);
            let rest = x - back;
            let rest: Tile<f32, { [HB, TOK, 1, P] }> = finite::<HB, TOK, 1, P>(rest, absf(rest));
            let low: Tile<f16, { [HB, TOK, 1, P] }> = ftof(rest, rounding::NearestEven);
            let _b: Token = unsafe {
                store_view_tko_mut(lo, low, [h, t, part, j], ordering::Weak, scope::TileBlock, None, tma::Disabled)
            };
        }
    }

    /// Both elements of some pairs to fp16; returns `top`, raised to their largest finite magnitudes.
    unsafe fn keep_pairs<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32>(
        a: Tile<f32, { [HB, TOK, 1, P] }>,
        b: Tile<f32, { [HB, TOK, 1, P] }>,
        hi: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        lo: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        f1: Tile<f32, { [TOK] }>,
        f2: Tile<f32, { [TOK] }>,
        top: Tile<f32, { [HB, TOK, 1, P] }>,
        h: i32,
        t: i32,
        j: i32,
    ) -> Tile<f32, { [HB, TOK, 1, P] }> {
        let top: Tile<f32, { [HB, TOK, 1, P] }> =
            maxf(top, magnitude::<HB, TOK, 1, P>(a), nan::Disabled, ftz::Disabled);
        let top: Tile<f32, { [HB, TOK, 1, P] }> =
            maxf(top, magnitude::<HB, TOK, 1, P>(b), nan::Disabled, ftz::Disabled);
        unsafe { put::<HB, TOK, P, TERMS>(a, f1, f2, hi, lo, h, t, 0i32, j) };
        unsafe { put::<HB, TOK, P, TERMS>(b, f1, f2, hi, lo, h, t, 1i32, j) };
        top
    }

    /// As [`keep_pairs`], of the pairs turned back.
    unsafe fn turn_pairs<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32>(
        a: Tile<f32, { [HB, TOK, 1, P] }>,
        b: Tile<f32, { [HB, TOK, 1, P] }>,
        c0: Tile<f32, { [HB, TOK, 1, P] }>,
        c1: Tile<f32, { [HB, TOK, 1, P] }>,
        s0: Tile<f32, { [HB, TOK, 1, P] }>,
        s1: Tile<f32, { [HB, TOK, 1, P] }>,
        hi: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        lo: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        f1: Tile<f32, { [TOK] }>,
        f2: Tile<f32, { [TOK] }>,
        top: Tile<f32, { [HB, TOK, 1, P] }>,
        h: i32,
        t: i32,
        j: i32,
    ) -> Tile<f32, { [HB, TOK, 1, P] }> {
        let turned_a: Tile<f32, { [HB, TOK, 1, P] }> = fma(b, s1, a * c0, rounding::NearestEven, ftz::Disabled);
        let turned_b: Tile<f32, { [HB, TOK, 1, P] }> = fma(negf(a), s0, b * c1, rounding::NearestEven, ftz::Disabled);
        unsafe { keep_pairs::<HB, TOK, P, TERMS>(turned_a, turned_b, hi, lo, f1, f2, top, h, t, j) }
    }

    /// Un-rotates UN loads of heads, all of them asked for before any is used: the loop is bound by latency. The loads
    /// are written out: a function around them gives another cubin.
    pub unsafe fn turn<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32, const UN: i32>(
        from: &Partition<f32, { [HB, TOK, 1, P] }>,
        hi: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        lo: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        c0: Tile<f32, { [HB, TOK, 1, P] }>,
        c1: Tile<f32, { [HB, TOK, 1, P] }>,
        s0: Tile<f32, { [HB, TOK, 1, P] }>,
        s1: Tile<f32, { [HB, TOK, 1, P] }>,
        f1: Tile<f32, { [TOK] }>,
        f2: Tile<f32, { [TOK] }>,
        top: Tile<f32, { [HB, TOK, 1, P] }>,
        h: i32,
        t: i32,
    ) -> Tile<f32, { [HB, TOK, 1, P] }> {
        let mut top: Tile<f32, { [HB, TOK, 1, P] }> = top;
        if UN == 2i32 {
            let a0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            top = unsafe {
                turn_pairs::<HB, TOK, P, TERMS>(a0, b0, c0, c1, s0, s1, hi, lo, f1, f2, top, h, t, 0i32)
            };
            top = unsafe {
                turn_pairs::<HB, TOK, P, TERMS>(a1, b1, c0, c1, s0, s1, hi, lo, f1, f2, top, h + 1i32, t, 0i32)
            };
        }
        if UN == 4i32 {
            let a0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a2: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b2: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a3: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b3: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            top = unsafe {
                turn_pairs::<HB, TOK, P, TERMS>(a0, b0, c0, c1, s0, s1, hi, lo, f1, f2, top, h, t, 0i32)
            };
            top = unsafe {
                turn_pairs::<HB, TOK, P, TERMS>(a1, b1, c0, c1, s0, s1, hi, lo, f1, f2, top, h + 1i32, t, 0i32)
            };
            top = unsafe {
                turn_pairs::<HB, TOK, P, TERMS>(a2, b2, c0, c1, s0, s1, hi, lo, f1, f2, top, h + 2i32, t, 0i32)
            };
            top = unsafe {
                turn_pairs::<HB, TOK, P, TERMS>(a3, b3, c0, c1, s0, s1, hi, lo, f1, f2, top, h + 3i32, t, 0i32)
            };
        }
        top
    }

    /// Value heads: as [`turn`], without the rotation.
    pub unsafe fn keep<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32, const UN: i32>(
        from: &Partition<f32, { [HB, TOK, 1, P] }>,
        hi: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        lo: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        f1: Tile<f32, { [TOK] }>,
        f2: Tile<f32, { [TOK] }>,
        top: Tile<f32, { [HB, TOK, 1, P] }>,
        h: i32,
        t: i32,
    ) -> Tile<f32, { [HB, TOK, 1, P] }> {
        let mut top: Tile<f32, { [HB, TOK, 1, P] }> = top;
        if UN == 2i32 {
            let a0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            top = unsafe {
                keep_pairs::<HB, TOK, P, TERMS>(a0, b0, hi, lo, f1, f2, top, h, t, 0i32)
            };
            top = unsafe {
                keep_pairs::<HB, TOK, P, TERMS>(a1, b1, hi, lo, f1, f2, top, h + 1i32, t, 0i32)
            };
        }
        if UN == 4i32 {
            let a0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b0: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b1: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a2: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b2: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let a3: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let b3: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            top = unsafe {
                keep_pairs::<HB, TOK, P, TERMS>(a0, b0, hi, lo, f1, f2, top, h, t, 0i32)
            };
            top = unsafe {
                keep_pairs::<HB, TOK, P, TERMS>(a1, b1, hi, lo, f1, f2, top, h + 1i32, t, 0i32)
            };
            top = unsafe {
                keep_pairs::<HB, TOK, P, TERMS>(a2, b2, hi, lo, f1, f2, top, h + 2i32, t, 0i32)
            };
            top = unsafe {
                keep_pairs::<HB, TOK, P, TERMS>(a3, b3, hi, lo, f1, f2, top, h + 3i32, t, 0i32)
            };
        }
        top
    }

    /// All heads of one tensor for one tile of tokens; SPIN says whether they are rotated. Any sizes, any pairing.
    pub unsafe fn heads_any<const TOK: i32, const P: i32, const TERMS: i32, const LANE: i32, const SPIN: i32>(
        g: *mut f32, batch: i32, g_b: i64, g_h: i32, g_s: i32, cos: *mut f32, cos_b: i64, cos_s: i32,
        sin: *mut f32, sin_b: i64, sin_s: i32, u: *mut f16, u_lo: *mut f16, u_b: i64, u_pitch: i32,
        column: i32, head_column: i32, heads: i32, seq: i32, pairs: i32, head_dim: i32, mate: i32,
        f1: Tile<f32, { [TOK] }>, f2: Tile<f32, { [TOK] }>, top: Tile<f32, { [1, TOK, 1, P] }>, t: i32,
    ) -> Tile<f32, { [1, TOK, 1, P] }> {
        let g_t = unsafe { pairs_view::<LANE>(g, batch, g_b, head_column, heads, seq, pairs, g_h, g_s, mate) };
        let c_t = unsafe { pairs_view::<LANE>(cos, batch, cos_b, 0i32, 1i32, seq, pairs, 0i32, cos_s, mate) };
        let s_t = unsafe { pairs_view::<LANE>(sin, batch, sin_b, 0i32, 1i32, seq, pairs, 0i32, sin_s, mate) };
        let hi_t = unsafe {
            u_pairs_view::<LANE>(u, batch, u_b, column + head_column, heads, seq, pairs, head_dim, u_pitch, mate)
        };
        let lo_t = unsafe {
            u_pairs_view::<LANE>(u_lo, batch, u_b, column + head_column, heads, seq, pairs, head_dim, u_pitch, mate)
        };
        let g_p: Partition<f32, { [1, TOK, 1, P] }> = g_t.partition(shape![1, TOK, 1, P]);
        let c_p: Partition<f32, { [1, TOK, 1, P] }> = c_t.partition(shape![1, TOK, 1, P]);
        let s_p: Partition<f32, { [1, TOK, 1, P] }> = s_t.partition(shape![1, TOK, 1, P]);
        let mut hi: PartitionMut<f16, { [1, TOK, 1, P] }> = unsafe { hi_t.partition_full_mut(shape![1, TOK, 1, P]) };
        let mut lo: PartitionMut<f16, { [1, TOK, 1, P] }> = unsafe { lo_t.partition_full_mut(shape![1, TOK, 1, P]) };
        let mut top: Tile<f32, { [1, TOK, 1, P] }> = top;
        for j in 0i32..ceil_div(pairs, P) {
            for h in 0i32..heads {
                let a: Tile<f32, { [1, TOK, 1, P] }> =
                    load_view_tko(&g_p, [h, t, 0i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled);
                let b: Tile<f32, { [1, TOK, 1, P] }> =
                    load_view_tko(&g_p, [h, t, 1i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled);
                if SPIN == 1i32 {
                    let c0: Tile<f32, { [1, TOK, 1, P] }> =
                        load_view_tko(&c_p, [0i32, t, 0i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled);
                    let c1: Tile<f32, { [1, TOK, 1, P] }> =
                        load_view_tko(&c_p, [0i32, t, 1i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled);
                    let s0: Tile<f32, { [1, TOK, 1, P] }> =
                        load_view_tko(&s_p, [0i32, t, 0i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled);
                    let s1: Tile<f32, { [1, TOK, 1, P] }> =
                        load_view_tko(&s_p, [0i32, t, 1i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled);
                    top = unsafe {
                        turn_pairs::<1, TOK, P, TERMS>(a, b, c0, c1, s0, s1, &mut hi, &mut lo, f1, f2, top, h, t, j)
                    };
                } else {
                    top = unsafe { keep_pairs::<1, TOK, P, TERMS>(a, b, &mut hi, &mut lo, f1, f2, top, h, t, j) };
                }
            }
        }
        top
    }
}

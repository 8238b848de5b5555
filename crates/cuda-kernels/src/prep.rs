//! Un-rotates the gradients and rounds all operands to fp16, in one pass over memory.
#[cutile::module]
pub mod prep {
    use crate::words::words::*;
    use cutile::core::*;

    /// f32 `[heads, seq, 2, half]` of one batch entry.
    unsafe fn heads_view<const EL: i32, const BY: i32>(
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
    unsafe fn u_view<const H16: i32>(
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

    /// |x| where finite, else 0.
    fn magnitude<const A: i32, const B: i32, const C: i32, const D: i32>(
        x: Tile<f32, { [A, B, C, D] }>,
    ) -> Tile<f32, { [A, B, C, D] }> {
        let a: Tile<f32, { [A, B, C, D] }> = absf(x);
        let big: Tile<f32, { [A, B, C, D] }> = broadcast_scalar(3.4028235e38f32, shape![A, B, C, D]);
        let zero: Tile<f32, { [A, B, C, D] }> = broadcast_scalar(0.0f32, shape![A, B, C, D]);
        select(le_tile(a, big), a, zero)
    }

    unsafe fn put<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32>(
        x: Tile<f32, { [HB, TOK, 1, P] }>,
        s1: Tile<f32, { [TOK] }>,
        s2: Tile<f32, { [TOK] }>,
        hi: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        lo: &mut PartitionMut<f16, { [HB, TOK, 1, P] }>,
        h: i32,
        t: i32,
        part: i32,
    ) {
        let x = x * s1.reshape(shape![1, TOK, 1, 1]).broadcast(shape![HB, TOK, 1, P]);
        let x = x * s2.reshape(shape![1, TOK, 1, 1]).broadcast(shape![HB, TOK, 1, P]);
        let high: Tile<f16, { [HB, TOK, 1, P] }> = ftof(x, rounding::NearestEven);
        let _a: Token = unsafe {
            store_view_tko_mut(hi, high, [h, t, part, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled)
        };
        if TERMS == 2i32 {
            let back: Tile<f32, { [HB, TOK, 1, P] }> = ftof(high, rounding::NearestEven);
            let rest = x - back;
            let big: Tile<f32, { [HB, TOK, 1, P] }> = broadcast_scalar(3.4028235e38f32, shape![HB, TOK, 1, P]);
            let zero: Tile<f32, { [HB, TOK, 1, P] }> = broadcast_scalar(0.0f32, shape![HB, TOK, 1, P]);
            let rest = select(le_tile(absf(rest), big), rest, zero);
            let low: Tile<f16, { [HB, TOK, 1, P] }> = ftof(rest, rounding::NearestEven);
            let _b: Token = unsafe {
                store_view_tko_mut(lo, low, [h, t, part, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled)
            };
        }
    }

    /// As [`put`], for one head and any tile of its pairs.
    unsafe fn put_at<const TOK: i32, const P: i32, const TERMS: i32>(
        x: Tile<f32, { [1, TOK, 1, P] }>,
        s1: Tile<f32, { [TOK] }>,
        s2: Tile<f32, { [TOK] }>,
        hi: &mut PartitionMut<f16, { [1, TOK, 1, P] }>,
        lo: &mut PartitionMut<f16, { [1, TOK, 1, P] }>,
        h: i32,
        t: i32,
        part: i32,
        j: i32,
    ) {
        let x = x * s1.reshape(shape![1, TOK, 1, 1]).broadcast(shape![1, TOK, 1, P]);
        let x = x * s2.reshape(shape![1, TOK, 1, 1]).broadcast(shape![1, TOK, 1, P]);
        let high: Tile<f16, { [1, TOK, 1, P] }> = ftof(x, rounding::NearestEven);
        let _a: Token = unsafe {
            store_view_tko_mut(hi, high, [h, t, part, j], ordering::Weak, scope::TileBlock, None, tma::Disabled)
        };
        if TERMS == 2i32 {
            let back: Tile<f32, { [1, TOK, 1, P] }> = ftof(high, rounding::NearestEven);
            let rest = x - back;
            let big: Tile<f32, { [1, TOK, 1, P] }> = broadcast_scalar(3.4028235e38f32, shape![1, TOK, 1, P]);
            let zero: Tile<f32, { [1, TOK, 1, P] }> = broadcast_scalar(0.0f32, shape![1, TOK, 1, P]);
            let rest = select(le_tile(absf(rest), big), rest, zero);
            let low: Tile<f16, { [1, TOK, 1, P] }> = ftof(rest, rounding::NearestEven);
            let _b: Token = unsafe {
                store_view_tko_mut(lo, low, [h, t, part, j], ordering::Weak, scope::TileBlock, None, tma::Disabled)
            };
        }
    }

    /// f32 `[heads, seq, 2, pairs]` of one batch entry: both elements of every pair, whichever way heads are paired.
    unsafe fn pairs_view<const LANE: i32>(
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
    unsafe fn u_pairs_view<const LANE: i32>(
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

    /// All heads of one tensor for one tile of tokens; SPIN says whether they are rotated. Any sizes, any pairing.
    unsafe fn heads_any<const TOK: i32, const P: i32, const TERMS: i32, const LANE: i32, const SPIN: i32>(
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
                let mut a: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(
                    &g_p, [h, t, 0i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled,
                );
                let mut b: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(
                    &g_p, [h, t, 1i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled,
                );
                if SPIN == 1i32 {
                    let c0: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(
                        &c_p, [0i32, t, 0i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled,
                    );
                    let c1: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(
                        &c_p, [0i32, t, 1i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled,
                    );
                    let s0: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(
                        &s_p, [0i32, t, 0i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled,
                    );
                    let s1: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(
                        &s_p, [0i32, t, 1i32, j], ordering::Weak, scope::TileBlock, None, tma::Disabled,
                    );
                    let turned: Tile<f32, { [1, TOK, 1, P] }> = fma(b, s1, a * c0, rounding::NearestEven, ftz::Disabled);
                    b = fma(negf(a), s0, b * c1, rounding::NearestEven, ftz::Disabled);
                    a = turned;
                }
                top = maxf(top, magnitude::<1, TOK, 1, P>(a), nan::Disabled, ftz::Disabled);
                top = maxf(top, magnitude::<1, TOK, 1, P>(b), nan::Disabled, ftz::Disabled);
                unsafe { put_at::<TOK, P, TERMS>(a, f1, f2, &mut hi, &mut lo, h, t, 0i32, j) };
                unsafe { put_at::<TOK, P, TERMS>(b, f1, f2, &mut hi, &mut lo, h, t, 1i32, j) };
            }
        }
        top
    }

    /// Un-rotates UN loads of heads, all of them asked for before any is used: the loop is bound by latency.
    unsafe fn turn<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32, const UN: i32>(
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
            let g0a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g0b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let u0a: Tile<f32, { [HB, TOK, 1, P] }> = fma(g0b, s1, g0a * c0, rounding::NearestEven, ftz::Disabled);
            let u0b: Tile<f32, { [HB, TOK, 1, P] }> = fma(negf(g0a), s0, g0b * c1, rounding::NearestEven, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u0a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u0b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(u0a, f1, f2, hi, lo, h, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(u0b, f1, f2, hi, lo, h, t, 1i32) };
            let u1a: Tile<f32, { [HB, TOK, 1, P] }> = fma(g1b, s1, g1a * c0, rounding::NearestEven, ftz::Disabled);
            let u1b: Tile<f32, { [HB, TOK, 1, P] }> = fma(negf(g1a), s0, g1b * c1, rounding::NearestEven, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u1a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u1b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(u1a, f1, f2, hi, lo, h + 1i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(u1b, f1, f2, hi, lo, h + 1i32, t, 1i32) };
        }
        if UN == 4i32 {
            let g0a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g0b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g2a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g2b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g3a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g3b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let u0a: Tile<f32, { [HB, TOK, 1, P] }> = fma(g0b, s1, g0a * c0, rounding::NearestEven, ftz::Disabled);
            let u0b: Tile<f32, { [HB, TOK, 1, P] }> = fma(negf(g0a), s0, g0b * c1, rounding::NearestEven, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u0a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u0b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(u0a, f1, f2, hi, lo, h, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(u0b, f1, f2, hi, lo, h, t, 1i32) };
            let u1a: Tile<f32, { [HB, TOK, 1, P] }> = fma(g1b, s1, g1a * c0, rounding::NearestEven, ftz::Disabled);
            let u1b: Tile<f32, { [HB, TOK, 1, P] }> = fma(negf(g1a), s0, g1b * c1, rounding::NearestEven, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u1a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u1b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(u1a, f1, f2, hi, lo, h + 1i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(u1b, f1, f2, hi, lo, h + 1i32, t, 1i32) };
            let u2a: Tile<f32, { [HB, TOK, 1, P] }> = fma(g2b, s1, g2a * c0, rounding::NearestEven, ftz::Disabled);
            let u2b: Tile<f32, { [HB, TOK, 1, P] }> = fma(negf(g2a), s0, g2b * c1, rounding::NearestEven, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u2a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u2b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(u2a, f1, f2, hi, lo, h + 2i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(u2b, f1, f2, hi, lo, h + 2i32, t, 1i32) };
            let u3a: Tile<f32, { [HB, TOK, 1, P] }> = fma(g3b, s1, g3a * c0, rounding::NearestEven, ftz::Disabled);
            let u3b: Tile<f32, { [HB, TOK, 1, P] }> = fma(negf(g3a), s0, g3b * c1, rounding::NearestEven, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u3a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(u3b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(u3a, f1, f2, hi, lo, h + 3i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(u3b, f1, f2, hi, lo, h + 3i32, t, 1i32) };
        }
        top
    }

    /// Value heads: as [`turn`], without the rotation.
    unsafe fn keep<const HB: i32, const TOK: i32, const P: i32, const TERMS: i32, const UN: i32>(
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
            let g0a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g0b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g0a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g0b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(g0a, f1, f2, hi, lo, h, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(g0b, f1, f2, hi, lo, h, t, 1i32) };
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g1a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g1b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(g1a, f1, f2, hi, lo, h + 1i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(g1b, f1, f2, hi, lo, h + 1i32, t, 1i32) };
        }
        if UN == 4i32 {
            let g0a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g0b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g1b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 1i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g2a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g2b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 2i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g3a: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let g3b: Tile<f32, { [HB, TOK, 1, P] }> =
                load_view_tko(from, [h + 3i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g0a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g0b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(g0a, f1, f2, hi, lo, h, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(g0b, f1, f2, hi, lo, h, t, 1i32) };
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g1a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g1b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(g1a, f1, f2, hi, lo, h + 1i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(g1b, f1, f2, hi, lo, h + 1i32, t, 1i32) };
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g2a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g2b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(g2a, f1, f2, hi, lo, h + 2i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(g2b, f1, f2, hi, lo, h + 2i32, t, 1i32) };
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g3a), nan::Disabled, ftz::Disabled);
            top = maxf(top, magnitude::<HB, TOK, 1, P>(g3b), nan::Disabled, ftz::Disabled);
            unsafe { put::<HB, TOK, P, TERMS>(g3a, f1, f2, hi, lo, h + 3i32, t, 0i32) };
            unsafe { put::<HB, TOK, P, TERMS>(g3b, f1, f2, hi, lo, h + 3i32, t, 1i32) };
        }
        top
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
    unsafe fn cast_weights<const WR: i32, const XC: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        wq: *mut f32, wk: *mut f32, wv: *mut f32, wx: *mut f16, wx_lo: *mut f16, hidden: i32,
        wq_s: i32, wk_s: i32, wv_s: i32, q_rows: i32, kv_rows: i32, w_rows: i32, wx_pitch: i32,
        q_blocks: i32, kv_blocks: i32, block: i32, power: Tile<i32, { [WR] }>,
    ) -> Tile<f32, { [WR] }> {
        let p_half: Tile<i32, { [WR] }> = shri(power, broadcast_scalar(1i32, shape![WR]));
        let f1: Tile<f32, { [WR] }> = exp2i::<WR>(p_half);
        let f2: Tile<f32, { [WR] }> = exp2i::<WR>(power - p_half);
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
        unsafe { cast_rows::<WR, XC, TERMS, EL, BY>(from, rows, pitch, hi, lo, to_rows, wx_pitch, hidden, tile, f1, f2) }
    }

    /// First element of a row.
    fn row_of(base: *mut f16, row: i32, pitch: i32) -> PointerTile<*mut f16, { [] }> {
        let row: Tile<i32, { [] }> = scalar_to_tile(row);
        let row: Tile<i64, { [] }> = exti(row);
        let pitch: Tile<i32, { [] }> = scalar_to_tile(pitch);
        let pitch: Tile<i64, { [] }> = exti(pitch);
        let base: PointerTile<*mut f16, { [] }> = pointer_to_tile(base);
        addptr_tile(base, row * pitch)
    }

    /// Words `1024c..` of the `count` from `first`, -1000 past the end.
    unsafe fn status_tile(words: *mut i32, first: i32, count: i32, c: i32, ready: Token) -> Tile<i32, { [1024] }> {
        let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(words);
        let base: PointerTile<*mut i32, { [] }> = addptr(base, first);
        let base: PointerTile<*mut i32, { [1] }> = reshape_ptr(base, shape![1]);
        let base: PointerTile<*mut i32, { [1024] }> = broadcast_ptr(base, shape![1024]);
        let lane: Tile<i32, { [1024] }> = iota(shape![1024]);
        let index: Tile<i32, { [1024] }> = lane + broadcast_scalar(c * 1024i32, shape![1024]);
        let inside: Tile<bool, { [1024] }> = lt_tile(index, broadcast_scalar(count, shape![1024]));
        let at: PointerTile<*mut i32, { [1024] }> = addptr_tile(base, index);
        let (value, _done): (Tile<i32, { [1024] }>, Token) = unsafe {
            load_ptr_tko(
                at, ordering::Weak, None::<scope::TileBlock>, Some(inside), Some(-1000i32), Some(ready), Latency::<0>,
            )
        };
        value
    }

    /// The largest `words[a + i] - words[b + i]` of `count`.
    unsafe fn largest_difference(words: *mut i32, a: i32, b: i32, count: i32, ready: Token) -> i32 {
        let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(words);
        let a_base: PointerTile<*mut i32, { [1] }> = reshape_ptr(addptr(base, a), shape![1]);
        let b_base: PointerTile<*mut i32, { [1] }> = reshape_ptr(addptr(base, b), shape![1]);
        let a_base: PointerTile<*mut i32, { [1024] }> = broadcast_ptr(a_base, shape![1024]);
        let b_base: PointerTile<*mut i32, { [1024] }> = broadcast_ptr(b_base, shape![1024]);
        let lane: Tile<i32, { [1024] }> = iota(shape![1024]);
        let mut top: Tile<i32, { [1024] }> = broadcast_scalar(-1000i32, shape![1024]);
        for c in 0i32..ceil_div(count, 1024i32) {
            let index: Tile<i32, { [1024] }> = lane + broadcast_scalar(c * 1024i32, shape![1024]);
            let inside: Tile<bool, { [1024] }> = lt_tile(index, broadcast_scalar(count, shape![1024]));
            let (left, _a): (Tile<i32, { [1024] }>, Token) = unsafe {
                load_ptr_tko(
                    addptr_tile(a_base, index), ordering::Weak, None::<scope::TileBlock>, Some(inside), Some(-1000i32),
                    Some(ready), Latency::<0>,
                )
            };
            let (right, _b): (Tile<i32, { [1024] }>, Token) = unsafe {
                load_ptr_tko(
                    addptr_tile(b_base, index), ordering::Weak, None::<scope::TileBlock>, Some(inside), Some(0i32),
                    Some(ready), Latency::<0>,
                )
            };
            // A row of zeros stays below all others.
            let zero: Tile<bool, { [1024] }> = eq_tile(left, broadcast_scalar(-1000i32, shape![1024]));
            let difference: Tile<i32, { [1024] }> = select(zero, left, left - right);
            top = maxi(top, difference);
        }
        let top: Tile<i32, { [] }> = reduce_max(top, 0i32);
        tile_to_scalar(top)
    }

    /// The power of two for a tensor whose largest exponent is `top`: `usual` where that fits.
    fn settle_power(top: i32, usual: i32) -> i32 {
        let mut power: i32 = 13i32 - top;
        if top + usual <= 14i32 {
            if top + usual >= -2i32 {
                power = usual;
            }
        }
        if top <= -1000i32 {
            power = usual;
        }
        power
    }

    /// The exponents of rows that are not all zero, -1000 of those that are.
    fn exponent_or_none<const N: i32>(top: Tile<f32, { [N] }>) -> Tile<i32, { [N] }> {
        let none: Tile<bool, { [N] }> = eq_tile(top, broadcast_scalar(0.0f32, shape![N]));
        select(none, broadcast_scalar(-1000i32, shape![N]), exponent::<N>(top))
    }

    /// One block of rows of X, at the usual power of two.
    unsafe fn x_block<const WR: i32, const XC: i32, const TERMS: i32, const EL: i32, const BY: i32>(
        x: *mut f32, wx: *mut f16, wx_lo: *mut f16, words: *mut i32, seq: i32, hidden: i32, x_b: i64, x_s: i32,
        w_rows: i32, wx_pitch: i32, x_tiles: i32, x_exps: i32, status: i32, block: i32,
    ) {
        let batch: i32 = block / x_tiles;
        let t: i32 = block - batch * x_tiles;
        let row0: i32 = batch * seq;
        let usual: Tile<i32, { [WR] }> = broadcast_scalar(10i32, shape![WR]);
        let f1: Tile<f32, { [WR] }> = exp2i::<WR>(usual);
        let f2: Tile<f32, { [WR] }> = broadcast_scalar(1.0f32, shape![WR]);
        let from: PointerTile<*mut f32, { [] }> = at::<f32>(x, batch, x_b);
        let hi: PointerTile<*mut f16, { [] }> = row_of(wx, w_rows + row0, wx_pitch);
        let lo: PointerTile<*mut f16, { [] }> = row_of(wx_lo, w_rows + row0, wx_pitch);
        let top: Tile<f32, { [WR] }> = unsafe {
            cast_rows::<WR, XC, TERMS, EL, BY>(from, seq, x_s, hi, lo, seq, wx_pitch, hidden, t, f1, f2)
        };
        let e: Tile<i32, { [WR] }> = exponent_or_none::<WR>(top);
        let e_base: PointerTile<*mut i32, { [] }> = pointer_to_tile(words);
        let e_base: PointerTile<*mut i32, { [] }> = addptr(e_base, x_exps + row0);
        let e_shape: Shape<{ [-1] }> = Shape::<{ [-1] }> { dims: &[seq] };
        let e_strides: Array<{ [1] }> = Array::<{ [1] }> { dims: &[] };
        let e_t: Tensor<i32, { [-1] }> =
            unsafe { make_tensor_view(e_base, e_shape, e_strides, new_token_unordered()) };
        let mut e_p: PartitionMut<i32, { [WR] }> = unsafe { e_t.partition_full_mut(shape![WR]) };
        let _e: Token = unsafe {
            store_view_tko_mut(&mut e_p, e, [t], ordering::Weak, scope::TileBlock, None, tma::Disabled)
        };
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

    /// Power of two that brings a row's largest magnitude near 2^13, or `usual` where that already fits.
    fn choose<const N: i32>(top: Tile<f32, { [N] }>, usual: i32) -> Tile<i32, { [N] }> {
        let e: Tile<i32, { [N] }> = exponent::<N>(top);
        let usual_t: Tile<i32, { [N] }> = broadcast_scalar(usual, shape![N]);
        let fitted: Tile<i32, { [N] }> = broadcast_scalar(13i32, shape![N]) - e;
        let low: Tile<bool, { [N] }> = ge_tile(e + usual_t, broadcast_scalar(-2i32, shape![N]));
        let high: Tile<bool, { [N] }> = le_tile(e + usual_t, broadcast_scalar(14i32, shape![N]));
        let zero: Tile<bool, { [N] }> = eq_tile(top, broadcast_scalar(0.0f32, shape![N]));
        select((low & high) | zero, usual_t, fitted)
    }

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
            let row0: i32 = batch * seq;
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
            let c0: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(&c_p, [0i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let c1: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(&c_p, [0i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let s0: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(&s_p, [0i32, t, 0i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let s1: Tile<f32, { [1, TOK, 1, P] }> = load_view_tko(&s_p, [0i32, t, 1i32, 0i32], ordering::Weak, scope::TileBlock, None, tma::Disabled);
            let c0 = c0.broadcast(shape![HB, TOK, 1, P]);
            let c1 = c1.broadcast(shape![HB, TOK, 1, P]);
            let s0 = s0.broadcast(shape![HB, TOK, 1, P]);
            let s1 = s1.broadcast(shape![HB, TOK, 1, P]);
            let head_dim: i32 = half + half;
            let seq_t: Tile<i32, { [] }> = scalar_to_tile(seq);
            let seq64: Tile<i64, { [] }> = exti(seq_t);
            let pitch_t: Tile<i32, { [] }> = scalar_to_tile(u_pitch);
            let pitch64: Tile<i64, { [] }> = exti(pitch_t);
            let u_b: i64 = tile_to_scalar(seq64 * pitch64);
            let qh_t = unsafe { u_view::<H16>(u, batch, u_b, 0i32, q_heads, seq, half, u_pitch) };
            let kh_t = unsafe { u_view::<H16>(u, batch, u_b, q_heads * head_dim, kv_heads, seq, half, u_pitch) };
            let vh_t = unsafe { u_view::<H16>(u, batch, u_b, (q_heads + kv_heads) * head_dim, kv_heads, seq, half, u_pitch) };
            let ql_t = unsafe { u_view::<H16>(u_lo, batch, u_b, 0i32, q_heads, seq, half, u_pitch) };
            let kl_t = unsafe { u_view::<H16>(u_lo, batch, u_b, q_heads * head_dim, kv_heads, seq, half, u_pitch) };
            let vl_t = unsafe { u_view::<H16>(u_lo, batch, u_b, (q_heads + kv_heads) * head_dim, kv_heads, seq, half, u_pitch) };
            let mut qh: PartitionMut<f16, { [HB, TOK, 1, P] }> = unsafe { qh_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut kh: PartitionMut<f16, { [HB, TOK, 1, P] }> = unsafe { kh_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut vh: PartitionMut<f16, { [HB, TOK, 1, P] }> = unsafe { vh_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut ql: PartitionMut<f16, { [HB, TOK, 1, P] }> = unsafe { ql_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut kl: PartitionMut<f16, { [HB, TOK, 1, P] }> = unsafe { kl_t.partition_full_mut(shape![HB, TOK, 1, P]) };
            let mut vl: PartitionMut<f16, { [HB, TOK, 1, P] }> = unsafe { vl_t.partition_full_mut(shape![HB, TOK, 1, P]) };

            let mut p: Tile<i32, { [TOK] }> = broadcast_scalar(10i32, shape![TOK]);
            let mut passes: i32 = 1i32;
            let mut pass: i32 = 0i32;
            while pass < passes {
                let p_half: Tile<i32, { [TOK] }> = shri(p, broadcast_scalar(1i32, shape![TOK]));
                let f1: Tile<f32, { [TOK] }> = exp2i::<TOK>(p_half);
                let f2: Tile<f32, { [TOK] }> = exp2i::<TOK>(p - p_half);
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
                    let m: Tile<f32, { [TOK, 1, P] }> = reduce_max(top, 0i32);
                    let m: Tile<f32, { [TOK, P] }> = m.reshape(shape![TOK, P]);
                    let m: Tile<f32, { [TOK] }> = reduce_max(m, 1i32);
                    p = choose::<TOK>(m, 10i32);
                    let moved: Tile<i32, { [TOK] }> = p - broadcast_scalar(10i32, shape![TOK]);
                    let moved: Tile<i32, { [] }> = reduce_max(absi(moved), 0i32);
                    passes = min(tile_to_scalar(moved), 1i32) + 1i32;
                }
                pass = pass + 1i32;
            }
            let p_base: PointerTile<*mut i32, { [] }> = pointer_to_tile(words);
            let p_base: PointerTile<*mut i32, { [] }> = addptr(p_base, 16i32 + row0);
            let p_shape: Shape<{ [-1] }> = Shape::<{ [-1] }> { dims: &[seq] };
            let p_strides: Array<{ [1] }> = Array::<{ [1] }> { dims: &[] };
            let p_t: Tensor<i32, { [-1] }> = unsafe { make_tensor_view(p_base, p_shape, p_strides, new_token_unordered()) };
            let mut p_p: PartitionMut<i32, { [TOK] }> = unsafe { p_t.partition_full_mut(shape![TOK]) };
            let _e: Token = unsafe {
                store_view_tko_mut(&mut p_p, p, [t], ordering::Weak, scope::TileBlock, None, tma::Disabled)
            };
            // Whether some token's power is not the usual one.
            let moved: Tile<i32, { [TOK] }> = absi(p - broadcast_scalar(10i32, shape![TOK]));
            let moved: Tile<i32, { [] }> = reduce_max(moved, 0i32);
            unsafe { set_word(words, status + pid.0, tile_to_scalar(moved)) };
        } else if pid.0 < token_blocks + x_blocks {
            unsafe {
                x_block::<WR, XC, TERMS, EL, BY>(
                    x, wx, wx_lo, words, seq, hidden, x_b, x_s, w_rows, wx_pitch, x_tiles, x_exps,
                    status + token_blocks, pid.0 - token_blocks,
                )
            };
        } else {
            unsafe {
                w_block::<WR, XC, TERMS, EL, BY>(
                    wq, wk, wv, wx, wx_lo, words, hidden, wq_s, wk_s, wv_s, q_rows, kv_rows, w_rows, wx_pitch,
                    q_blocks, kv_blocks, status + token_blocks + x_blocks, pid.0 - token_blocks - x_blocks,
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
            let row0: i32 = batch * seq;
            let rotary_pairs: i32 = rotary_dim / 2i32;
            let tail_pairs: i32 = (head_dim - rotary_dim) / 2i32;
            let whole_pairs: i32 = head_dim / 2i32;
            let mut mate: i32 = 1i32;
            if LANE == 1i32 {
                mate = rotary_pairs;
            }
            let seq_t: Tile<i32, { [] }> = scalar_to_tile(seq);
            let seq64: Tile<i64, { [] }> = exti(seq_t);
            let pitch_t: Tile<i32, { [] }> = scalar_to_tile(u_pitch);
            let pitch64: Tile<i64, { [] }> = exti(pitch_t);
            let u_b: i64 = tile_to_scalar(seq64 * pitch64);
            let mut p: Tile<i32, { [TOK] }> = broadcast_scalar(10i32, shape![TOK]);
            let mut passes: i32 = 1i32;
            let mut pass: i32 = 0i32;
            while pass < passes {
                let p_half: Tile<i32, { [TOK] }> = shri(p, broadcast_scalar(1i32, shape![TOK]));
                let f1: Tile<f32, { [TOK] }> = exp2i::<TOK>(p_half);
                let f2: Tile<f32, { [TOK] }> = exp2i::<TOK>(p - p_half);
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
                        (q_heads + kv_heads) * head_dim, 0i32, kv_heads, seq, whole_pairs, head_dim, whole_pairs, f1, f2, top, t,
                    )
                };
                if pass == 0i32 {
                    let m: Tile<f32, { [TOK, 1, P] }> = reduce_max(top, 0i32);
                    let m: Tile<f32, { [TOK, P] }> = m.reshape(shape![TOK, P]);
                    let m: Tile<f32, { [TOK] }> = reduce_max(m, 1i32);
                    p = choose::<TOK>(m, 10i32);
                    let moved: Tile<i32, { [TOK] }> = p - broadcast_scalar(10i32, shape![TOK]);
                    let moved: Tile<i32, { [] }> = reduce_max(absi(moved), 0i32);
                    passes = min(tile_to_scalar(moved), 1i32) + 1i32;
                }
                pass = pass + 1i32;
            }
            let p_base: PointerTile<*mut i32, { [] }> = pointer_to_tile(words);
            let p_base: PointerTile<*mut i32, { [] }> = addptr(p_base, 16i32 + row0);
            let p_shape: Shape<{ [-1] }> = Shape::<{ [-1] }> { dims: &[seq] };
            let p_strides: Array<{ [1] }> = Array::<{ [1] }> { dims: &[] };
            let p_t: Tensor<i32, { [-1] }> = unsafe { make_tensor_view(p_base, p_shape, p_strides, new_token_unordered()) };
            let mut p_p: PartitionMut<i32, { [TOK] }> = unsafe { p_t.partition_full_mut(shape![TOK]) };
            let _e: Token = unsafe {
                store_view_tko_mut(&mut p_p, p, [t], ordering::Weak, scope::TileBlock, None, tma::Disabled)
            };
            // Whether some token's power is not the usual one.
            let moved: Tile<i32, { [TOK] }> = absi(p - broadcast_scalar(10i32, shape![TOK]));
            let moved: Tile<i32, { [] }> = reduce_max(moved, 0i32);
            unsafe { set_word(words, status + pid.0, tile_to_scalar(moved)) };
        } else if pid.0 < token_blocks + x_blocks {
            unsafe {
                x_block::<WR, XC, TERMS, 1, 4>(
                    x, wx, wx_lo, words, seq, hidden, x_b, x_s, w_rows, wx_pitch, x_tiles, x_exps,
                    status + token_blocks, pid.0 - token_blocks,
                )
            };
        } else {
            unsafe {
                w_block::<WR, XC, TERMS, 1, 4>(
                    wq, wk, wv, wx, wx_lo, words, hidden, wq_s, wk_s, wv_s, q_rows, kv_rows, w_rows, wx_pitch,
                    q_blocks, kv_blocks, status + token_blocks + x_blocks, pid.0 - token_blocks - x_blocks,
                )
            };
        }
    }

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
        q_blocks: i32, kv_blocks: i32, token_blocks: i32, x_blocks: i32, w_blocks: i32, x_exps: i32, status: i32, programs: i32,
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
                let lane: Tile<i32, { [WR] }> = iota(shape![WR]);
                let row: Tile<i32, { [WR] }> = lane + broadcast_scalar(t * WR, shape![WR]);
                let row: Tile<i32, { [WR] }> = mini(row, broadcast_scalar(seq - 1i32, shape![WR]));
                let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(words);
                let base: PointerTile<*mut i32, { [] }> = addptr(base, 16i32 + b * seq);
                let base: PointerTile<*mut i32, { [1] }> = reshape_ptr(base, shape![1]);
                let base: PointerTile<*mut i32, { [WR] }> = broadcast_ptr(base, shape![WR]);
                let at_row: PointerTile<*mut i32, { [WR] }> = addptr_tile(base, row);
                let (p, _done): (Tile<i32, { [WR] }>, Token) = unsafe {
                    load_ptr_tko(
                        at_row, ordering::Weak, None::<scope::TileBlock>, None, None, Some(ready), Latency::<0>,
                    )
                };
                let q: Tile<i32, { [WR] }> = broadcast_scalar(x_power, shape![WR]) - p;
                let q: Tile<i32, { [WR] }> = maxi(q, broadcast_scalar(-252i32, shape![WR]));
                let q: Tile<i32, { [WR] }> = mini(q, broadcast_scalar(252i32, shape![WR]));
                let q_half: Tile<i32, { [WR] }> = shri(q, broadcast_scalar(1i32, shape![WR]));
                let f1: Tile<f32, { [WR] }> = exp2i::<WR>(q_half);
                let f2: Tile<f32, { [WR] }> = exp2i::<WR>(q - q_half);
                let from: PointerTile<*mut f32, { [] }> = at::<f32>(x, b, x_b);
                let hi: PointerTile<*mut f16, { [] }> = row_of(wx, w_rows + b * seq, wx_pitch);
                let lo: PointerTile<*mut f16, { [] }> = row_of(wx_lo, w_rows + b * seq, wx_pitch);
                let _top: Tile<f32, { [WR] }> = unsafe {
                    cast_rows::<WR, XC, TERMS, EL, BY>(from, seq, x_s, hi, lo, seq, wx_pitch, hidden, t, f1, f2)
                };
            }
        }
    }
}

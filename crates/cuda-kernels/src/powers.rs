//! Powers of two: of tokens and of whole tensors, and the words that tell other kernels about them.

#[cutile::module]
pub mod powers {
    use crate::words::words::*;
    use cutile::core::*;

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

    /// Power of two of each token, of what its heads hold at most.
    pub fn token_powers<const HB: i32, const TOK: i32, const P: i32>(
        top: Tile<f32, { [HB, TOK, 1, P] }>,
    ) -> Tile<i32, { [TOK] }> {
        let m: Tile<f32, { [TOK, 1, P] }> = reduce_max(top, 0i32);
        let m: Tile<f32, { [TOK, P] }> = m.reshape(shape![TOK, P]);
        let m: Tile<f32, { [TOK] }> = reduce_max(m, 1i32);
        choose::<TOK>(m, 10i32)
    }

    /// How far the tokens' powers are from the usual one, 0 where all have it.
    pub fn moved<const TOK: i32>(p: Tile<i32, { [TOK] }>) -> i32 {
        let by: Tile<i32, { [TOK] }> = p - broadcast_scalar(10i32, shape![TOK]);
        let by: Tile<i32, { [] }> = reduce_max(absi(by), 0i32);
        tile_to_scalar(by)
    }

    /// The power of two for a tensor whose largest exponent is `top`: `usual` where that fits.
    pub fn settle_power(top: i32, usual: i32) -> i32 {
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
    pub fn exponent_or_none<const N: i32>(top: Tile<f32, { [N] }>) -> Tile<i32, { [N] }> {
        let none: Tile<bool, { [N] }> = eq_tile(top, broadcast_scalar(0.0f32, shape![N]));
        select(none, broadcast_scalar(-1000i32, shape![N]), exponent::<N>(top))
    }

    /// Words `1024c..` of the `count` from `first`, -1000 past the end.
    pub unsafe fn status_tile(words: *mut i32, first: i32, count: i32, c: i32, ready: Token) -> Tile<i32, { [1024] }> {
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
    pub unsafe fn largest_difference(words: *mut i32, a: i32, b: i32, count: i32, ready: Token) -> i32 {
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

    /// The powers of tile `t` of the tokens of one batch entry, past the end that of the last.
    pub unsafe fn row_powers<const N: i32>(
        words: *mut i32, batch: i32, seq: i32, t: i32, ready: Token,
    ) -> Tile<i32, { [N] }> {
        let lane: Tile<i32, { [N] }> = iota(shape![N]);
        let row: Tile<i32, { [N] }> = lane + broadcast_scalar(t * N, shape![N]);
        let row: Tile<i32, { [N] }> = mini(row, broadcast_scalar(seq - 1i32, shape![N]));
        let base: PointerTile<*mut i32, { [] }> = pointer_to_tile(words);
        let base: PointerTile<*mut i32, { [] }> = addptr(base, 16i32 + batch * seq);
        let base: PointerTile<*mut i32, { [1] }> = reshape_ptr(base, shape![1]);
        let base: PointerTile<*mut i32, { [N] }> = broadcast_ptr(base, shape![N]);
        let at_row: PointerTile<*mut i32, { [N] }> = addptr_tile(base, row);
        let (powers, _done): (Tile<i32, { [N] }>, Token) = unsafe {
            load_ptr_tko(at_row, ordering::Weak, None::<scope::TileBlock>, None, None, Some(ready), Latency::<0>)
        };
        powers
    }
}

//! A finished tile: where it goes, and how it is stored.

use super::*;

/// What is left of the last tile: scaled and stored in slices while the next one is computed.
pub(super) struct Finished {
    pub(super) sums: Vec<Reg>,
    /// The next slice; [`SLICES`] when all are stored.
    pub(super) slice: Reg,
    /// Slices to store in a step, so that all are stored when the next tile is computed.
    pub(super) pace: Reg,
    /// For each of the thread's two rows: where its first column goes, two factors, whether the row exists.
    pub(super) rows: [FinishedRow; 2],
    /// Columns from the thread's first one on.
    pub(super) cols_left: Reg,
    /// Rows of the tile that exist, and the elements from one to the next.
    pub(super) rows_left: Reg,
    pub(super) pitch: Reg,
    /// Whether the tile is added to what is there.
    pub(super) adds: Reg,
}

pub(super) struct FinishedRow {
    pub(super) to: Reg,
    pub(super) factors: [Reg; 2],
    pub(super) exists: Reg,
}

impl Finished {
    pub(super) fn new(asm: &mut Asm) -> Self {
        let row = |asm: &mut Asm| {
            let (to, exists) = (asm.bits64(), asm.pred());
            op!(asm, "mov.b64 {to}, 0;");
            op!(asm, "setp.ne.u32 {exists}, 0, 0;");
            FinishedRow { to, factors: [asm.float(), asm.float()], exists }
        };
        let rows = [row(asm), row(asm)];
        Self {
            sums: asm.floats(SUMS),
            slice: asm.set(SLICES),
            pace: asm.set(1),
            rows,
            cols_left: asm.set(0),
            rows_left: asm.set(0),
            pitch: asm.set(0),
            adds: asm.pred(),
        }
    }

    /// Stores the next slice, if any.
    fn store_slice(&self, asm: &mut Asm) {
        let done = asm.label();
        let all = asm.test("ge.u32", self.slice, SLICES);
        op!(asm, "@{all} bra {done};");
        let places: Vec<_> = (0..SLICES).map(|_| asm.label()).collect();
        for (slice, place) in places.iter().enumerate().skip(1) {
            let this = asm.test("eq.u32", self.slice, slice);
            op!(asm, "@{this} bra {place};");
        }
        for (slice, &place) in places.iter().enumerate() {
            asm.place(place);
            let groups = SUMS / GROUP / SLICES;
            for group in slice * groups..(slice + 1) * groups {
                for (index, row) in self.rows.iter().enumerate() {
                    let first = GROUP * group + 2 * index;
                    self.store_pair(asm, row, first, 8 * group as u32);
                }
            }
            if slice + 1 < SLICES {
                op!(asm, "bra.uni {done};");
            }
        }
        asm.place(done);
        let more = asm.test("lt.u32", self.slice, SLICES);
        op!(asm, "@{more} add.u32 {}, {}, 1;", self.slice, self.slice);
    }

    /// Stores the last tile, during which nothing else happens, in whole rows through shared memory, where the stages of
    /// both warpgroups are free by then. An earlier tile's rest cannot be left: it is stored before its successor is.
    pub(super) fn store_last(&self, asm: &mut Asm, block: &Block, group: Reg, [row, col]: [Reg; 2]) {
        let done = asm.label();
        let none = asm.test("ne.u32", self.slice, 0);
        op!(asm, "@{none} bra {done};");
        // Both warpgroups have read their last stage.
        op!(asm, "bar.sync 2, {};", 2 * WARPGROUP);
        let first = asm.bits32();
        op!(asm, "mad.lo.u32 {first}, {row}, {LAST_ROW_BYTES}, {};", block.shared);
        op!(asm, "mad.lo.u32 {first}, {col}, 4, {first};");
        for (index, row) in self.rows.iter().enumerate() {
            for pair in 0..SUMS / GROUP {
                let scaled = self.scaled(asm, row, GROUP * pair + 2 * index);
                let offset = 8 * index as u32 * LAST_ROW_BYTES + 32 * pair as u32;
                op!(asm, "st.shared.v2.f32 [{first}+{offset}], {{{}, {}}};", scaled[0], scaled[1]);
            }
        }
        op!(asm, "fence.proxy.async.shared::cta;");
        let barrier = asm.bin("add.u32", group, 3);
        op!(asm, "bar.sync {barrier}, {WARPGROUP};");
        self.copy_rows(asm, block, group, [row, col]);
        asm.place(done);
    }

    /// Half of a warpgroup's threads copy a row each.
    fn copy_rows(&self, asm: &mut Asm, block: &Block, group: Reg, [row, col]: [Reg; 2]) {
        let done = asm.label();
        let own = asm.bin("and.b32", block.thread, WARPGROUP - 1);
        let others = asm.test("ge.u32", own, WARPGROUP_ROWS);
        op!(asm, "@{others} bra {done};");
        let tile_row = asm.bits32();
        op!(asm, "mad.lo.u32 {tile_row}, {group}, {WARPGROUP_ROWS}, {own};");
        let outside = asm.test("ge.s32", tile_row, self.rows_left);
        op!(asm, "@{outside} bra {done};");
        let from = asm.bits32();
        op!(asm, "mad.lo.u32 {from}, {tile_row}, {LAST_ROW_BYTES}, {};", block.shared);
        // From the thread's own place among the accumulators to the start of the row that it copies.
        let (to, below) = (asm.bits64(), asm.bin("sub.s32", tile_row, row));
        op!(asm, "mul.wide.s32 {to}, {below}, {};", self.pitch);
        op!(asm, "shl.b64 {to}, {to}, 2;");
        op!(asm, "add.s64 {to}, {to}, {};", self.rows[0].to);
        let back = asm.bits64();
        op!(asm, "mul.wide.u32 {back}, {col}, 4;");
        op!(asm, "sub.s64 {to}, {to}, {back};");
        let bytes = asm.bin("add.s32", self.cols_left, col);
        op!(asm, "min.s32 {bytes}, {bytes}, {COLS};");
        op!(asm, "shl.b32 {bytes}, {bytes}, 2;");
        op!(asm, "@!{} cp.async.bulk.global.shared::cta.bulk_group [{to}], [{from}], {bytes};", self.adds);
        op!(
            asm,
            "@{} cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [{to}], [{from}], {bytes};",
            self.adds
        );
        op!(asm, "cp.async.bulk.commit_group;");
        op!(asm, "cp.async.bulk.wait_group 0;");
        asm.place(done);
    }

    fn scaled(&self, asm: &mut Asm, row: &FinishedRow, first: usize) -> [Reg; 2] {
        [self.sums[first], self.sums[first + 1]].map(|sum| {
            let once = asm.binf("mul.rn.f32", sum, row.factors[0]);
            asm.binf("mul.rn.f32", once, row.factors[1])
        })
    }

    fn store_pair(&self, asm: &mut Asm, row: &FinishedRow, first: usize, col: u32) {
        let scaled = self.scaled(asm, row, first);
        let inside = asm.pred();
        op!(asm, "setp.gt.and.s32 {inside}, {}, {col}, {};", self.cols_left, row.exists);
        op!(asm, "@{inside} st.global.v2.f32 [{}+{}], {{{}, {}}};", row.to, 4 * col, scaled[0], scaled[1]);
    }

    /// Plans the storing for a tile of `steps` steps to come.
    pub(super) fn set_pace(&self, asm: &mut Asm, steps: Reg) {
        let pace = self.pace;
        op!(asm, "mov.b32 {pace}, 1;");
        for (fewer_than, slices) in [(SLICES, 2), (SLICES / 2, 3), (SLICES / 3, 6)] {
            let short = asm.test("lt.s32", steps, fewer_than);
            op!(asm, "@{short} mov.b32 {pace}, {slices};");
        }
    }

    /// Stores the slices of a step.
    pub(super) fn store_some(&self, asm: &mut Asm) {
        let (again, done) = (asm.label(), asm.label());
        let left = asm.set(self.pace);
        asm.place(again);
        let all = asm.test("ge.u32", self.slice, SLICES);
        op!(asm, "@{all} bra {done};");
        self.store_slice(asm);
        op!(asm, "sub.u32 {left}, {left}, 1;");
        let more = asm.test("gt.u32", left, 0);
        op!(asm, "@{more} bra {again};");
        asm.place(done);
    }

    pub(super) fn store_rest(&self, asm: &mut Asm) {
        let (again, done) = (asm.label(), asm.label());
        asm.place(again);
        let all = asm.test("ge.u32", self.slice, SLICES);
        op!(asm, "@{all} bra {done};");
        self.store_slice(asm);
        op!(asm, "bra {again};");
        asm.place(done);
    }
}

//! The instructions that Hopper adds, one function each: PTX ISA 8.3, chapters "mbarrier", "cp.async.bulk.tensor",
//! "wgmma" and "griddepcontrol".

use std::fmt::Display;

use crate::asm::{Asm, Reg, op};

/// Waits until the phase of `parity` of the barrier at `address` in shared memory is over.
pub(crate) fn wait_barrier(asm: &mut Asm, address: Reg, parity: Reg) {
    let (again, over) = (asm.label(), asm.pred());
    asm.place(again);
    op!(asm, "mbarrier.try_wait.parity.shared::cta.b64 {over}, [{address}], {parity};");
    op!(asm, "@!{over} bra {again};");
}

/// One arrival, and `bytes` more to come before the phase ends.
pub(crate) fn expect_bytes(asm: &mut Asm, address: Reg, bytes: u32) {
    op!(asm, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{address}], {bytes};");
}

/// One arrival at a barrier of a block of the cluster. Without `.release.cluster`, which would wait for all writes of the
/// thread to reach the second-level cache: readers of tiles have nothing to publish.
pub(crate) fn arrive_remote(asm: &mut Asm, when: Reg, address: Reg) {
    op!(asm, "@{when} mbarrier.arrive.shared::cluster.b64 _, [{address}];");
}

/// Where `address` of this block's shared memory lies in block `rank` of the cluster.
pub(crate) fn map_to_rank(asm: &mut Asm, address: Reg, rank: Reg) -> Reg {
    let to = asm.bits32();
    op!(asm, "mapa.shared::cluster.u32 {to}, {address}, {rank};");
    to
}

/// Copies a box of a matrix to shared memory; its bytes count at `barrier`.
pub(crate) fn load_box(asm: &mut Asm, to: Reg, map: Reg, [column, row]: [Reg; 2], barrier: Reg) {
    op!(
        asm,
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [{map}, {{{column}, {row}}}], \
         [{barrier}];"
    );
}

/// As [`load_box`], to the same place of every block in `blocks`, counted at the same barrier of each.
pub(crate) fn load_box_for_all(asm: &mut Asm, to: Reg, map: Reg, [column, row]: [Reg; 2], barrier: Reg, blocks: Reg) {
    op!(
        asm,
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [{to}], \
         [{map}, {{{column}, {row}}}], [{barrier}], {blocks};"
    );
}

/// Which way an operand lies in its tile of rows of 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Major {
    /// Rows run along the contraction.
    K,
    /// Rows run along the rows or columns of the result.
    MN,
}

/// Elements of the contraction of one multiplication.
pub(crate) const STEP: u32 = 16;
/// Bytes of a row of a tile, which is also the unit of its swizzle.
pub(crate) const ROW_BYTES: u32 = 128;

impl Major {
    /// The parts of a shared-memory descriptor beside the address: swizzle of 128 bytes, the distance between groups of
    /// eight rows, and for [`Major::MN`] that between chunks of 64 elements, each of `depth` rows.
    pub(crate) fn descriptor(self, depth: u32) -> u64 {
        let groups = u64::from((8 * ROW_BYTES) >> 4) << 32;
        let chunks = match self {
            Self::K => 1 << 16,
            Self::MN => u64::from((depth * ROW_BYTES) >> 4) << 16,
        };
        1 << 62 | groups | chunks
    }

    /// How far descriptors of consecutive multiplications lie apart.
    pub(crate) fn advance(self) -> u32 {
        match self {
            Self::K => (2 * STEP) >> 4,
            Self::MN => (STEP * ROW_BYTES) >> 4,
        }
    }

    fn transposed(self) -> u32 {
        u32::from(self == Self::MN)
    }
}

/// `sums += a * b` for 64 rows and 2 · `sums.len()` columns of fp16, or `sums = a * b` where `add` is false. Four warps run
/// it together; it is finished when [`wait_products`] says so.
pub(crate) fn multiply(asm: &mut Asm, sums: &[Reg], (a, a_major): (Reg, Major), (b, b_major): (Reg, Major), add: Reg) {
    let columns = 2 * sums.len();
    let list: Vec<_> = sums.iter().map(Reg::to_string).collect();
    let (a_transposed, b_transposed) = (a_major.transposed(), b_major.transposed());
    op!(
        asm,
        "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{}}}, {a}, {b}, {add}, 1, 1, {a_transposed}, \
         {b_transposed};",
        list.join(", ")
    );
}

/// Orders earlier accesses of the accumulators before the multiplications that follow.
pub(crate) fn begin_products(asm: &mut Asm) {
    op!(asm, "wgmma.fence.sync.aligned;");
}

/// Closes a group of multiplications.
pub(crate) fn commit_products(asm: &mut Asm) {
    op!(asm, "wgmma.commit_group.sync.aligned;");
}

/// Waits until at most `left` groups are under way.
pub(crate) fn wait_products(asm: &mut Asm, left: impl Display) {
    op!(asm, "wgmma.wait_group.sync.aligned {left};");
}

/// Waits for the kernel before this one, whose results may be read afterwards.
pub(crate) fn wait_for_previous_kernel(asm: &mut Asm) {
    op!(asm, "griddepcontrol.wait;");
}

/// Lets the next kernel's blocks take up room that this one leaves.
pub(crate) fn let_next_kernel_start(asm: &mut Asm) {
    op!(asm, "griddepcontrol.launch_dependents;");
}

/// Tells the cluster that this thread has come so far. What it wrote is not thereby visible to others: barriers were made
/// so by the fence that follows their making, and the rest of shared memory is a block's own.
pub(crate) fn arrive_in_cluster(asm: &mut Asm) {
    op!(asm, "barrier.cluster.arrive.relaxed.aligned;");
}

/// Waits until all threads of the cluster have come so far.
pub(crate) fn wait_in_cluster(asm: &mut Asm) {
    op!(asm, "barrier.cluster.wait.acquire.aligned;");
}

/// Fetches a tensor map ahead of its first use.
pub(crate) fn fetch_map(asm: &mut Asm, map: Reg) {
    op!(asm, "prefetch.tensormap [{map}];");
}

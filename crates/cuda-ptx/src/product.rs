//! Both matrix products of the operation as one persistent kernel.
//!
//! `dX = U·W` contracts over the N stacked rows, `dW = Uᵀ·X` over the T tokens. `U` is `[T, N]`; `W` and `X` are the two
//! parts of one matrix `[NP + T, E]`, NP being N rounded up to [`DEPTH`], so that the right operand is always a tile of
//! consecutive rows of the same matrix.
//!
//! Roles: in the first warpgroup one thread asks the tensor memory accelerator for tiles; two more warpgroups multiply 64
//! rows each. Two blocks form a cluster and compute tiles of the same columns: each loads half of the right operand for
//! both. Sums are made in one set of accumulators and added to a second one after each chunk, since the tensor cores
//! truncate; the second set is scaled and stored in slices while the multiplications of the next tile run. The last tile of
//! a block goes out in whole rows through shared memory.
//!
//! Where the powers of two that `prep` assumed do not fit ([`crate::words`]), the first warpgroup makes the right operand's
//! tiles from f32 itself: slow, and rare.
//!
//! Task, 12 words, of each block: row tile (of tokens for dX, of the stacked weights for dW), column tile, k
//! tiles `[x0, x1)` of dX, k tiles `[w0, w1)` of dW, destination (0 dX, 1..=3 dWq, dWk, dWv, 4 scratch; and [`ADDS`], in a
//! block's last task only, for half of a sum that is added to zeros), first row in the destination, rows left there, column tile in the destination, first word of the rows' powers (dX). One of the two
//! ranges is empty; both blocks of a cluster have the same ranges.

use crate::asm::{Asm, Entry, Label, Param, Reg, op};
use crate::hopper::{self, Major, ROW_BYTES, STEP};
use crate::words::{NONE, TOKENS, W_POWER, X_POWER, fitting_power, two_factors};

/// Rows of a block's tile.
pub const ROWS: u32 = 128;
/// Columns of a block's tile.
pub const COLS: u32 = 192;
/// Elements of the contraction in a stage.
pub const DEPTH: u32 = 64;
/// Blocks of a cluster.
pub const CLUSTER: u32 = 2;
/// Columns of a box of the tensor maps: a row of [`ROW_BYTES`].
pub const BOX_COLS: u32 = ROW_BYTES / 2;
/// Rows of a box of U.
pub const U_BOX_ROWS: u32 = 64;
/// Rows of a box of W and X: half a stage, one for each block of the cluster.
pub const WX_BOX_ROWS: u32 = DEPTH / CLUSTER;
/// Threads of a block.
pub const THREADS: u32 = 3 * WARPGROUP;
/// Words of a task.
pub const TASK_WORDS: u32 = 12;
/// Marks a destination that is added to. Two halves give the same bits in either order. Only the copies of the last tile
/// add: adding from registers (`red`) would flush subnormal numbers.
pub const ADDS: u32 = 8;
/// The kernel's name.
pub const NAME: &str = "product_sm90";

const WARPGROUP: u32 = 128;
const STAGES: u32 = 5;
const A_BYTES: u32 = ROWS * ROW_BYTES;
const CHUNK_BYTES: u32 = DEPTH * ROW_BYTES;
const CHUNKS: u32 = COLS / BOX_COLS;
const B_BYTES: u32 = CHUNKS * CHUNK_BYTES;
const STAGE_BYTES: u32 = A_BYTES + B_BYTES;
const FULL: u32 = STAGES * STAGE_BYTES;
const EMPTY: u32 = FULL + 8 * STAGES;
/// Largest exponents that the block found: of X less the token's power, of W.
const TOPS: u32 = EMPTY + 8 * STAGES;
const TASKS: u32 = TOPS + 16;
/// Tasks kept in shared memory; further ones are read from where they are.
const KEPT_TASKS: u32 = 128;
const TASK_BYTES: u32 = 4 * TASK_WORDS;
/// Dynamic shared memory of a block.
pub const SHARED_BYTES: u32 = TASKS + KEPT_TASKS * TASK_BYTES;

const _: () = assert!(SHARED_BYTES <= 227 * 1024, "a block has at most 227 KiB of shared memory");
const _: () = assert!(COLS.is_multiple_of(BOX_COLS) && STAGE_BYTES.is_multiple_of(8 * ROW_BYTES));

/// Rows of a warpgroup.
const WARPGROUP_ROWS: u32 = 64;
/// A row of the last tile in shared memory, with room so that rows below each other start eight banks apart.
const LAST_ROW_BYTES: u32 = 4 * (COLS + 8);
const _: () = assert!(ROWS * LAST_ROW_BYTES <= FULL, "the last tile takes the room of the stages");

/// Registers of a thread that loads and of one that multiplies; the block has 512 for each lane of a scheduler.
const LOADING_REGISTERS: u32 = 40;
const MULTIPLYING_REGISTERS: u32 = 232;
const _: () = assert!(LOADING_REGISTERS + 2 * MULTIPLYING_REGISTERS <= 504);

/// Accumulators of a thread.
const SUMS: usize = (COLS / 2) as usize;
/// Slices in which a finished tile is stored: each 8 columns. Larger ones hold up the multiplications of the step in which
/// they are stored.
const SLICES: usize = 24;
/// Accumulators of a thread in 8 columns: two of each of two rows.
const GROUP: usize = 4;

const PARAMS: &[Param] = &[
    Param::Map("u_map"),
    Param::Map("wx_map"),
    Param::Address("tasks"),
    Param::Address("words"),
    Param::Address("to_hidden"),
    Param::Address("to_q"),
    Param::Address("to_k"),
    Param::Address("to_v"),
    Param::Address("to_scratch"),
    Param::Address("x"),
    Param::Address("wq"),
    Param::Address("wk"),
    Param::Address("wv"),
    Param::Wide("x_batch"),
    Param::Int("x_row"),
    Param::Int("wq_row"),
    Param::Int("wk_row"),
    Param::Int("wv_row"),
    Param::Int("hidden_row"),
    Param::Int("dq_row"),
    Param::Int("dk_row"),
    Param::Int("dv_row"),
    Param::Int("hidden"),
    Param::Int("tokens"),
    Param::Int("seq"),
    Param::Int("q_rows"),
    Param::Int("kv_rows"),
    Param::Int("w_rows"),
    Param::Int("first_task"),
    Param::Int("tasks_each"),
    Param::Int("status"),
    Param::Int("token_blocks"),
    Param::Int("weight_blocks"),
];

/// The kernel's PTX.
pub fn ptx() -> String {
    let mut asm = Asm::default();
    let block = Block::enter(&mut asm);
    let (loading, end) = (asm.label(), asm.label());
    let is_loading = asm.test("lt.u32", block.thread, WARPGROUP);
    op!(asm, "@{is_loading} bra {loading};");
    multiplying(&mut asm, &block);
    op!(asm, "bra {end};");
    asm.place(loading);
    loading_tiles(&mut asm, &block);
    asm.place(end);
    // No block leaves while its cluster may still write or signal its shared memory.
    hopper::arrive_in_cluster(&mut asm);
    hopper::wait_in_cluster(&mut asm);
    op!(asm, "ret;");
    asm.finish(&Entry { name: NAME, params: PARAMS, threads: THREADS, registers: None, cluster: CLUSTER, shared: None })
}

/// Words that a thread has under way when it looks for the largest.
const UNDER_WAY: u32 = 24;

/// What all threads of a block know.
struct Block {
    thread: Reg,
    lane: Reg,
    rank: Reg,
    shared: Reg,
    words: Reg,
    /// This block's tasks, in global memory, and how many.
    tasks: Reg,
    task_count: Reg,
    w_power: Reg,
    x_power: Reg,
    w_unusual: Reg,
    x_unusual: Reg,
}

impl Block {
    /// Prepares shared memory and finds the powers of two.
    fn enter(asm: &mut Asm) -> Self {
        let thread = asm.set("%tid.x");
        let lane = asm.bin("and.b32", thread, 31);
        let rank = asm.set("%cluster_ctarank");
        let program = asm.set("%ctaid.x");
        let shared = asm.set("shared");
        let words = asm.address("words");
        let table = asm.address("tasks");
        let first_task = asm.int("first_task");
        let tasks_each = asm.int("tasks_each");

        let count_at = asm.at(table, program, 4);
        let task_count = asm.bits32();
        op!(asm, "ld.global.nc.u32 {task_count}, [{count_at}];");
        let first = asm.bits32();
        op!(asm, "mad.lo.u32 {first}, {program}, {tasks_each}, {first_task};");
        let tasks = asm.at(table, first, TASK_BYTES);

        let first_thread = asm.test("eq.u32", thread, 0);
        let not_first = asm.label();
        op!(asm, "@!{first_thread} bra {not_first};");
        for stage in 0..STAGES {
            op!(asm, "mbarrier.init.shared::cta.b64 [{shared}+{}], 1;", FULL + 8 * stage);
            op!(
                asm,
                "mbarrier.init.shared::cta.b64 [{shared}+{}], {};",
                EMPTY + 8 * stage,
                CLUSTER * 2 * WARPGROUP / 32
            );
        }
        op!(asm, "fence.mbarrier_init.release.cluster;");
        op!(asm, "st.shared.v2.b32 [{shared}+{TOPS}], {{{NONE}, {NONE}}};");
        for map in ["u_map", "wx_map"] {
            let map = asm.map(map);
            hopper::fetch_map(asm, map);
        }
        asm.place(not_first);
        Self::keep_tasks(asm, thread, shared, tasks, task_count);
        op!(asm, "bar.sync 0;");
        hopper::arrive_in_cluster(asm);
        hopper::wait_for_previous_kernel(asm);
        hopper::let_next_kernel_start(asm);
        let (w_usual, x_usual) = (asm.bits32(), asm.bits32());
        op!(asm, "ld.global.u32 {w_usual}, [{words}+{}];", 4 * W_POWER);
        op!(asm, "ld.global.u32 {x_usual}, [{words}+{}];", 4 * X_POWER);
        Self::find_tops(asm, thread, shared, words);
        op!(asm, "bar.sync 0;");
        hopper::wait_in_cluster(asm);

        let (x_top, w_top) = (asm.bits32(), asm.bits32());
        op!(asm, "ld.shared.v2.b32 {{{x_top}, {w_top}}}, [{shared}+{TOPS}];");
        let w_power = fitting_power(asm, w_top, w_usual);
        let x_power = fitting_power(asm, x_top, x_usual);
        let w_unusual = asm.test("ne.s32", w_power, w_usual);
        let x_unusual = asm.test("ne.s32", x_power, x_usual);
        Self { thread, lane, rank, shared, words, tasks, task_count, w_power, x_power, w_unusual, x_unusual }
    }

    /// Copies the first tasks to shared memory.
    fn keep_tasks(asm: &mut Asm, thread: Reg, shared: Reg, tasks: Reg, task_count: Reg) {
        let kept = asm.bin("min.u32", task_count, KEPT_TASKS);
        let pieces = asm.bin("mul.lo.u32", kept, TASK_WORDS / 4);
        let piece = asm.set(thread);
        let (again, done) = (asm.label(), asm.label());
        asm.place(again);
        let over = asm.test("ge.u32", piece, pieces);
        op!(asm, "@{over} bra {done};");
        let from = asm.at(tasks, piece, 16);
        let to = asm.bits32();
        op!(asm, "mad.lo.u32 {to}, {piece}, 16, {shared};");
        let words: Vec<_> = (0..4).map(|_| asm.bits32()).collect();
        op!(asm, "ld.global.nc.v4.u32 {{{}, {}, {}, {}}}, [{from}];", words[0], words[1], words[2], words[3]);
        op!(asm, "st.shared.v4.u32 [{to}+{TASKS}], {{{}, {}, {}, {}}};", words[0], words[1], words[2], words[3]);
        op!(asm, "add.u32 {piece}, {piece}, {THREADS};");
        op!(asm, "bra {again};");
        asm.place(done);
    }

    /// The largest exponents that the blocks of `prep` found: `[token_blocks]` of X, then `[weight_blocks]` of W.
    fn find_tops(asm: &mut Asm, thread: Reg, shared: Reg, words: Reg) {
        let status = asm.int("status");
        let token_blocks = asm.int("token_blocks");
        let weight_blocks = asm.int("weight_blocks");
        let count = asm.bin("add.u32", token_blocks, weight_blocks);
        let tops = [asm.set(NONE), asm.set(NONE)];
        let at = asm.set(thread);
        let (again, done) = (asm.label(), asm.label());
        asm.place(again);
        let over = asm.test("ge.u32", at, count);
        op!(asm, "@{over} bra {done};");
        // Several loads under way at once: this is nothing but latency.
        let mut found = Vec::new();
        for part in 0..UNDER_WAY {
            let place = asm.bin("add.u32", at, part * THREADS);
            let inside = asm.test("lt.u32", place, count);
            let word = asm.bin("add.u32", status, place);
            let from = asm.at(words, word, 4);
            let value = asm.set(NONE);
            op!(asm, "@{inside} ld.global.u32 {value}, [{from}];");
            found.push((place, value));
        }
        for (place, value) in found {
            let of_x = asm.test("lt.u32", place, token_blocks);
            op!(asm, "@{of_x} max.s32 {0}, {0}, {value};", tops[0]);
            op!(asm, "@!{of_x} max.s32 {0}, {0}, {value};", tops[1]);
        }
        op!(asm, "add.u32 {at}, {at}, {};", UNDER_WAY * THREADS);
        op!(asm, "bra {again};");
        asm.place(done);
        for (index, top) in tops.into_iter().enumerate() {
            op!(asm, "redux.sync.max.s32 {top}, {top}, 0xffffffff;");
            op!(asm, "red.shared.max.s32 [{shared}+{}], {top};", TOPS + 4 * index as u32);
        }
    }

    /// The generic address of a task.
    fn task_address(&self, asm: &mut Asm, task: Reg) -> Reg {
        let kept = asm.test("lt.u32", task, KEPT_TASKS);
        let (here, there) = (asm.bits64(), asm.bits64());
        let place = asm.bin("add.u32", self.shared, TASKS);
        op!(asm, "mad.lo.u32 {place}, {task}, {TASK_BYTES}, {place};");
        op!(asm, "cvt.u64.u32 {here}, {place};");
        op!(asm, "cvta.shared.u64 {here}, {here};");
        op!(asm, "mad.wide.u32 {there}, {task}, {TASK_BYTES}, {};", self.tasks);
        op!(asm, "cvta.global.u64 {there}, {there};");
        let to = asm.bits64();
        op!(asm, "selp.b64 {to}, {here}, {there}, {kept};");
        to
    }
}

/// `count` words of a task from word `first` on, both multiples of 4.
fn task_words(asm: &mut Asm, task: Reg, first: u32, count: u32) -> Vec<Reg> {
    let words: Vec<_> = (0..count).map(|_| asm.bits32()).collect();
    for (index, four) in words.chunks_exact(4).enumerate() {
        let offset = 4 * first + 16 * index as u32;
        op!(asm, "ld.v4.u32 {{{}, {}, {}, {}}}, [{task}+{offset}];", four[0], four[1], four[2], four[3]);
    }
    words
}

/// Place in the ring of stages.
struct Ring {
    stage: Reg,
    parity: Reg,
}

impl Ring {
    fn new(asm: &mut Asm, parity: u32) -> Self {
        Self { stage: asm.set(0), parity: asm.set(parity) }
    }

    fn advance(&self, asm: &mut Asm) {
        let (stage, parity) = (self.stage, self.parity);
        op!(asm, "add.u32 {stage}, {stage}, 1;");
        let wrapped = asm.test("eq.u32", stage, STAGES);
        op!(asm, "@{wrapped} mov.b32 {stage}, 0;");
        op!(asm, "@{wrapped} xor.b32 {parity}, {parity}, 1;");
    }

    fn skip(&self, asm: &mut Asm, count: Reg) {
        let (stage, parity) = (self.stage, self.parity);
        op!(asm, "add.u32 {stage}, {stage}, {count};");
        let rounds = asm.bin("div.u32", stage, STAGES);
        let whole = asm.bin("mul.lo.u32", rounds, STAGES);
        op!(asm, "sub.u32 {stage}, {stage}, {whole};");
        op!(asm, "and.b32 {rounds}, {rounds}, 1;");
        op!(asm, "xor.b32 {parity}, {parity}, {rounds};");
    }

    /// `base + stage * scale`.
    fn at(&self, asm: &mut Asm, base: Reg, scale: u32, offset: u32) -> Reg {
        let to = asm.bits32();
        op!(asm, "mad.lo.u32 {to}, {}, {scale}, {base};", self.stage);
        op!(asm, "add.u32 {to}, {to}, {offset};");
        to
    }
}

/// The first warpgroup.
fn loading_tiles(asm: &mut Asm, block: &Block) {
    op!(asm, "setmaxnreg.dec.sync.aligned.u32 {LOADING_REGISTERS};");
    let u_map = asm.map("u_map");
    let wx_map = asm.map("wx_map");
    let w_rows = asm.int("w_rows");
    let ring = Ring::new(asm, 1);
    let first_thread = asm.test("eq.u32", block.thread, 0);
    let both = asm.bits16();
    op!(asm, "mov.b16 {both}, {};", (1 << CLUSTER) - 1);
    let task = asm.set(0);
    let (next_task, end) = (asm.label(), asm.label());
    // Lanes that have nothing to do must leave: running beside the one that loads, they would hold it up.
    let (any_unusual, stays) = (asm.pred(), asm.pred());
    op!(asm, "or.pred {any_unusual}, {}, {};", block.x_unusual, block.w_unusual);
    op!(asm, "or.pred {stays}, {any_unusual}, {first_thread};");
    op!(asm, "@!{stays} bra {end};");
    asm.place(next_task);
    let over = asm.test("ge.u32", task, block.task_count);
    op!(asm, "@{over} bra {end};");
    let address = block.task_address(asm, task);
    let words = task_words(asm, address, 0, 8);
    let [row_tile, col_tile, x0, x1, w0, w1] = [words[0], words[1], words[2], words[3], words[4], words[5]];
    let row = asm.bin("shl.b32", row_tile, ROWS.ilog2());
    let is_weight = asm.test("gt.s32", w1, w0);
    let k = asm.select(w0, x0, is_weight);
    let k_end = asm.select(w1, x1, is_weight);
    op!(asm, "shl.b32 {k}, {k}, {};", DEPTH.ilog2());
    op!(asm, "shl.b32 {k_end}, {k_end}, {};", DEPTH.ilog2());
    let column = asm.bin("mul.lo.u32", col_tile, COLS);
    let zero = asm.set(0);
    let wx_first = asm.select(w_rows, zero, is_weight);

    let unusual = asm.pred();
    let (x_unusual, w_unusual) = (asm.pred(), asm.pred());
    op!(asm, "and.pred {x_unusual}, {is_weight}, {};", block.x_unusual);
    op!(asm, "not.pred {w_unusual}, {is_weight};");
    op!(asm, "and.pred {w_unusual}, {w_unusual}, {};", block.w_unusual);
    op!(asm, "or.pred {unusual}, {x_unusual}, {w_unusual};");

    let (next_step, step_done, mine) = (asm.label(), asm.label(), asm.label());
    let works = asm.pred();
    op!(asm, "or.pred {works}, {unusual}, {first_thread};");
    op!(asm, "@{works} bra {mine};");
    let steps = asm.bin("sub.u32", k_end, k);
    op!(asm, "shr.u32 {steps}, {steps}, {};", DEPTH.ilog2());
    ring.skip(asm, steps);
    op!(asm, "bra {step_done};");
    asm.place(mine);
    asm.place(next_step);
    let over = asm.test("ge.s32", k, k_end);
    op!(asm, "@{over} bra {step_done};");
    let full = ring.at(asm, block.shared, 8, FULL);
    let empty = ring.at(asm, block.shared, 8, EMPTY);
    let a = ring.at(asm, block.shared, STAGE_BYTES, 0);
    let b = asm.bin("add.u32", a, A_BYTES);
    let (usual, loaded) = (asm.label(), asm.label());
    op!(asm, "@!{unusual} bra {usual};");
    hopper::wait_barrier(asm, empty, ring.parity);
    slow::fill(asm, block, is_weight, b, k, column);
    op!(asm, "@!{first_thread} bra {loaded};");
    hopper::expect_bytes(asm, full, A_BYTES);
    load_left(asm, a, u_map, is_weight, row, k, full);
    op!(asm, "bra {loaded};");

    asm.place(usual);
    op!(asm, "@!{first_thread} bra {loaded};");
    hopper::wait_barrier(asm, empty, ring.parity);
    hopper::expect_bytes(asm, full, STAGE_BYTES);
    load_left(asm, a, u_map, is_weight, row, k, full);
    // This block's half of the right operand, for both.
    let half = asm.bin("mul.lo.u32", block.rank, WX_BOX_ROWS);
    let wx_row = asm.bin("add.u32", k, wx_first);
    op!(asm, "add.u32 {wx_row}, {wx_row}, {half};");
    op!(asm, "mad.lo.u32 {b}, {half}, {ROW_BYTES}, {b};");
    for chunk in 0..CHUNKS {
        let to = asm.bin("add.u32", b, chunk * CHUNK_BYTES);
        let wx_column = asm.bin("add.u32", column, chunk * BOX_COLS);
        hopper::load_box_for_all(asm, to, wx_map, [wx_column, wx_row], full, both);
    }
    asm.place(loaded);
    ring.advance(asm);
    op!(asm, "add.u32 {k}, {k}, {DEPTH};");
    op!(asm, "bra {next_step};");
    asm.place(step_done);
    op!(asm, "add.u32 {task}, {task}, 1;");
    op!(asm, "bra {next_task};");
    asm.place(end);
    op!(asm, "bar.warp.sync 0xffffffff;");
}

/// 128 rows of U for dX, or 128 columns for dW, in two boxes.
fn load_left(asm: &mut Asm, to: Reg, map: Reg, is_weight: Reg, row: Reg, k: Reg, barrier: Reg) {
    for half in 0..ROWS / U_BOX_ROWS {
        let to = asm.bin("add.u32", to, half * U_BOX_ROWS * ROW_BYTES);
        let row = asm.bin("add.u32", row, half * U_BOX_ROWS);
        let u_column = asm.select(row, k, is_weight);
        let u_row = asm.select(k, row, is_weight);
        hopper::load_box(asm, to, map, [u_column, u_row], barrier);
    }
}

/// The right operand's tile made from f32, at powers of two that `prep` did not foresee.
mod slow {
    use super::*;

    /// Fills the tile at `b` from rows `k..` of W, or of X where `is_weight`; all threads of the first warpgroup do.
    pub(super) fn fill(asm: &mut Asm, block: &Block, is_weight: Reg, b: Reg, k: Reg, column: Reg) {
        let hidden = asm.int("hidden");
        let index = asm.set(block.thread);
        let next = asm.label();
        asm.place(next);
        let row = asm.bin("div.u32", index, COLS);
        let col = asm.bits32();
        op!(asm, "mul.lo.u32 {col}, {row}, {COLS};");
        op!(asm, "sub.u32 {col}, {index}, {col};");
        let from_row = asm.bin("add.u32", k, row);
        let from_col = asm.bin("add.u32", column, col);
        let value = asm.float();
        op!(asm, "mov.f32 {value}, 0f00000000;");
        let outside = asm.test("ge.u32", from_col, hidden);
        let (from_x, scaled) = (asm.label(), asm.label());
        op!(asm, "@{outside} bra {scaled};");
        op!(asm, "@{is_weight} bra {from_x};");
        weight(asm, block, from_row, from_col, value, scaled);
        op!(asm, "bra {scaled};");
        asm.place(from_x);
        token(asm, block, from_row, from_col, value, scaled);
        asm.place(scaled);
        let half = asm.bits16();
        op!(asm, "cvt.rn.f16.f32 {half}, {value};");
        // Chunk, row, and the 16 bytes within it that the swizzle says.
        let chunk = asm.bin("shr.u32", col, BOX_COLS.ilog2());
        let inner = asm.bin("and.b32", col, BOX_COLS - 1);
        let piece = asm.bin("shr.u32", inner, 3);
        let turn = asm.bin("and.b32", row, 7);
        op!(asm, "xor.b32 {piece}, {piece}, {turn};");
        let offset = asm.bin("and.b32", inner, 7);
        op!(asm, "shl.b32 {offset}, {offset}, 1;");
        op!(asm, "mad.lo.u32 {offset}, {piece}, 16, {offset};");
        op!(asm, "mad.lo.u32 {offset}, {row}, {ROW_BYTES}, {offset};");
        op!(asm, "mad.lo.u32 {offset}, {chunk}, {CHUNK_BYTES}, {offset};");
        op!(asm, "add.u32 {offset}, {offset}, {b};");
        op!(asm, "st.shared.b16 [{offset}], {half};");
        op!(asm, "add.u32 {index}, {index}, {WARPGROUP};");
        let more = asm.test("lt.u32", index, DEPTH * COLS);
        op!(asm, "@{more} bra {next};");
        op!(asm, "fence.proxy.async.shared::cta;");
        op!(asm, "bar.sync 1, {WARPGROUP};");
    }

    fn scale(asm: &mut Asm, value: Reg, power: Reg) {
        for factor in two_factors(asm, power) {
            op!(asm, "mul.rn.f32 {value}, {value}, {factor};");
        }
    }

    fn element(asm: &mut Asm, base: Reg, row: Reg, pitch: Reg, col: Reg, value: Reg) {
        let at = asm.bits64();
        op!(asm, "mul.wide.u32 {at}, {row}, {pitch};");
        let wide_col = asm.bits64();
        op!(asm, "cvt.u64.u32 {wide_col}, {col};");
        op!(asm, "add.u64 {at}, {at}, {wide_col};");
        op!(asm, "shl.b64 {at}, {at}, 2;");
        op!(asm, "add.u64 {at}, {at}, {base};");
        op!(asm, "ld.global.f32 {value}, [{at}];");
    }

    fn weight(asm: &mut Asm, block: &Block, row: Reg, col: Reg, value: Reg, done: Label) {
        let (q_rows, kv_rows) = (asm.int("q_rows"), asm.int("kv_rows"));
        let k_end = asm.bin("add.u32", q_rows, kv_rows);
        let v_end = asm.bin("add.u32", k_end, kv_rows);
        let outside = asm.test("ge.u32", row, v_end);
        op!(asm, "@{outside} bra {done};");
        let base = asm.address("wq");
        let pitch = asm.int("wq_row");
        let local = asm.set(row);
        for (first, from, stride) in [(q_rows, "wk", "wk_row"), (k_end, "wv", "wv_row")] {
            let beyond = asm.test("ge.u32", row, first);
            let (other, other_pitch) = (asm.address(from), asm.int(stride));
            op!(asm, "@{beyond} mov.b64 {base}, {other};");
            op!(asm, "@{beyond} mov.b32 {pitch}, {other_pitch};");
            op!(asm, "@{beyond} sub.u32 {local}, {row}, {first};");
        }
        element(asm, base, local, pitch, col, value);
        scale(asm, value, block.w_power);
    }

    fn token(asm: &mut Asm, block: &Block, row: Reg, col: Reg, value: Reg, done: Label) {
        let (tokens, seq) = (asm.int("tokens"), asm.int("seq"));
        let outside = asm.test("ge.u32", row, tokens);
        op!(asm, "@{outside} bra {done};");
        let batch = asm.bin("div.u32", row, seq);
        let local = asm.bits32();
        op!(asm, "mul.lo.u32 {local}, {batch}, {seq};");
        op!(asm, "sub.u32 {local}, {row}, {local};");
        let (base, stride) = (asm.address("x"), asm.wide("x_batch"));
        let wide_batch = asm.bits64();
        op!(asm, "cvt.u64.u32 {wide_batch}, {batch};");
        op!(asm, "mul.lo.u64 {wide_batch}, {wide_batch}, {stride};");
        op!(asm, "shl.b64 {wide_batch}, {wide_batch}, 2;");
        op!(asm, "add.u64 {base}, {base}, {wide_batch};");
        let pitch = asm.int("x_row");
        element(asm, base, local, pitch, col, value);
        let word = asm.bin("add.u32", row, TOKENS);
        let at = asm.at(block.words, word, 4);
        let power = asm.bits32();
        op!(asm, "ld.global.u32 {power}, [{at}];");
        op!(asm, "sub.s32 {power}, {}, {power};", block.x_power);
        scale(asm, value, power);
    }
}

/// What is left of the last tile: scaled and stored in slices while the next one is computed.
struct Finished {
    sums: Vec<Reg>,
    /// The next slice; [`SLICES`] when all are stored.
    slice: Reg,
    /// Slices to store in a step, so that all are stored when the next tile is computed.
    pace: Reg,
    /// For each of the thread's two rows: where its first column goes, two factors, whether the row exists.
    rows: [FinishedRow; 2],
    /// Columns from the thread's first one on.
    cols_left: Reg,
    /// Rows of the tile that exist, and the elements from one to the next.
    rows_left: Reg,
    pitch: Reg,
    /// Whether the tile is added to what is there.
    adds: Reg,
}

struct FinishedRow {
    to: Reg,
    factors: [Reg; 2],
    exists: Reg,
}

impl Finished {
    fn new(asm: &mut Asm) -> Self {
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
    fn store_last(&self, asm: &mut Asm, block: &Block, group: Reg, [row, col]: [Reg; 2]) {
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
    fn set_pace(&self, asm: &mut Asm, steps: Reg) {
        let pace = self.pace;
        op!(asm, "mov.b32 {pace}, 1;");
        for (fewer_than, slices) in [(SLICES, 2), (SLICES / 2, 3), (SLICES / 3, 6)] {
            let short = asm.test("lt.s32", steps, fewer_than);
            op!(asm, "@{short} mov.b32 {pace}, {slices};");
        }
    }

    /// Stores the slices of a step.
    fn store_some(&self, asm: &mut Asm) {
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

    fn store_rest(&self, asm: &mut Asm) {
        let (again, done) = (asm.label(), asm.label());
        asm.place(again);
        let all = asm.test("ge.u32", self.slice, SLICES);
        op!(asm, "@{all} bra {done};");
        self.store_slice(asm);
        op!(asm, "bra {again};");
        asm.place(done);
    }
}

/// The second and third warpgroups.
fn multiplying(asm: &mut Asm, block: &Block) {
    op!(asm, "setmaxnreg.inc.sync.aligned.u32 {MULTIPLYING_REGISTERS};");
    let warp = asm.bin("shr.u32", block.thread, 5);
    let group = asm.bin("shr.u32", warp, 2);
    op!(asm, "sub.u32 {group}, {group}, 1;");
    // The thread's first row and column in the tile, as the accumulators are laid out.
    let row = asm.bin("shl.b32", group, 6);
    let quarter = asm.bin("and.b32", warp, 3);
    op!(asm, "mad.lo.u32 {row}, {quarter}, 16, {row};");
    let eighth = asm.bin("shr.u32", block.lane, 2);
    op!(asm, "add.u32 {row}, {row}, {eighth};");
    let col = asm.bin("and.b32", block.lane, 3);
    op!(asm, "shl.b32 {col}, {col}, 1;");

    // Lanes 0 and 1 tell blocks 0 and 1 of the cluster that a stage is free.
    let signals = asm.test("lt.u32", block.lane, CLUSTER);
    let peer = asm.bin("min.u32", block.lane, CLUSTER - 1);
    let empty = asm.bin("add.u32", block.shared, EMPTY);
    let empty = hopper::map_to_rank(asm, empty, peer);
    let full = asm.bin("add.u32", block.shared, FULL);

    let a_place = asm.bits32();
    op!(asm, "mad.lo.u32 {a_place}, {group}, {}, {};", U_BOX_ROWS * ROW_BYTES, block.shared);
    let b_place = asm.bin("add.u32", block.shared, A_BYTES);
    let descriptor = |asm: &mut Asm, place: Reg, major: Major| {
        let (short, to) = (asm.bin("and.b32", place, 0x3ffff), asm.bits64());
        op!(asm, "shr.u32 {short}, {short}, 4;");
        op!(asm, "cvt.u64.u32 {to}, {short};");
        op!(asm, "or.b64 {to}, {to}, {};", major.descriptor(DEPTH));
        to
    };
    let a_rows = descriptor(asm, a_place, Major::K);
    let a_cols = descriptor(asm, a_place, Major::MN);
    let b = descriptor(asm, b_place, Major::MN);

    let finished = Finished::new(asm);
    let sums = asm.floats(SUMS);
    let ring = Ring::new(asm, 0);
    let task = asm.set(0);
    let (next_task, end) = (asm.label(), asm.label());
    let engine = Engine { ring, full, empty, signals, b, sums, finished };

    asm.place(next_task);
    let over = asm.test("ge.u32", task, block.task_count);
    op!(asm, "@{over} bra {end};");
    let address = block.task_address(asm, task);
    let words = task_words(asm, address, 0, 8);
    let [x0, x1, w0, w1, dest, dest_row] = [words[2], words[3], words[4], words[5], words[6], words[7]];
    let is_weight = asm.test("gt.s32", w1, w0);
    let x_steps = asm.bin("sub.s32", x1, x0);
    let steps = asm.bin("sub.s32", w1, w0);
    op!(asm, "max.s32 {steps}, {steps}, {x_steps};");
    let rest = task_words(asm, address, 8, 4);
    let [left, col_tile, power_word, chunk] = [rest[0], rest[1], rest[2], rest[3]];
    let powers = row_powers(asm, block, is_weight, row, left, power_word);
    engine.finished.set_pace(asm, steps);

    let first_chunk = asm.pred();
    op!(asm, "setp.eq.u32 {first_chunk}, 0, 0;");
    let (next_chunk, tile_done, some) = (asm.label(), asm.label(), asm.label());
    let any = asm.test("gt.s32", steps, 0);
    op!(asm, "@{any} bra {some};");
    engine.finished.store_rest(asm);
    for sum in &engine.finished.sums {
        op!(asm, "mov.f32 {sum}, 0f00000000;");
    }
    op!(asm, "bra {tile_done};");
    asm.place(some);
    asm.place(next_chunk);
    let count = asm.bin("min.s32", steps, chunk);
    op!(asm, "sub.s32 {steps}, {steps}, {count};");
    let (weights, multiplied) = (asm.label(), asm.label());
    op!(asm, "@{is_weight} bra {weights};");
    engine.run(asm, (a_rows, Major::K), count);
    op!(asm, "bra {multiplied};");
    asm.place(weights);
    engine.run(asm, (a_cols, Major::MN), count);
    asm.place(multiplied);
    engine.finished.store_rest(asm);
    engine.promote(asm, first_chunk);
    op!(asm, "setp.ne.u32 {first_chunk}, 0, 0;");
    let more = asm.test("gt.s32", steps, 0);
    op!(asm, "@{more} bra {next_chunk};");
    asm.place(tile_done);
    // Minus the powers of two that the tile's rows carry.
    let shared = asm.select(block.x_power, block.w_power, is_weight);
    for power in powers {
        op!(asm, "add.s32 {power}, {power}, {shared};");
        op!(asm, "neg.s32 {power}, {power};");
    }
    engine.finish_tile(asm, [row, col], powers, [dest, dest_row, left, col_tile]);
    op!(asm, "add.u32 {task}, {task}, 1;");
    op!(asm, "bra {next_task};");
    asm.place(end);
    engine.finished.store_last(asm, block, group, [row, col]);
}

/// Asks for the powers of two of the thread's two rows of U, which nothing waits for before the tile is finished.
fn row_powers(asm: &mut Asm, block: &Block, is_weight: Reg, row: Reg, left: Reg, power_word: Reg) -> [Reg; 2] {
    [0, 8].map(|below| {
        let row = asm.bin("add.u32", row, below);
        let last = asm.bin("sub.s32", left, 1);
        op!(asm, "min.s32 {row}, {row}, {last};");
        op!(asm, "max.s32 {row}, {row}, 0;");
        let word = asm.bin("add.u32", row, power_word);
        let at = asm.at(block.words, word, 4);
        let power = asm.set(0);
        op!(asm, "@!{is_weight} ld.global.u32 {power}, [{at}];");
        power
    })
}

/// What a multiplying thread works with.
struct Engine {
    ring: Ring,
    full: Reg,
    /// The first of the barriers that say a stage is free, in the block that this lane tells.
    empty: Reg,
    signals: Reg,
    b: Reg,
    sums: Vec<Reg>,
    finished: Finished,
}

impl Engine {
    /// `count` stages, summed from zero; waits for the end.
    fn run(&self, asm: &mut Asm, (a_base, a_major): (Reg, Major), count: Reg) {
        let add = asm.pred();
        op!(asm, "setp.ne.u32 {add}, 0, 0;");
        let before = asm.set(0);
        let (again, first) = (asm.label(), asm.label());
        asm.place(again);
        let full = self.ring.at(asm, self.full, 8, 0);
        hopper::wait_barrier(asm, full, self.ring.parity);
        let [mut a, mut b] = [a_base, self.b].map(|base| {
            let to = asm.bits64();
            op!(asm, "mad.wide.u32 {to}, {}, {}, {base};", self.ring.stage, STAGE_BYTES >> 4);
            to
        });
        hopper::begin_products(asm);
        for step in 0..DEPTH / STEP {
            hopper::multiply(asm, &self.sums, (a, a_major), (b, Major::MN), add);
            if step == 0 {
                op!(asm, "setp.eq.u32 {add}, 0, 0;");
            }
            if step + 1 < DEPTH / STEP {
                a = asm.bin64("add.u64", a, a_major.advance());
                b = asm.bin64("add.u64", b, Major::MN.advance());
            }
        }
        hopper::commit_products(asm);
        self.finished.store_some(asm);
        hopper::wait_products(asm, 1);
        let is_first = asm.test("eq.u32", before, 0);
        op!(asm, "@{is_first} bra {first};");
        hopper::arrive_remote(asm, self.signals, before);
        asm.place(first);
        op!(asm, "mad.lo.u32 {before}, {}, 8, {};", self.ring.stage, self.empty);
        self.ring.advance(asm);
        op!(asm, "sub.s32 {count}, {count}, 1;");
        let more = asm.test("gt.s32", count, 0);
        op!(asm, "@{more} bra {again};");
        hopper::wait_products(asm, 0);
        hopper::arrive_remote(asm, self.signals, before);
    }

    /// Moves the sums to the finished ones, or adds them.
    fn promote(&self, asm: &mut Asm, first_chunk: Reg) {
        let (add, done) = (asm.label(), asm.label());
        op!(asm, "@!{first_chunk} bra {add};");
        for (total, sum) in self.finished.sums.iter().zip(&self.sums) {
            op!(asm, "mov.f32 {total}, {sum};");
        }
        op!(asm, "bra {done};");
        asm.place(add);
        for (total, sum) in self.finished.sums.iter().zip(&self.sums) {
            op!(asm, "add.rn.f32 {total}, {total}, {sum};");
        }
        asm.place(done);
    }

    /// Notes where the finished tile goes.
    fn finish_tile(
        &self,
        asm: &mut Asm,
        [row, col]: [Reg; 2],
        powers: [Reg; 2],
        [dest, dest_row, left, col_tile]: [Reg; 4],
    ) {
        let finished = &self.finished;
        op!(asm, "setp.ge.u32 {}, {dest}, {ADDS};", finished.adds);
        let dest = asm.bin("and.b32", dest, ADDS - 1);
        let base = asm.address("to_scratch");
        let pitch = asm.set(COLS);
        let cols = asm.set(COLS);
        for (index, (to, stride)) in
            [("to_hidden", "hidden_row"), ("to_q", "dq_row"), ("to_k", "dk_row"), ("to_v", "dv_row")].iter().enumerate()
        {
            let this = asm.test("eq.u32", dest, index);
            let (address, row_stride, hidden) = (asm.address(to), asm.int(stride), asm.int("hidden"));
            op!(asm, "@{this} mov.b64 {base}, {address};");
            op!(asm, "@{this} mov.b32 {pitch}, {row_stride};");
            op!(asm, "@{this} mov.b32 {cols}, {hidden};");
        }
        let first_col = asm.bin("mul.lo.u32", col_tile, COLS);
        op!(asm, "add.u32 {first_col}, {first_col}, {col};");
        op!(asm, "sub.s32 {}, {cols}, {first_col};", finished.cols_left);
        op!(asm, "mov.b32 {}, {left};", finished.rows_left);
        op!(asm, "mov.b32 {}, {pitch};", finished.pitch);
        let to_row = asm.bin("add.u32", dest_row, row);
        for (index, (row_of, power)) in finished.rows.iter().zip(powers).enumerate() {
            let below = 8 * index;
            let this_row = asm.bin("add.u32", row, below);
            op!(asm, "setp.lt.s32 {}, {this_row}, {left};", row_of.exists);
            let (to_row, at, wide_col) = (asm.bin("add.u32", to_row, below), asm.bits64(), asm.bits64());
            op!(asm, "mul.wide.u32 {at}, {to_row}, {pitch};");
            op!(asm, "cvt.u64.u32 {wide_col}, {first_col};");
            op!(asm, "add.u64 {at}, {at}, {wide_col};");
            op!(asm, "shl.b64 {at}, {at}, 2;");
            op!(asm, "add.u64 {}, {base}, {at};", row_of.to);
            for (factor, made) in row_of.factors.iter().zip(two_factors(asm, power)) {
                op!(asm, "mov.f32 {factor}, {made};");
            }
        }
        op!(asm, "mov.b32 {}, 0;", finished.slice);
    }
}

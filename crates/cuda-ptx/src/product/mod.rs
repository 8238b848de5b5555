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

mod finished;
mod loading;
mod multiplying;
mod slow;

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
/// Columns of a box of the tensor maps: a row of 128 bytes.
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
    multiplying::multiplying(&mut asm, &block);
    op!(asm, "bra {end};");
    asm.place(loading);
    loading::loading_tiles(&mut asm, &block);
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

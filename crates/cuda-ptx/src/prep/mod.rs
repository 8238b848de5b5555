//! Un-rotates and rounds the gradients to fp16, and rounds X and W: one pass over memory.
//!
//! Blocks come in two kinds: the first ones take some tokens each, with all heads of the gradients and the row of X, the
//! others eight rows of the stacked weights. Every token gets a power of two of its own where the usual one does not fit
//! its row of U, and its row of X the opposite one, so that all products of dW have the same scale.
//!
//! The usual powers come from a sample of the tensors that every block reads; what the whole tensors hold is left in words
//! for the product kernel to compare ([`crate::words`]).
//!
//! Two kernels from one text: [`Rows::Whole`] keeps a token in registers and takes half-split pairs of whole heads, in
//! units of 16 bytes; [`Rows::Any`] takes everything and reads gradients twice. Both give the same bits.

mod any;
mod cast;
mod rows;
mod sample;
mod token;
mod weights;
mod whole;

use cast::{Cast, W_UNDER_WAY};
use rows::*;
use token::{Token, head_row};

use crate::asm::{Asm, Entry, Label, Param, Reg, op};
use crate::hopper;
use crate::words::{NONE, TOKENS, W_POWER, X_POWER, fitting_power, two_factors};

/// Which rows a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Half-split pairs of whole heads, aligned to 16 bytes: a thread has the same four pairs of up to [`HEADS`] heads.
    Whole,
    /// Any pairing, rotary size, stride and alignment.
    Any,
}

/// Heads of a thread of [`Rows::Whole`].
pub const HEADS: u32 = 2;
/// Rows of the weights of a block.
pub const WEIGHT_ROWS: u32 = 8;
/// Most tokens of a block, which has at least as many threads.
pub const MOST_TOKENS: u32 = 32;
/// Threads of a block beside those that do its work: the last warp takes the sample.
pub const SAMPLERS: u32 = 32;

impl Rows {
    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "prep_sm90",
            Self::Any => "prep_any_sm90",
        }
    }

    /// Most threads of a block.
    pub const fn most_threads(self) -> u32 {
        match self {
            Self::Whole => 640,
            Self::Any => 256,
        }
    }

    /// Elements that are read at once.
    fn vector(self) -> u32 {
        match self {
            Self::Whole => 4,
            Self::Any => 1,
        }
    }
}

const PARAMS: &[Param] = &[
    Param::Address("grad_q"),
    Param::Address("grad_k"),
    Param::Address("grad_v"),
    Param::Address("cos"),
    Param::Address("sin"),
    Param::Address("x"),
    Param::Address("wq"),
    Param::Address("wk"),
    Param::Address("wv"),
    Param::Address("u"),
    Param::Address("wx"),
    Param::Address("words"),
    Param::Wide("q_batch"),
    Param::Wide("k_batch"),
    Param::Wide("v_batch"),
    Param::Wide("cos_batch"),
    Param::Wide("sin_batch"),
    Param::Wide("x_batch"),
    Param::Int("q_head"),
    Param::Int("q_seq"),
    Param::Int("k_head"),
    Param::Int("k_seq"),
    Param::Int("v_head"),
    Param::Int("v_seq"),
    Param::Int("cos_seq"),
    Param::Int("sin_seq"),
    Param::Int("x_seq"),
    Param::Int("wq_row"),
    Param::Int("wk_row"),
    Param::Int("wv_row"),
    Param::Int("tokens"),
    Param::Int("seq"),
    Param::Int("q_heads"),
    Param::Int("kv_heads"),
    Param::Int("head_dim"),
    Param::Int("rotary_dim"),
    Param::Int("interleaved"),
    Param::Int("hidden"),
    Param::Int("w_rows"),
    Param::Int("u_pitch"),
    Param::Int("wx_pitch"),
    Param::Int("threads_per_token"),
    Param::Int("tokens_per_block"),
    Param::Int("token_blocks"),
    Param::Int("want_x"),
    Param::Int("want_w"),
    Param::Int("status"),
    Param::Address("to_hidden"),
    Param::Int("hidden_row"),
    Param::Int("zero_from"),
];

/// Shared memory: the usual powers, the block's status, the largest magnitude of each token.
const USUAL_U: u32 = 0;
const USUAL_X: u32 = 4;
const USUAL_W: u32 = 8;
const STATUS: u32 = 12;
const ROW_TOPS: u32 = 16;
const SHARED_BYTES: u32 = ROW_TOPS + 4 * MOST_TOKENS;

/// Where the sample's largest exponents are put: the tensors' own are a little higher. The windows of
/// [`fitting_power`] leave six binades and more above, and ten below.
const U_TARGET: i32 = 7;
const X_TARGET: i32 = 5;
const W_TARGET: i32 = 6;

/// The PTX of a kernel.
pub fn ptx(rows: Rows) -> String {
    let mut asm = Asm::default();
    let block = Block::enter(&mut asm, rows);
    let (weights, end) = (asm.label(), asm.label());
    let is_weights = asm.test("ge.u32", block.index, block.token_blocks);
    let working = asm.label();
    op!(asm, "@!{} bra {working};", block.samples);
    block.sample(&mut asm);
    op!(asm, "bar.sync 0;");
    op!(asm, "@{is_weights} bra {end};");
    op!(asm, "bar.sync 0;");
    op!(asm, "bra {end};");
    asm.place(working);
    op!(asm, "@{is_weights} bra {weights};");
    match rows {
        Rows::Whole => whole::tokens(&mut asm, &block),
        Rows::Any => any::tokens(&mut asm, &block),
    }
    op!(asm, "bra {end};");
    asm.place(weights);
    weights::weight_rows(&mut asm, &block);
    asm.place(end);
    block.leave(&mut asm);
    op!(asm, "ret;");
    asm.finish(&Entry {
        name: rows.name(),
        params: PARAMS,
        threads: rows.most_threads(),
        registers: Some(64),
        cluster: 1,
        shared: Some(SHARED_BYTES),
    })
}

/// What all threads of a block know.
struct Block {
    rows: Rows,
    thread: Reg,
    /// Threads that do the block's work.
    workers: Reg,
    /// Whether this thread takes the sample instead.
    samples: Reg,
    index: Reg,
    shared: Reg,
    words: Reg,
    token_blocks: Reg,
}

impl Block {
    fn enter(asm: &mut Asm, rows: Rows) -> Self {
        hopper::let_next_kernel_start(asm);
        let thread = asm.set("%tid.x");
        let threads = asm.set("%ntid.x");
        let workers = asm.bin("sub.u32", threads, SAMPLERS);
        let samples = asm.test("ge.u32", thread, workers);
        let index = asm.set("%ctaid.x");
        let shared = asm.set("shared");
        let words = asm.address("words");
        let token_blocks = asm.int("token_blocks");
        let slot = asm.test("lt.u32", thread, MOST_TOKENS);
        let at = asm.bits32();
        op!(asm, "mad.lo.u32 {at}, {thread}, 4, {shared};");
        op!(asm, "@{slot} st.shared.b32 [{at}+{ROW_TOPS}], 0;");
        let first = asm.test("eq.u32", thread, 0);
        op!(asm, "@{first} st.shared.b32 [{shared}+{STATUS}], {NONE};");
        Self { rows, thread, workers, samples, index, shared, words, token_blocks }
    }

    /// The word at `place` in shared memory: a usual power, or the status.
    fn word(&self, asm: &mut Asm, place: u32) -> Reg {
        let word = asm.bits32();
        op!(asm, "ld.shared.b32 {word}, [{}+{place}];", self.shared);
        word
    }

    /// Counts an exponent for the block's status.
    fn count(&self, asm: &mut Asm, exponent: Reg) {
        op!(asm, "red.shared.max.s32 [{}+{STATUS}], {exponent};", self.shared);
    }

    /// Writes the block's status.
    fn leave(&self, asm: &mut Asm) {
        op!(asm, "bar.sync 0;");
        let first = asm.test("eq.u32", self.thread, 0);
        let status = asm.int("status");
        let word = asm.bin("add.u32", status, self.index);
        let at = asm.at(self.words, word, 4);
        let found = self.word(asm, STATUS);
        op!(asm, "@{first} st.global.b32 [{at}], {found};");
    }
}

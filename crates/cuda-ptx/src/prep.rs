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

use crate::asm::{Asm, Entry, Label, Param, Reg, op};
use crate::hopper;
use crate::words::{self, HIGHEST, LOWEST, NONE, TOKENS, W_POWER, X_POWER, fitting_power, two_factors};

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
    pub fn most_threads(self) -> u32 {
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
    weight_rows(&mut asm, &block);
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

    /// The usual power at `place` in shared memory.
    fn usual(&self, asm: &mut Asm, place: u32) -> Reg {
        let power = asm.bits32();
        op!(asm, "ld.shared.b32 {power}, [{}+{place}];", self.shared);
        power
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
        let found = self.usual(asm, STATUS);
        op!(asm, "@{first} st.global.b32 [{at}], {found};");
    }

    /// A warp looks at four elements of each of eight tokens and of eight rows of each weight, evenly spread, and leaves
    /// the usual powers in shared memory.
    fn sample(&self, asm: &mut Asm) {
        let lane = asm.bin("and.b32", self.thread, 31);
        let eighth = asm.bin("shr.u32", lane, 2);
        let element = asm.bin("and.b32", lane, 3);
        let tokens = asm.int("tokens");
        let (want_x, want_w) = (asm.int("want_x"), asm.int("want_w"));
        let seq = asm.int("seq");
        let token = spread(asm, eighth, tokens);
        let [batch, position] = divide(asm, token, seq);
        let some = asm.test("gt.u32", tokens, 0);
        let (head_dim, hidden) = (asm.int("head_dim"), asm.int("hidden"));
        let x_some = asm.pred();
        op!(asm, "setp.ne.and.u32 {x_some}, {want_x}, 0, {some};");
        let w_some = asm.test("ne.u32", want_w, 0);
        let (heads, kv_heads) = (asm.int("q_heads"), asm.int("kv_heads"));
        let mut tops = Vec::new();
        let mut values = Vec::new();
        let gradients = [
            ("grad_q", "q_batch", "q_seq", heads),
            ("grad_k", "k_batch", "k_seq", kv_heads),
            ("grad_v", "v_batch", "v_seq", kv_heads),
        ];
        for (base, of_batch, of_row, heads) in gradients {
            let some = also(asm, some, heads);
            let row = token_row(asm, base, of_batch, of_row, batch, position);
            values.push(sampled(asm, row, element, head_dim, some));
        }
        tops.push(std::mem::take(&mut values));
        let row = token_row(asm, "x", "x_batch", "x_seq", batch, position);
        values.push(sampled(asm, row, element, hidden, x_some));
        tops.push(std::mem::take(&mut values));
        for (base, of_row, heads) in [("wq", "wq_row", heads), ("wk", "wk_row", kv_heads), ("wv", "wv_row", kv_heads)] {
            let rows = asm.bin("mul.lo.u32", heads, head_dim);
            let index = spread(asm, eighth, rows);
            let w_some = also(asm, w_some, rows);
            let (base, pitch, at) = (asm.address(base), asm.int(of_row), asm.bits64());
            op!(asm, "mul.wide.u32 {at}, {index}, {pitch};");
            op!(asm, "shl.b64 {at}, {at}, 2;");
            op!(asm, "add.u64 {at}, {at}, {base};");
            values.push(sampled(asm, at, element, hidden, w_some));
        }
        tops.push(values);
        let exponents: Vec<_> = tops
            .iter()
            .map(|values| {
                let top = largest(asm, values);
                op!(asm, "redux.sync.max.u32 {top}, {top}, 0xffffffff;");
                let exponent = exponent(asm, top);
                // Nothing but zeros: as if it were ones.
                let none = asm.test("eq.u32", top, 0);
                asm.select(0, exponent, none)
            })
            .collect();
        let usual = |asm: &mut Asm, target: i32, exponent: Reg| {
            let power = asm.bits32();
            op!(asm, "sub.s32 {power}, {target}, {exponent};");
            power
        };
        let u = usual(asm, U_TARGET, exponents[0]);
        let x = usual(asm, X_TARGET, exponents[1]);
        op!(asm, "add.s32 {x}, {x}, {u};");
        let w = usual(asm, W_TARGET, exponents[2]);
        let first = asm.test("eq.u32", lane, 0);
        for (place, power) in [(USUAL_U, u), (USUAL_X, x), (USUAL_W, w)] {
            op!(asm, "@{first} st.shared.b32 [{}+{place}], {power};", self.shared);
        }
        let tells = asm.pred();
        op!(asm, "setp.eq.and.u32 {tells}, {}, 0, {first};", self.index);
        op!(asm, "@{tells} st.global.b32 [{}+{}], {w};", self.words, 4 * W_POWER);
        op!(asm, "@{tells} st.global.b32 [{}+{}], {x};", self.words, 4 * X_POWER);
    }
}

/// `eighth * count / 8`.
fn spread(asm: &mut Asm, eighth: Reg, count: Reg) -> Reg {
    let (wide, to) = (asm.bits64(), asm.bits32());
    op!(asm, "mul.wide.u32 {wide}, {eighth}, {count};");
    op!(asm, "shr.u64 {wide}, {wide}, 3;");
    op!(asm, "cvt.u32.u64 {to}, {wide};");
    to
}

/// Quotient and remainder.
fn divide(asm: &mut Asm, value: Reg, by: Reg) -> [Reg; 2] {
    let quotient = asm.bin("div.u32", value, by);
    let rest = asm.bin("mul.lo.u32", quotient, by);
    let rest = asm.bin("sub.u32", value, rest);
    [quotient, rest]
}

/// Address of `base[batch, .., position, 0]`, in the first head where there are heads.
fn token_row(asm: &mut Asm, base: &str, of_batch: &str, of_row: &str, batch: Reg, position: Reg) -> Reg {
    let (base, of_batch, of_row) = (asm.address(base), asm.wide(of_batch), asm.int(of_row));
    let (at, wide) = (asm.bits64(), asm.bits64());
    op!(asm, "mul.wide.u32 {at}, {position}, {of_row};");
    op!(asm, "cvt.u64.u32 {wide}, {batch};");
    op!(asm, "mad.lo.u64 {at}, {wide}, {of_batch}, {at};");
    op!(asm, "shl.b64 {at}, {at}, 2;");
    op!(asm, "add.u64 {at}, {at}, {base};");
    at
}

/// Whether `when` and there are any.
fn also(asm: &mut Asm, when: Reg, count: Reg) -> Reg {
    let both = asm.pred();
    op!(asm, "setp.ne.and.u32 {both}, {count}, 0, {when};");
    both
}

/// An element of a row of `count`, zero past its end.
fn sampled(asm: &mut Asm, row: Reg, element: Reg, count: Reg, when: Reg) -> Reg {
    let (inside, value) = (asm.pred(), asm.float());
    op!(asm, "setp.lt.and.u32 {inside}, {element}, {count}, {when};");
    let at = asm.at(row, element, 4);
    op!(asm, "mov.f32 {value}, 0f00000000;");
    op!(asm, "@{inside} ld.global.nc.f32 {value}, [{at}];");
    value
}

/// The bits of the largest finite magnitude, which order as the magnitudes do.
fn largest(asm: &mut Asm, values: &[Reg]) -> Reg {
    let top = asm.set(0);
    add_largest(asm, top, values);
    top
}

fn add_largest(asm: &mut Asm, top: Reg, values: &[Reg]) {
    for value in values {
        let bits = asm.bits32();
        op!(asm, "mov.b32 {bits}, {value};");
        op!(asm, "and.b32 {bits}, {bits}, 0x7fffffff;");
        let finite = asm.test("lt.u32", bits, 0x7f80_0000_u32);
        op!(asm, "@{finite} max.u32 {top}, {top}, {bits};");
    }
}

/// floor(log2(x)) of the bits of a positive normal f32.
fn exponent(asm: &mut Asm, bits: Reg) -> Reg {
    let to = asm.bin("shr.u32", bits, 23);
    op!(asm, "sub.s32 {to}, {to}, 127;");
    to
}

/// The exponent of a magnitude's bits, [`NONE`] of zero.
fn exponent_or_none(asm: &mut Asm, bits: Reg) -> Reg {
    let exponent = exponent(asm, bits);
    let none = asm.test("eq.u32", bits, 0);
    asm.select(NONE, exponent, none)
}

/// Scaled and rounded to nearest: two fp16 in 32 bits.
fn round_pair(asm: &mut Asm, [low, high]: [Reg; 2], factors: [Reg; 2]) -> Reg {
    let scaled = [low, high].map(|value| {
        let once = asm.binf("mul.rn.f32", value, factors[0]);
        asm.binf("mul.rn.f32", once, factors[1])
    });
    let to = asm.bits32();
    op!(asm, "cvt.rn.f16x2.f32 {to}, {}, {};", scaled[1], scaled[0]);
    to
}

/// Stores scaled and rounded elements at an address of fp16.
fn store_rounded(asm: &mut Asm, at: Reg, offset: u32, values: &[Reg], factors: [Reg; 2], when: Reg) {
    match *values {
        [a, b, c, d] => {
            let (low, high) = (round_pair(asm, [a, b], factors), round_pair(asm, [c, d], factors));
            op!(asm, "@{when} st.global.v2.b32 [{at}+{offset}], {{{low}, {high}}};");
        }
        _ => {
            for (index, &value) in values.iter().enumerate() {
                let once = asm.binf("mul.rn.f32", value, factors[0]);
                let twice = asm.binf("mul.rn.f32", once, factors[1]);
                let half = asm.bits16();
                op!(asm, "cvt.rn.f16.f32 {half}, {twice};");
                op!(asm, "@{when} st.global.b16 [{at}+{}], {half};", offset + 2 * index as u32);
            }
        }
    }
}

/// How often an input is read.
#[derive(Clone, Copy)]
enum Reads {
    /// Once: it must not drive from the second-level cache what the product kernel will read.
    Once,
    Often,
}

/// `count` elements from an address on, zero where `when` is false.
fn load(asm: &mut Asm, at: Reg, reads: Reads, count: u32, when: Reg) -> Vec<Reg> {
    let to = asm.floats(count as usize);
    for value in &to {
        op!(asm, "mov.f32 {value}, 0f00000000;");
    }
    let kind = match reads {
        Reads::Once => "cs.nc",
        Reads::Often => "nc",
    };
    match *to {
        [a, b, c, d] => op!(asm, "@{when} ld.global.{kind}.v4.f32 {{{a}, {b}, {c}, {d}}}, [{at}];"),
        [a] => op!(asm, "@{when} ld.global.{kind}.f32 {a}, [{at}];"),
        _ => {}
    }
    to
}

/// One row that is rounded without being un-rotated, in units of the kernel's vector.
struct Cast {
    from: Reg,
    to: Reg,
    /// The thread's first unit and the distance to its next.
    first: Reg,
    step: Reg,
    units: Reg,
    when: Reg,
    vector: u32,
}

/// Units of a row of X that a thread has under way beside its gradients.
const X_UNDER_WAY: u32 = 2;
/// Units of the weights that a thread has under way.
const W_UNDER_WAY: u32 = 4;

impl Cast {
    /// The loads of a round of units from `unit` on.
    fn load(&self, asm: &mut Asm, unit: Reg) -> Vec<(Vec<Reg>, Reg, Reg)> {
        let mut at = asm.set(unit);
        let mut loaded = Vec::new();
        for _ in 0..X_UNDER_WAY {
            let inside = asm.pred();
            op!(asm, "setp.lt.and.u32 {inside}, {at}, {}, {};", self.units, self.when);
            let from = asm.bits64();
            op!(asm, "mad.wide.u32 {from}, {at}, {}, {};", 4 * self.vector, self.from);
            loaded.push((load(asm, from, Reads::Once, self.vector, inside), at, inside));
            at = asm.bin("add.u32", at, self.step);
        }
        loaded
    }

    fn store(&self, asm: &mut Asm, loaded: &[(Vec<Reg>, Reg, Reg)], factors: [Reg; 2], top: Reg) {
        for (values, unit, inside) in loaded {
            add_largest(asm, top, values);
            let to = asm.bits64();
            op!(asm, "mad.wide.u32 {to}, {unit}, {}, {};", 2 * self.vector, self.to);
            store_rounded(asm, to, 0, values, factors, *inside);
        }
    }

    /// Rounds what the first round of loads brought, then the rest of the row; returns the largest magnitude's bits.
    fn finish(&self, asm: &mut Asm, loaded: &[(Vec<Reg>, Reg, Reg)], factors: [Reg; 2]) -> Reg {
        let top = asm.set(0);
        self.store(asm, loaded, factors, top);
        let unit = asm.bits32();
        op!(asm, "mad.lo.u32 {unit}, {}, {X_UNDER_WAY}, {};", self.step, self.first);
        let (again, done) = (asm.label(), asm.label());
        asm.place(again);
        let over = asm.test("ge.u32", unit, self.units);
        op!(asm, "@{over} bra {done};");
        let loaded = self.load(asm, unit);
        self.store(asm, &loaded, factors, top);
        op!(asm, "mad.lo.u32 {unit}, {}, {X_UNDER_WAY}, {unit};", self.step);
        op!(asm, "bra {again};");
        asm.place(done);
        top
    }
}

/// A block of tokens: who does what.
struct Token {
    /// The thread's place among those of its token.
    unit: Reg,
    per_token: Reg,
    slot: Reg,
    index: Reg,
    batch: Reg,
    position: Reg,
    active: Reg,
    /// Address of the token's row of U.
    u: Reg,
}

impl Token {
    fn of(asm: &mut Asm, block: &Block) -> Self {
        let per_token = asm.int("threads_per_token");
        let per_block = asm.int("tokens_per_block");
        let (tokens, seq) = (asm.int("tokens"), asm.int("seq"));
        let [slot, unit] = divide(asm, block.thread, per_token);
        // The first tokens last: the product kernel begins with them and finds them in the second-level cache.
        let from_end = asm.bin("sub.u32", block.token_blocks, 1);
        op!(asm, "sub.u32 {from_end}, {from_end}, {};", block.index);
        let index = asm.bits32();
        op!(asm, "mad.lo.u32 {index}, {from_end}, {per_block}, {slot};");
        let (in_block, active) = (asm.test("lt.u32", slot, per_block), asm.pred());
        op!(asm, "setp.lt.and.u32 {active}, {index}, {tokens}, {in_block};");
        let safe = asm.set(0);
        op!(asm, "@{active} mov.b32 {safe}, {index};");
        let [batch, position] = divide(asm, safe, seq);
        let (base, pitch, u) = (asm.address("u"), asm.int("u_pitch"), asm.bits64());
        op!(asm, "mul.wide.u32 {u}, {safe}, {pitch};");
        op!(asm, "shl.b64 {u}, {u}, 1;");
        op!(asm, "add.u64 {u}, {u}, {base};");
        Self { unit, per_token, slot, index: safe, batch, position, active, u }
    }

    /// The row of X.
    fn cast(&self, asm: &mut Asm, vector: u32) -> Cast {
        let from = token_row(asm, "x", "x_batch", "x_seq", self.batch, self.position);
        let (hidden, w_rows, pitch, base) =
            (asm.int("hidden"), asm.int("w_rows"), asm.int("wx_pitch"), asm.address("wx"));
        let row = asm.bin("add.u32", self.index, w_rows);
        let to = asm.bits64();
        op!(asm, "mul.wide.u32 {to}, {row}, {pitch};");
        op!(asm, "shl.b64 {to}, {to}, 1;");
        op!(asm, "add.u64 {to}, {to}, {base};");
        let units = asm.bin("div.u32", hidden, vector);
        let want = asm.int("want_x");
        let when = asm.pred();
        op!(asm, "setp.ne.and.u32 {when}, {want}, 0, {};", self.active);
        Cast { from, to, first: self.unit, step: self.per_token, units, when, vector }
    }

    /// Joins the magnitudes of the token's threads; all threads of the block meet.
    fn join(&self, asm: &mut Asm, block: &Block, top: Reg) -> Reg {
        let at = asm.bits32();
        op!(asm, "mad.lo.u32 {at}, {}, 4, {};", self.slot, block.shared);
        op!(asm, "red.shared.max.u32 [{at}+{ROW_TOPS}], {top};");
        op!(asm, "bar.sync 0;");
        let joined = asm.bits32();
        op!(asm, "ld.shared.b32 {joined}, [{at}+{ROW_TOPS}];");
        joined
    }

    /// The power of two for a row of U whose largest magnitude has these bits, told to the product kernel.
    fn power(&self, asm: &mut Asm, block: &Block, top: Reg) -> Reg {
        let usual = block.usual(asm, USUAL_U);
        let exponent = exponent_or_none(asm, top);
        let power = fitting_power(asm, exponent, usual);
        let tells = asm.pred();
        op!(asm, "setp.eq.and.u32 {tells}, {}, 0, {};", self.unit, self.active);
        let word = asm.bin("add.u32", self.index, TOKENS);
        let at = asm.at(block.words, word, 4);
        op!(asm, "@{tells} st.global.b32 [{at}], {power};");
        power
    }

    /// Zeroes the token's row of dX where the product kernel will add to it.
    fn zero_hidden(&self, asm: &mut Asm, vector: u32) {
        let (zero_from, hidden, pitch) = (asm.int("zero_from"), asm.int("hidden"), asm.int("hidden_row"));
        let done = asm.label();
        let zeroed = asm.pred();
        op!(asm, "setp.ge.and.u32 {zeroed}, {}, {zero_from}, {};", self.index, self.active);
        op!(asm, "@!{zeroed} bra {done};");
        let (row, base) = (asm.bits64(), asm.address("to_hidden"));
        op!(asm, "mul.wide.u32 {row}, {}, {pitch};", self.index);
        op!(asm, "shl.b64 {row}, {row}, 2;");
        op!(asm, "add.u64 {row}, {row}, {base};");
        let (units, unit) = (asm.bin("div.u32", hidden, vector), asm.set(self.unit));
        let again = asm.label();
        asm.place(again);
        let over = asm.test("ge.u32", unit, units);
        op!(asm, "@{over} bra {done};");
        let at = asm.at(row, unit, 4 * vector);
        if vector == 4 {
            let zero = asm.set(0);
            op!(asm, "st.global.v4.b32 [{at}], {{{zero}, {zero}, {zero}, {zero}}};");
        } else {
            op!(asm, "st.global.b32 [{at}], 0;");
        }
        op!(asm, "add.u32 {unit}, {unit}, {};", self.per_token);
        op!(asm, "bra {again};");
        asm.place(done);
    }

    /// Rounds the row of X at the power that goes with the token's, and counts what it found.
    fn finish_x(&self, asm: &mut Asm, block: &Block, cast: &Cast, loaded: &[(Vec<Reg>, Reg, Reg)], power: Reg) {
        let x_power = block.usual(asm, USUAL_X);
        let own = asm.bin("sub.s32", x_power, power);
        let factors = two_factors(asm, own);
        let top = cast.finish(asm, loaded, factors);
        let exponent = exponent_or_none(asm, top);
        let relative = asm.bin("sub.s32", exponent, power);
        let none = asm.test("eq.u32", top, 0);
        let counted = asm.select(NONE, relative, none);
        op!(asm, "redux.sync.max.s32 {counted}, {counted}, 0xffffffff;");
        block.count(asm, counted);
    }
}

/// Chooses among the gradients by head: the address of `[batch, head, position, 0]`, and whether it is rotated.
fn head_row(asm: &mut Asm, token: &Token, head: Reg) -> (Reg, Reg) {
    let (q_heads, kv_heads) = (asm.int("q_heads"), asm.int("kv_heads"));
    let v_first = asm.bin("add.u32", q_heads, kv_heads);
    let rotated = asm.test("lt.u32", head, v_first);
    let base = asm.address("grad_q");
    let (of_batch, of_head, of_row) = (asm.wide("q_batch"), asm.int("q_head"), asm.int("q_seq"));
    let local = asm.set(head);
    let others = [(q_heads, "grad_k", "k_batch", "k_head", "k_seq"), (v_first, "grad_v", "v_batch", "v_head", "v_seq")];
    for (first, from, batch, head_stride, row) in others {
        let beyond = asm.test("ge.u32", head, first);
        let (from, batch, head_stride, row) = (asm.address(from), asm.wide(batch), asm.int(head_stride), asm.int(row));
        op!(asm, "@{beyond} mov.b64 {base}, {from};");
        op!(asm, "@{beyond} mov.b64 {of_batch}, {batch};");
        op!(asm, "@{beyond} mov.b32 {of_head}, {head_stride};");
        op!(asm, "@{beyond} mov.b32 {of_row}, {row};");
        op!(asm, "@{beyond} sub.u32 {local}, {head}, {first};");
    }
    let (at, wide) = (asm.bits64(), asm.bits64());
    op!(asm, "mul.wide.u32 {at}, {local}, {of_head};");
    op!(asm, "mad.wide.u32 {at}, {}, {of_row}, {at};", token.position);
    op!(asm, "cvt.u64.u32 {wide}, {};", token.batch);
    op!(asm, "mad.lo.u64 {at}, {wide}, {of_batch}, {at};");
    op!(asm, "shl.b64 {at}, {at}, 2;");
    op!(asm, "add.u64 {at}, {at}, {base};");
    (at, rotated)
}

/// Turns a pair back: `(a c0 + b s1, b c1 - a s0)`, where it was turned.
fn unrotate(asm: &mut Asm, [a, b]: [Reg; 2], cos: [Reg; 2], sin: [Reg; 2], rotated: Reg) {
    let first = asm.binf("mul.rn.f32", a, cos[0]);
    op!(asm, "fma.rn.f32 {first}, {b}, {}, {first};", sin[1]);
    let (second, minus) = (asm.binf("mul.rn.f32", b, cos[1]), asm.float());
    op!(asm, "neg.f32 {minus}, {a};");
    op!(asm, "fma.rn.f32 {second}, {minus}, {}, {second};", sin[0]);
    op!(asm, "@{rotated} mov.f32 {a}, {first};");
    op!(asm, "@{rotated} mov.f32 {b}, {second};");
}

/// A token in registers.
mod whole {
    use super::*;

    pub(super) fn tokens(asm: &mut Asm, block: &Block) {
        let token = Token::of(asm, block);
        let (head_dim, q_heads, kv_heads) = (asm.int("head_dim"), asm.int("q_heads"), asm.int("kv_heads"));
        let half = asm.bin("shr.u32", head_dim, 1);
        let quads = asm.bin("shr.u32", half, 2);
        let [group, quad] = divide(asm, token.unit, quads);
        let groups = asm.bin("div.u32", token.per_token, quads);
        let heads = asm.bits32();
        op!(asm, "mad.lo.u32 {heads}, {kv_heads}, 2, {q_heads};");
        let second_half = asm.bits64();
        op!(asm, "mul.wide.u32 {second_half}, {half}, 4;");

        let mut units = Vec::new();
        for index in 0..HEADS {
            let head = asm.bits32();
            op!(asm, "mad.lo.u32 {head}, {groups}, {index}, {group};");
            let exists = asm.pred();
            op!(asm, "setp.lt.and.u32 {exists}, {head}, {heads}, {};", token.active);
            let (row, rotated) = head_row(asm, &token, head);
            let at = asm.at(row, quad, 16);
            let other = asm.bin64("add.u64", at, second_half);
            let pair = [load(asm, at, Reads::Once, 4, exists), load(asm, other, Reads::Once, 4, exists)];
            units.push((pair, head, exists, rotated));
        }
        let table = |asm: &mut Asm, base: &str, of_batch: &str, of_row: &str| {
            let row = token_row(asm, base, of_batch, of_row, token.batch, token.position);
            let at = asm.at(row, quad, 16);
            let other = asm.bin64("add.u64", at, second_half);
            [load(asm, at, Reads::Often, 4, token.active), load(asm, other, Reads::Often, 4, token.active)]
        };
        let cos = table(asm, "cos", "cos_batch", "cos_seq");
        let sin = table(asm, "sin", "sin_batch", "sin_seq");
        let cast = token.cast(asm, block.rows.vector());
        let x = cast.load(asm, cast.first);
        op!(asm, "bar.sync 0;");

        let top = asm.set(0);
        for ([first, second], _, _, rotated) in &units {
            for i in 0..4 {
                let (cos, sin) = ([cos[0][i], cos[1][i]], [sin[0][i], sin[1][i]]);
                unrotate(asm, [first[i], second[i]], cos, sin, *rotated);
            }
            add_largest(asm, top, first);
            add_largest(asm, top, second);
        }
        let top = token.join(asm, block, top);
        let power = token.power(asm, block, top);
        let factors = two_factors(asm, power);
        for ([first, second], head, exists, _) in &units {
            let column = asm.bin("mul.lo.u32", *head, head_dim);
            op!(asm, "mad.lo.u32 {column}, {quad}, 4, {column};");
            let at = asm.bits64();
            op!(asm, "mad.wide.u32 {at}, {column}, 2, {};", token.u);
            store_rounded(asm, at, 0, first, factors, *exists);
            let other = asm.bits64();
            op!(asm, "mad.wide.u32 {other}, {half}, 2, {at};");
            store_rounded(asm, other, 0, second, factors, *exists);
        }
        token.finish_x(asm, block, &cast, &x, power);
        token.zero_hidden(asm, block.rows.vector());
    }
}

/// A token pair by pair, twice: once for its largest magnitude, once to round.
mod any {
    use super::*;

    pub(super) fn tokens(asm: &mut Asm, block: &Block) {
        let token = Token::of(asm, block);
        op!(asm, "bar.sync 0;");
        let top = asm.set(0);
        let nothing = asm.label();
        each_pair(asm, &token, nothing, |asm, _, pair| add_largest(asm, top, &pair));
        let top = token.join(asm, block, top);
        let power = token.power(asm, block, top);
        let factors = two_factors(asm, power);
        let nothing = asm.label();
        each_pair(asm, &token, nothing, |asm, places, pair| {
            for (place, value) in places.into_iter().zip(pair) {
                let at = asm.bits64();
                op!(asm, "mad.wide.u32 {at}, {place}, 2, {};", token.u);
                store_rounded(asm, at, 0, &[value], factors, token.active);
            }
        });
        let cast = token.cast(asm, block.rows.vector());
        let x = cast.load(asm, cast.first);
        token.finish_x(asm, block, &cast, &x, power);
        token.zero_hidden(asm, block.rows.vector());
    }

    /// Calls `then` with the columns of U and the values of each of the thread's pairs.
    fn each_pair(asm: &mut Asm, token: &Token, done: Label, then: impl FnOnce(&mut Asm, [Reg; 2], [Reg; 2])) {
        let (head_dim, q_heads, kv_heads) = (asm.int("head_dim"), asm.int("q_heads"), asm.int("kv_heads"));
        let (rotary, interleaved) = (asm.int("rotary_dim"), asm.int("interleaved"));
        let pairs = asm.bin("shr.u32", head_dim, 1);
        let turned_pairs = asm.bin("shr.u32", rotary, 1);
        let heads = asm.bits32();
        op!(asm, "mad.lo.u32 {heads}, {kv_heads}, 2, {q_heads};");
        let units = asm.bin("mul.lo.u32", heads, pairs);
        let unit = asm.set(token.unit);
        op!(asm, "@!{} mov.b32 {units}, 0;", token.active);
        let is_interleaved = asm.test("ne.u32", interleaved, 0);
        let again = asm.label();
        asm.place(again);
        let over = asm.test("ge.u32", unit, units);
        op!(asm, "@{over} bra {done};");
        let [head, pair] = divide(asm, unit, pairs);
        let (row, mut rotated) = head_row(asm, token, head);
        // Elements of the pair: (i, i + R/2) half-split; (2i, 2i+1) interleaved and in the part that is not rotated.
        let turned = asm.test("lt.u32", pair, turned_pairs);
        let both = asm.pred();
        op!(asm, "and.pred {both}, {rotated}, {turned};");
        rotated = both;
        let next_to = asm.pred();
        op!(asm, "not.pred {next_to}, {turned};");
        op!(asm, "or.pred {next_to}, {next_to}, {is_interleaved};");
        let twice = asm.bin("shl.b32", pair, 1);
        let after = asm.bin("add.u32", twice, 1);
        let across = asm.bin("add.u32", pair, turned_pairs);
        let elements = [asm.select(twice, pair, next_to), asm.select(after, across, next_to)];
        let values = elements.map(|element| {
            let at = asm.at(row, element, 4);
            load(asm, at, Reads::Often, 1, token.active)[0]
        });
        let table = |asm: &mut Asm, base: &str, of_batch: &str, of_row: &str| {
            let row = token_row(asm, base, of_batch, of_row, token.batch, token.position);
            elements.map(|element| {
                let at = asm.at(row, element, 4);
                load(asm, at, Reads::Often, 1, rotated)[0]
            })
        };
        let cos = table(asm, "cos", "cos_batch", "cos_seq");
        let sin = table(asm, "sin", "sin_batch", "sin_seq");
        unrotate(asm, values, cos, sin, rotated);
        let columns = elements.map(|element| {
            let column = asm.bits32();
            op!(asm, "mad.lo.u32 {column}, {head}, {head_dim}, {element};");
            column
        });
        then(asm, columns, values);
        op!(asm, "add.u32 {unit}, {unit}, {};", token.per_token);
        op!(asm, "bra {again};");
        asm.place(done);
    }
}

/// Eight rows of the stacked weights, zeros past the last.
fn weight_rows(asm: &mut Asm, block: &Block) {
    let vector = block.rows.vector();
    let (head_dim, q_heads, kv_heads) = (asm.int("head_dim"), asm.int("q_heads"), asm.int("kv_heads"));
    let q_rows = asm.bin("mul.lo.u32", q_heads, head_dim);
    let kv_rows = asm.bin("mul.lo.u32", kv_heads, head_dim);
    let v_first = asm.bin("add.u32", q_rows, kv_rows);
    let rows = asm.bin("add.u32", v_first, kv_rows);
    let (w_rows, hidden, pitch, base) = (asm.int("w_rows"), asm.int("hidden"), asm.int("wx_pitch"), asm.address("wx"));
    let units = asm.bin("div.u32", hidden, vector);
    let first = asm.bin("sub.u32", block.index, block.token_blocks);
    op!(asm, "mul.lo.u32 {first}, {first}, {WEIGHT_ROWS};");
    let end = asm.bin("add.u32", first, WEIGHT_ROWS);
    op!(asm, "min.u32 {end}, {end}, {w_rows};");
    let count = asm.bin("sub.u32", end, first);
    op!(asm, "mul.lo.u32 {count}, {count}, {units};");

    let load_round = |asm: &mut Asm, unit: Reg| {
        let mut loaded = Vec::new();
        let mut at = asm.set(unit);
        for _ in 0..W_UNDER_WAY {
            let inside = asm.test("lt.u32", at, count);
            let [row, column] = divide(asm, at, units);
            op!(asm, "add.u32 {row}, {row}, {first};");
            let exists = asm.pred();
            op!(asm, "setp.lt.and.u32 {exists}, {row}, {rows}, {inside};");
            let (from, from_pitch, local) = (asm.address("wq"), asm.int("wq_row"), asm.set(row));
            for (beyond, other, stride) in [(q_rows, "wk", "wk_row"), (v_first, "wv", "wv_row")] {
                let is_beyond = asm.test("ge.u32", row, beyond);
                let (other, stride) = (asm.address(other), asm.int(stride));
                op!(asm, "@{is_beyond} mov.b64 {from}, {other};");
                op!(asm, "@{is_beyond} mov.b32 {from_pitch}, {stride};");
                op!(asm, "@{is_beyond} sub.u32 {local}, {row}, {beyond};");
            }
            let source = asm.bits64();
            op!(asm, "mul.wide.u32 {source}, {local}, {from_pitch};");
            op!(asm, "mad.wide.u32 {source}, {column}, {vector}, {source};");
            op!(asm, "shl.b64 {source}, {source}, 2;");
            op!(asm, "add.u64 {source}, {source}, {from};");
            let to = asm.bits64();
            op!(asm, "mul.wide.u32 {to}, {row}, {pitch};");
            op!(asm, "mad.wide.u32 {to}, {column}, {vector}, {to};");
            op!(asm, "shl.b64 {to}, {to}, 1;");
            op!(asm, "add.u64 {to}, {to}, {base};");
            loaded.push((load(asm, source, Reads::Once, vector, exists), to, inside));
            at = asm.bin("add.u32", at, block.workers);
        }
        loaded
    };
    let store_round = |asm: &mut Asm, loaded: &[(Vec<Reg>, Reg, Reg)], factors: [Reg; 2], top: Reg| {
        for (values, to, inside) in loaded {
            add_largest(asm, top, values);
            store_rounded(asm, *to, 0, values, factors, *inside);
        }
    };

    let loaded = load_round(asm, block.thread);
    op!(asm, "bar.sync 0;");
    let power = block.usual(asm, USUAL_W);
    let factors = two_factors(asm, power);
    let top = asm.set(0);
    store_round(asm, &loaded, factors, top);
    let unit = asm.bits32();
    op!(asm, "mad.lo.u32 {unit}, {}, {W_UNDER_WAY}, {};", block.workers, block.thread);
    let (again, done) = (asm.label(), asm.label());
    asm.place(again);
    let over = asm.test("ge.u32", unit, count);
    op!(asm, "@{over} bra {done};");
    let loaded = load_round(asm, unit);
    store_round(asm, &loaded, factors, top);
    op!(asm, "mad.lo.u32 {unit}, {}, {W_UNDER_WAY}, {unit};", block.workers);
    op!(asm, "bra {again};");
    asm.place(done);
    let exponent = exponent_or_none(asm, top);
    block.count(asm, exponent);
}

const _: () = assert!(words::FITTED <= HIGHEST && LOWEST < HIGHEST);

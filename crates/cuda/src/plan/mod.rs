//! What one call does: kernels, grids, arguments by name, workspace. Pure: it holds no address and needs no GPU.

mod hopper;

use qkv_rope_op::{Cost, Dims, Pairing, Precision, Problem, Tensor, Write};
use serde::Serialize;

use crate::error::Error;
use crate::facts::Facts;
use crate::kernel::{
    Access, HOPPER_TILE, KERNELS, Kernel, PREP_ANY_TOKENS, PrepShape, ProductTile, Terms, WEIGHT_ROWS,
};
use crate::schedule::{self, Cut, Direct, HEADER_WORDS, Schedule};
use crate::tune;

/// Regions of the workspace start at multiples of this many bytes.
pub const WORKSPACE_ALIGNMENT: u64 = 256;
/// Rows of U, W and X start at multiples of this many elements: what the tensor memory accelerator needs, and more.
const PITCH_ELEMS: usize = 64;
/// Words past the tables that a program may read without using them.
const WORDS_SLACK: usize = 256;

/// What is assumed of the tensors of a call beyond their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Layout {
    /// Addresses and strides of the inputs.
    pub inputs: Access,
    /// Addresses and strides of the outputs.
    pub outputs: Access,
    /// grad_hidden is `[T, E]` with one stride.
    pub flat_hidden: bool,
}

impl Layout {
    /// Rows that are multiples of 16 bytes at 16-byte aligned addresses, densely packed.
    pub const DENSE: Self = Self { inputs: Access::Wide, outputs: Access::Wide, flat_hidden: true };

    /// Dense tensors of these sizes, each at a 16-byte aligned address.
    pub fn dense(dims: Dims) -> Self {
        let wide = |rows: &[usize]| {
            if rows.iter().all(|elems| elems.is_multiple_of(4)) { Access::Wide } else { Access::Narrow }
        };
        Self {
            inputs: wide(&[dims.hidden(), dims.head_dim(), dims.rotary_dim()]),
            outputs: wide(&[dims.hidden()]),
            flat_hidden: true,
        }
    }
}

/// A place in device memory, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// An input or output of the call.
    Tensor(Tensor),
    /// A byte offset in the workspace.
    Workspace(u64),
    /// The product kernel's task table.
    ProductTable,
    /// The finish kernel's task table.
    FinishTable,
}

/// One kernel argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arg {
    /// An address.
    At(Place),
    /// f32 elements from the workspace's scratch region to a tensor.
    Distance(Tensor),
    /// Stride of a dimension as 32 bits.
    Stride(Tensor, usize),
    /// Stride of a dimension as 64 bits.
    WideStride(Tensor, usize),
    /// An integer of 32 bits.
    Int(i32),
    /// A tensor map, by value.
    Map(MapSpec),
}

/// A matrix of fp16 in the workspace and the boxes that are copied from it, in rows of 128 swizzled bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MapSpec {
    /// Byte offset in the workspace.
    pub at: u64,
    /// Rows of the matrix.
    pub rows: u64,
    /// Elements of a row.
    pub cols: u64,
    /// Bytes from row to row.
    pub pitch_bytes: u64,
    /// Rows of a box.
    pub box_rows: u32,
    /// Elements of a box's row.
    pub box_cols: u32,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Launch {
    /// The kernel.
    pub kernel: Kernel,
    /// Thread blocks; of kernels made of tiles, clusters of them.
    pub grid: u32,
    /// Threads per block; 1 for kernels made of tiles, whose cubins say how many they need.
    pub threads: u32,
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Whether it may start before the launch before it has ended: it waits for that itself.
    pub early: bool,
    /// Arguments in order.
    #[serde(skip)]
    pub args: Vec<Arg>,
}

impl Launch {
    fn of(kernel: Kernel, grid: u32, args: Vec<Arg>) -> Self {
        Self { kernel, grid, threads: 1, shared_bytes: 0, early: false, args }
    }
}

/// Sizes and offsets of the workspace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workspace {
    /// Leading terms of U.
    pub u: u64,
    /// Rests of U.
    pub u_rest: u64,
    /// Leading terms of W, then X.
    pub wx: u64,
    /// Rests of W, then X.
    pub wx_rest: u64,
    /// Powers of two.
    pub words: u64,
    /// Scratch slots.
    pub scratch: u64,
    /// All of it.
    pub bytes: u64,
}

/// A plan for one problem on one kind of GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuPlan {
    /// The problem.
    pub problem: Problem,
    /// The GPU.
    pub facts: Facts,
    /// What is assumed of the tensors.
    pub layout: Layout,
    /// What was chosen.
    pub choice: Choice,
    /// Task tables.
    pub schedule: Schedule,
    /// Memory that the call needs.
    pub workspace: Workspace,
    /// What runs, in order.
    pub launches: Vec<Launch>,
    /// Slower paths taken and why.
    pub notes: Vec<String>,
}

/// Plans with the measured choice of tile and splits.
///
/// # Errors
/// [`Error::Refused`] when the GPU backend cannot run the problem.
pub fn plan(problem: &Problem, facts: &Facts, layout: Layout) -> Result<GpuPlan, Error> {
    let terms = terms(problem)?;
    let cut =
        if hopper::serves(facts, terms) { tune::hopper(problem, facts) } else { tune::choose(problem, facts, terms) };
    let choice = Choice { prep: tune::prep(problem, terms), cut, promote: tune::promote(cut.tile) };
    plan_choice(problem, facts, layout, choice)
}

/// What is free to choose for a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Choice {
    /// How the gradients are divided among programs.
    pub prep: PrepShape,
    /// How the products are cut up.
    pub cut: Cut,
    /// Elements of the contraction that are summed before the sum is added to the total, in `split` and on Hopper.
    pub promote: u32,
}

/// Plans with a given choice: for tuning.
///
/// # Errors
/// [`Error::Refused`] when the GPU backend cannot run the problem.
pub fn plan_choice(problem: &Problem, facts: &Facts, layout: Layout, choice: Choice) -> Result<GpuPlan, Error> {
    let Choice { prep, cut, .. } = choice;
    let sizes = Sizes::new(problem, layout, prep)?;
    let hopper = if cut.tile == HOPPER_TILE { Some(hopper::Sizes::new(problem, layout)?) } else { None };
    let direct = direct(problem, layout);
    let programs = facts.multiprocessors * cut.tile.resident / cut.tile.cluster;
    let schedule = schedule::build(problem, cut, direct, programs, choice.promote);
    let workspace = match &hopper {
        Some(hopper) => hopper.workspace(&schedule),
        None => sizes.workspace(&schedule, cut.tile),
    };
    let mut plan = GpuPlan {
        problem: *problem,
        facts: facts.clone(),
        layout,
        choice,
        schedule,
        workspace,
        launches: Vec::new(),
        notes: notes(problem, layout, direct, if hopper.is_some() { None } else { Some(sizes.prep) }),
    };
    plan.notes.extend(hopper.as_ref().and_then(hopper::Sizes::note));
    if !sizes.nothing_to_do() {
        plan.launches = match &hopper {
            Some(hopper) => hopper.launches(&plan),
            None => sizes.launches(&plan),
        };
    }
    if let Some(missing) = plan.launches.iter().find(|launch| !KERNELS.contains(&launch.kernel)) {
        return Err(refused(format!("no kernel {} was compiled", missing.kernel)));
    }
    Ok(plan)
}

fn refused(why: String) -> Error {
    Error::Refused { why }
}

/// Terms per operand of a precision.
fn terms(problem: &Problem) -> Result<Terms, Error> {
    match problem.precision {
        Precision::Fast => Ok(Terms::One),
        Precision::Split => Ok(Terms::Two),
        Precision::Ieee => Err(refused("precision `ieee` has no GPU kernels; `split` is as exact".to_owned())),
    }
}

/// The kernel that makes U, and the tokens of one of its programs. The fast rows take whole heads of half-split pairs, a
/// multiple of 8 elements long and aligned to 16 bytes.
fn prep_kernel(problem: &Problem, terms: Terms, access: Access, shape: PrepShape) -> (Kernel, u32) {
    let dims = problem.dims;
    let half = dims.head_dim() / 2;
    let whole = problem.pairing == Pairing::HalfSplit && dims.rotary_dim() == dims.head_dim();
    let fits = half > 0 && half.is_multiple_of(4) && half <= 128;
    if access == Access::Wide && whole && fits {
        let half = half.next_power_of_two().max(32) as u32;
        (Kernel::Prep { terms, access, half, shape }, shape.tokens)
    } else {
        (Kernel::PrepAny { terms, pairing: problem.pairing }, PREP_ANY_TOKENS)
    }
}

fn direct(problem: &Problem, layout: Layout) -> Direct {
    let wide = layout.outputs == Access::Wide && problem.dims.hidden().is_multiple_of(4);
    let overwrite = |tensor| problem.outputs.get(tensor) != Some(Write::Accumulate);
    let weights = [Tensor::GradQWeight, Tensor::GradKWeight, Tensor::GradVWeight];
    Direct {
        hidden: wide && layout.flat_hidden && overwrite(Tensor::GradHiddenStates),
        weights: wide && weights.into_iter().all(overwrite),
        flat_hidden: layout.flat_hidden,
    }
}

fn notes(problem: &Problem, layout: Layout, direct: Direct, prep: Option<Kernel>) -> Vec<String> {
    let mut notes = Vec::new();
    if matches!(prep, Some(Kernel::PrepAny { .. })) {
        notes.push(
            "the gradients are un-rotated by the general kernel: the fast ones take half-split pairs of whole heads, at most \
             256 elements and a multiple of 8, E a multiple of 4, all aligned to 16 bytes"
                .to_owned(),
        );
    }
    if layout.inputs == Access::Narrow {
        notes
            .push("inputs are read 4 bytes at a time: an address or a stride is not a multiple of 16 bytes".to_owned());
    }
    let indirect = |what: &str| {
        format!("{what} goes through scratch memory: it is accumulated into, or its rows are not 16-byte aligned")
    };
    if problem.outputs.grad_hidden.is_some() && !direct.hidden {
        notes.push(indirect("grad_hidden"));
    }
    if problem.outputs.any_weight() && !direct.weights {
        notes.push(indirect("grad_weight"));
    }
    notes
}

/// Sizes that arguments are made from, checked to fit the kernels' 32-bit indices.
struct Sizes {
    dims: Dims,
    terms: Terms,
    access: Access,
    prep: Kernel,
    u_pitch: usize,
    wx_pitch: usize,
    w_rows: usize,
    seq_tiles: usize,
    token_blocks: usize,
    x_tiles: usize,
    q_blocks: usize,
    kv_blocks: usize,
    v_blocks: usize,
    want_hidden: bool,
    want_weights: bool,
}

impl Sizes {
    fn new(problem: &Problem, layout: Layout, prep: PrepShape) -> Result<Self, Error> {
        let dims = problem.dims;
        let terms = terms(problem)?;
        let wide = layout.inputs == Access::Wide && dims.hidden().is_multiple_of(4);
        let access = if wide { Access::Wide } else { Access::Narrow };
        let (prep, tokens) = prep_kernel(problem, terms, access, prep);
        let w_rows = dims.rows().next_multiple_of(PITCH_ELEMS);
        let weight_rows = WEIGHT_ROWS as usize;
        let seq_tiles = dims.seq().div_ceil(tokens as usize);
        let sizes = Self {
            dims,
            terms,
            access,
            prep,
            u_pitch: dims.rows().next_multiple_of(PITCH_ELEMS),
            wx_pitch: dims.hidden().next_multiple_of(PITCH_ELEMS),
            w_rows,
            seq_tiles,
            token_blocks: seq_tiles * dims.batch(),
            x_tiles: dims.seq().div_ceil(weight_rows),
            q_blocks: dims.query_rows().div_ceil(weight_rows),
            kv_blocks: dims.kv_rows().div_ceil(weight_rows),
            v_blocks: (w_rows - dims.query_rows() - dims.kv_rows()).div_ceil(weight_rows),
            want_hidden: problem.outputs.grad_hidden.is_some(),
            want_weights: problem.outputs.any_weight(),
        };
        let largest = [
            dims.tokens() + w_rows,
            sizes.u_pitch,
            sizes.wx_pitch,
            sizes.words(),
            dims.tokens().div_ceil(64) * dims.hidden().div_ceil(64),
        ];
        match largest.into_iter().find(|&extent| extent >= i32::MAX as usize) {
            Some(extent) => Err(refused(format!("{dims}: an extent of {extent} does not fit the kernels' 31 bits"))),
            None => Ok(sizes),
        }
    }

    fn nothing_to_do(&self) -> bool {
        let hidden = self.want_hidden && self.dims.tokens() > 0;
        let weights = self.want_weights && self.dims.rows() > 0;
        self.dims.hidden() == 0 || !(hidden || weights)
    }

    fn weight_blocks(&self) -> usize {
        if self.want_hidden { self.q_blocks + self.kv_blocks + self.v_blocks } else { 0 }
    }

    fn x_blocks(&self) -> usize {
        if self.want_weights { self.x_tiles * self.dims.batch() } else { 0 }
    }

    /// Where the largest exponents of the rows of X start.
    fn x_exps(&self) -> usize {
        HEADER_WORDS + self.dims.tokens()
    }

    /// Where the words of the `prep` programs start.
    fn status(&self) -> usize {
        self.x_exps() + self.dims.tokens()
    }

    fn prep_blocks(&self) -> usize {
        self.token_blocks + self.x_blocks() + self.weight_blocks()
    }

    fn words(&self) -> usize {
        self.status() + self.prep_blocks() + WORDS_SLACK
    }

    fn workspace(&self, schedule: &Schedule, tile: ProductTile) -> Workspace {
        let mut end = 0;
        let mut take = |elems: usize, bytes: usize| take(&mut end, elems, bytes);
        let rests = usize::from(self.terms == Terms::Two);
        let u_elems = self.dims.tokens().max(1) * self.u_pitch;
        let wx_elems = (self.w_rows + self.dims.tokens()) * self.wx_pitch;
        let u = take(u_elems, 2);
        let u_rest = take(u_elems * rests, 2);
        let wx = take(wx_elems, 2);
        let wx_rest = take(wx_elems * rests, 2);
        let words = take(self.words(), 4);
        let scratch = take(schedule.slots as usize * (tile.rows * tile.cols) as usize, 4);
        Workspace { u, u_rest, wx, wx_rest, words, scratch, bytes: end }
    }

    fn launches(&self, plan: &GpuPlan) -> Vec<Launch> {
        let mut launches = Vec::new();
        let blocks = self.prep_blocks();
        if blocks > 0 {
            launches.push(Launch::of(self.prep, blocks as u32, self.prep_args(&plan.workspace)));
        }
        let settle = Kernel::Settle { terms: self.terms, access: self.access };
        launches.push(Launch::of(settle, plan.facts.multiprocessors, self.settle_args(plan)));
        let product = Kernel::Product(plan.choice.cut.tile);
        launches.push(Launch::of(product, plan.schedule.programs, self.product_args(plan)));
        if plan.schedule.finish_tasks > 0 {
            let tile = plan.choice.cut.tile;
            let wide = plan.layout.outputs == Access::Wide && self.dims.hidden().is_multiple_of(4);
            let access = if wide { Access::Wide } else { Access::Narrow };
            let finish = Kernel::Finish { slot: tile.rows * tile.cols, cols: tile.cols, access };
            launches.push(Launch::of(finish, plan.schedule.finish_tasks, finish_args(plan)));
        }
        launches
    }

    fn prep_args(&self, work: &Workspace) -> Vec<Arg> {
        use Tensor::{Cos, GradKey, GradQuery, GradValue, HiddenStates, KWeight, QWeight, Sin, VWeight};
        let at = |tensor| Arg::At(Place::Tensor(tensor));
        let mut args = vec![
            at(GradQuery),
            at(GradKey),
            at(GradValue),
            at(Cos),
            at(Sin),
            at(HiddenStates),
            at(QWeight),
            at(KWeight),
            at(VWeight),
            Arg::At(Place::Workspace(work.u)),
            Arg::At(Place::Workspace(work.u_rest)),
            Arg::At(Place::Workspace(work.wx)),
            Arg::At(Place::Workspace(work.wx_rest)),
            Arg::At(Place::Workspace(work.words)),
            int(self.dims.seq()),
            int(self.dims.query_heads()),
            int(self.dims.kv_heads()),
        ];
        match self.prep {
            Kernel::PrepAny { .. } => args.extend([int(self.dims.head_dim()), int(self.dims.rotary_dim())]),
            _ => args.push(int(self.dims.head_dim() / 2)),
        }
        args.push(int(self.dims.hidden()));
        args.extend([GradQuery, GradKey, GradValue, Cos, Sin, HiddenStates].map(|tensor| Arg::WideStride(tensor, 0)));
        for tensor in [GradQuery, GradKey, GradValue] {
            args.extend([Arg::Stride(tensor, 1), Arg::Stride(tensor, 2)]);
        }
        args.extend([Cos, Sin, HiddenStates].map(|tensor| Arg::Stride(tensor, 1)));
        args.extend([QWeight, KWeight, VWeight].map(|tensor| Arg::Stride(tensor, 0)));
        args.extend([
            int(self.dims.query_rows()),
            int(self.dims.kv_rows()),
            int(self.w_rows),
            int(self.u_pitch),
            int(self.wx_pitch),
            int(self.seq_tiles.max(1)),
            int(self.token_blocks),
            int(self.x_tiles.max(1)),
            int(self.x_blocks()),
            int(self.q_blocks),
            int(self.kv_blocks),
            int(self.x_exps()),
            int(self.status()),
        ]);
        args
    }

    fn settle_args(&self, plan: &GpuPlan) -> Vec<Arg> {
        use Tensor::{HiddenStates, KWeight, QWeight, VWeight};
        let work = &plan.workspace;
        let mut args: Vec<Arg> =
            [HiddenStates, QWeight, KWeight, VWeight].map(|tensor| Arg::At(Place::Tensor(tensor))).into();
        args.extend([work.wx, work.wx_rest, work.words].map(|offset| Arg::At(Place::Workspace(offset))));
        args.extend([int(self.dims.seq()), int(self.dims.batch()), int(self.dims.hidden())]);
        args.extend([Arg::WideStride(HiddenStates, 0), Arg::Stride(HiddenStates, 1)]);
        args.extend([QWeight, KWeight, VWeight].map(|tensor| Arg::Stride(tensor, 0)));
        args.extend([
            int(self.dims.query_rows()),
            int(self.dims.kv_rows()),
            int(self.w_rows),
            int(self.wx_pitch),
            int(self.q_blocks),
            int(self.kv_blocks),
            int(self.token_blocks),
            int(self.x_blocks()),
            int(self.weight_blocks()),
            int(self.x_exps()),
            int(self.status()),
            int(plan.facts.multiprocessors as usize),
        ]);
        args
    }

    fn product_args(&self, plan: &GpuPlan) -> Vec<Arg> {
        use Tensor::{GradHiddenStates, GradKWeight, GradQWeight, GradVWeight};
        let work = &plan.workspace;
        let tile = plan.choice.cut.tile;
        let mut args = vec![Arg::At(Place::Workspace(work.u)), Arg::At(Place::Workspace(work.wx))];
        if tile.terms == Terms::Two {
            args.extend([Arg::At(Place::Workspace(work.u_rest)), Arg::At(Place::Workspace(work.wx_rest))]);
        }
        args.extend([
            Arg::At(Place::ProductTable),
            Arg::At(Place::Workspace(work.words)),
            Arg::At(Place::Workspace(work.scratch)),
            int(plan.schedule.first_task),
            int(plan.schedule.tasks_each),
            int(self.dims.tokens().max(1)),
            int(self.dims.rows().max(1)),
            int(self.dims.hidden()),
            int(self.u_pitch.max(PITCH_ELEMS)),
            int(self.wx_pitch),
            int(self.w_rows / tile.depth as usize),
        ]);
        if tile.terms == Terms::Two {
            args.push(int((plan.choice.promote / tile.depth) as usize));
        }
        args.push(int((self.w_rows + self.dims.tokens()).max(1)));
        let outputs = [GradHiddenStates, GradQWeight, GradKWeight, GradVWeight];
        args.extend(outputs.map(Arg::Distance));
        args.push(Arg::Stride(GradHiddenStates, 1));
        args.extend([GradQWeight, GradKWeight, GradVWeight].map(|tensor| Arg::Stride(tensor, 0)));
        args
    }
}

fn finish_args(plan: &GpuPlan) -> Vec<Arg> {
    use Tensor::{GradHiddenStates, GradKWeight, GradQWeight, GradVWeight};
    let mut args = vec![Arg::At(Place::FinishTable), Arg::At(Place::Workspace(plan.workspace.scratch))];
    let outputs = [GradHiddenStates, GradQWeight, GradKWeight, GradVWeight];
    args.extend(outputs.map(|tensor| Arg::At(Place::Tensor(tensor))));
    args.extend([Arg::WideStride(GradHiddenStates, 0), Arg::Stride(GradHiddenStates, 1)]);
    args.extend([GradQWeight, GradKWeight, GradVWeight].map(|tensor| Arg::Stride(tensor, 0)));
    args
}

/// Takes a region off the workspace: where it starts.
fn take(end: &mut u64, elems: usize, bytes: usize) -> u64 {
    let start = *end;
    *end += ((elems * bytes) as u64).next_multiple_of(WORKSPACE_ALIGNMENT);
    start
}

/// Checked by [`Sizes::new`] to fit.
fn int(value: usize) -> Arg {
    Arg::Int(i32::try_from(value).unwrap_or(i32::MAX))
}

impl GpuPlan {
    /// Least arithmetic and bytes of the problem.
    pub fn cost(&self) -> Cost {
        Cost::of(&self.problem)
    }
}

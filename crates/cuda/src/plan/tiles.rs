//! Launches of the kernels that are made of tiles: crates/cuda-kernels.

use qkv_rope_op::{Dims, Pairing, Problem, Tensor};

use super::launch::{int, take};
use super::{Arg, GpuPlan, Launch, Layout, PITCH_ELEMS, Place, Workspace, refused, terms};
use crate::error::Error;
use crate::kernel::{Access, Kernel, PREP_ANY_TOKENS, PrepShape, ProductTile, Terms, WEIGHT_ROWS};
use crate::schedule::{HEADER_WORDS, Schedule};

/// Words past the tables that a program may read without using them.
const WORDS_SLACK: usize = 256;

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

/// Sizes that arguments are made from, checked to fit the kernels' 32-bit indices.
pub(super) struct Sizes {
    dims: Dims,
    terms: Terms,
    access: Access,
    pub(super) prep: Kernel,
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
    pub(super) fn new(problem: &Problem, layout: Layout, prep: PrepShape) -> Result<Self, Error> {
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

    pub(super) fn nothing_to_do(&self) -> bool {
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

    pub(super) fn workspace(&self, schedule: &Schedule, tile: ProductTile) -> Workspace {
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

    pub(super) fn launches(&self, plan: &GpuPlan) -> Vec<Launch> {
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

/// Arguments of the finish kernels, which take the same on Hopper.
pub(super) fn finish_args(plan: &GpuPlan) -> Vec<Arg> {
    use Tensor::{GradHiddenStates, GradKWeight, GradQWeight, GradVWeight};
    let mut args = vec![Arg::At(Place::FinishTable), Arg::At(Place::Workspace(plan.workspace.scratch))];
    let outputs = [GradHiddenStates, GradQWeight, GradKWeight, GradVWeight];
    args.extend(outputs.map(|tensor| Arg::At(Place::Tensor(tensor))));
    args.extend([Arg::WideStride(GradHiddenStates, 0), Arg::Stride(GradHiddenStates, 1)]);
    args.extend([GradQWeight, GradKWeight, GradVWeight].map(|tensor| Arg::Stride(tensor, 0)));
    args
}

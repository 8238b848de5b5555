//! Launches of `fast` on Hopper: kernels of crates/cuda-ptx.

use qkv_rope_cuda_ptx::prep::{HEADS, MOST_TOKENS, Rows, SAMPLERS, WEIGHT_ROWS};
use qkv_rope_cuda_ptx::{finish, product, words};
use qkv_rope_op::{Dims, Pairing, Problem, Tensor};

use super::launch::{int, take};
use super::{Arg, GpuPlan, Launch, Layout, MapSpec, PITCH_ELEMS, Place, Workspace, refused};
use crate::error::Error;
use crate::facts::Facts;
use crate::kernel::{Access, Arch, HOPPER_TILE, Kernel, Terms};
use crate::schedule::{HEADER_WORDS, Schedule};

const _: () = assert!(HEADER_WORDS == words::TOKENS as usize);

/// Threads that a block of `prep` is given for its tokens, where a token takes fewer.
const PREP_THREADS: u32 = 192;

/// Whether these kernels serve.
pub(super) fn serves(facts: &Facts, terms: Terms) -> bool {
    facts.arch == Arch::Sm90 && terms == Terms::One
}

/// How `prep` is launched.
struct Prep {
    kernel: Kernel,
    threads_per_token: u32,
    tokens_per_block: u32,
}

impl Prep {
    fn of(problem: &Problem, access: Access) -> Self {
        let dims = problem.dims;
        let half = dims.head_dim() / 2;
        let whole = problem.pairing == Pairing::HalfSplit && dims.rotary_dim() == dims.head_dim();
        let heads = dims.query_heads() + 2 * dims.kv_heads();
        let threads = half / 4 * heads.div_ceil(HEADS as usize);
        let most = (Rows::Whole.most_threads() - SAMPLERS) as usize;
        let fits = half > 0 && half.is_multiple_of(4) && (1..=most).contains(&threads);
        if access == Access::Wide && dims.hidden().is_multiple_of(4) && whole && fits {
            let threads_per_token = threads as u32;
            let tokens_per_block = (PREP_THREADS / threads_per_token).clamp(1, MOST_TOKENS);
            Self { kernel: Kernel::HopperPrep, threads_per_token, tokens_per_block }
        } else {
            let threads_per_token = Rows::Any.most_threads() - SAMPLERS;
            Self { kernel: Kernel::HopperPrepAny, threads_per_token, tokens_per_block: 1 }
        }
    }

    fn threads(&self) -> u32 {
        (self.threads_per_token * self.tokens_per_block).next_multiple_of(32) + SAMPLERS
    }
}

/// Sizes that arguments are made from, checked to fit the kernels' 32-bit indices.
pub(super) struct Sizes {
    dims: Dims,
    prep: Prep,
    interleaved: bool,
    u_pitch: usize,
    wx_pitch: usize,
    w_rows: usize,
    token_blocks: usize,
    weight_blocks: usize,
    want_x: bool,
}

impl Sizes {
    pub(super) fn new(problem: &Problem, layout: Layout) -> Result<Self, Error> {
        let dims = problem.dims;
        let prep = Prep::of(problem, layout.inputs);
        let w_rows = dims.rows().next_multiple_of(PITCH_ELEMS);
        let wants_w = problem.outputs.grad_hidden.is_some();
        let sizes = Self {
            dims,
            interleaved: problem.pairing == Pairing::Interleaved,
            u_pitch: dims.rows().next_multiple_of(PITCH_ELEMS),
            wx_pitch: dims.hidden().next_multiple_of(PITCH_ELEMS),
            w_rows,
            token_blocks: dims.tokens().div_ceil(prep.tokens_per_block as usize),
            weight_blocks: if wants_w { w_rows.div_ceil(WEIGHT_ROWS as usize) } else { 0 },
            want_x: problem.outputs.any_weight(),
            prep,
        };
        let units = (dims.query_heads() + 2 * dims.kv_heads()) * dims.head_dim();
        let largest = [dims.tokens() + w_rows, sizes.u_pitch, sizes.wx_pitch, sizes.words(), units];
        match largest.into_iter().find(|&extent| extent >= i32::MAX as usize) {
            Some(extent) => Err(refused(format!("{dims}: an extent of {extent} does not fit the kernels' 31 bits"))),
            None => Ok(sizes),
        }
    }

    /// Why `prep` is the slower one, if it is.
    pub(super) fn note(&self) -> Option<String> {
        (self.prep.kernel == Kernel::HopperPrepAny).then(|| {
            format!(
                "the gradients are un-rotated by the general kernel, which reads them twice: the fast one takes half-split \
                 pairs of whole heads, a multiple of 8 elements long, E a multiple of 4, all aligned to 16 bytes, and at most \
                 {} elements of all heads together",
                (Rows::Whole.most_threads() - SAMPLERS) * 8 * HEADS
            )
        })
    }

    fn status(&self) -> usize {
        HEADER_WORDS + self.dims.tokens()
    }

    fn words(&self) -> usize {
        self.status() + self.token_blocks + self.weight_blocks
    }

    pub(super) fn workspace(&self, schedule: &Schedule) -> Workspace {
        let mut end = 0;
        let u = take(&mut end, self.dims.tokens().max(1) * self.u_pitch, 2);
        let wx = take(&mut end, (self.w_rows + self.dims.tokens()).max(1) * self.wx_pitch, 2);
        let words = take(&mut end, self.words(), 4);
        let slot = (HOPPER_TILE.rows * HOPPER_TILE.cols) as usize;
        let scratch = take(&mut end, schedule.slots as usize * slot, 4);
        Workspace { u, u_rest: u, wx, wx_rest: wx, words, scratch, bytes: end }
    }

    pub(super) fn launches(&self, plan: &GpuPlan) -> Vec<Launch> {
        let mut launches = Vec::new();
        let blocks = self.token_blocks + self.weight_blocks;
        if blocks > 0 {
            launches.push(Launch {
                threads: self.prep.threads(),
                ..Launch::of(self.prep.kernel, blocks as u32, self.prep_args(plan))
            });
        }
        launches.push(Launch {
            threads: product::THREADS,
            shared_bytes: product::SHARED_BYTES,
            early: blocks > 0,
            ..Launch::of(Kernel::HopperProduct, plan.schedule.programs * product::CLUSTER, self.product_args(plan))
        });
        if plan.schedule.finish_tasks > 0 {
            launches.push(Launch {
                threads: finish::THREADS,
                early: true,
                ..Launch::of(Kernel::HopperFinish, plan.schedule.finish_tasks, super::tiles::finish_args(plan))
            });
        }
        launches
    }

    fn prep_args(&self, plan: &GpuPlan) -> Vec<Arg> {
        let work = &plan.workspace;
        use Tensor::{
            Cos, GradHiddenStates, GradKey, GradQuery, GradValue, HiddenStates, KWeight, QWeight, Sin, VWeight,
        };
        let tensors = [GradQuery, GradKey, GradValue, Cos, Sin, HiddenStates, QWeight, KWeight, VWeight];
        let mut args: Vec<Arg> = tensors.map(|tensor| Arg::At(Place::Tensor(tensor))).into();
        args.extend([work.u, work.wx, work.words].map(|offset| Arg::At(Place::Workspace(offset))));
        args.extend([GradQuery, GradKey, GradValue, Cos, Sin, HiddenStates].map(|tensor| Arg::WideStride(tensor, 0)));
        for tensor in [GradQuery, GradKey, GradValue] {
            args.extend([Arg::Stride(tensor, 1), Arg::Stride(tensor, 2)]);
        }
        args.extend([Cos, Sin, HiddenStates].map(|tensor| Arg::Stride(tensor, 1)));
        args.extend([QWeight, KWeight, VWeight].map(|tensor| Arg::Stride(tensor, 0)));
        args.extend(
            [
                self.dims.tokens(),
                self.dims.seq().max(1),
                self.dims.query_heads(),
                self.dims.kv_heads(),
                self.dims.head_dim(),
                self.dims.rotary_dim(),
                usize::from(self.interleaved),
                self.dims.hidden(),
                self.w_rows,
                self.u_pitch,
                self.wx_pitch,
                self.prep.threads_per_token as usize,
                self.prep.tokens_per_block as usize,
                self.token_blocks,
                usize::from(self.want_x),
                usize::from(self.weight_blocks > 0),
                self.status(),
            ]
            .map(int),
        );
        args.extend([
            Arg::At(Place::Tensor(GradHiddenStates)),
            Arg::Stride(GradHiddenStates, 1),
            int(plan.schedule.zero_from),
        ]);
        args
    }

    fn product_args(&self, plan: &GpuPlan) -> Vec<Arg> {
        use Tensor::{
            GradHiddenStates, GradKWeight, GradQWeight, GradVWeight, HiddenStates, KWeight, QWeight, VWeight,
        };
        let work = &plan.workspace;
        let map = |at, rows: usize, cols: usize, pitch: usize, box_rows| {
            Arg::Map(MapSpec {
                at,
                rows: rows.max(1) as u64,
                cols: cols.max(1) as u64,
                pitch_bytes: 2 * pitch.max(PITCH_ELEMS) as u64,
                box_rows,
                box_cols: product::BOX_COLS,
            })
        };
        let mut args = vec![
            map(work.u, self.dims.tokens(), self.dims.rows(), self.u_pitch, product::U_BOX_ROWS),
            map(work.wx, self.w_rows + self.dims.tokens(), self.dims.hidden(), self.wx_pitch, product::WX_BOX_ROWS),
            Arg::At(Place::ProductTable),
            Arg::At(Place::Workspace(work.words)),
        ];
        let outputs = [GradHiddenStates, GradQWeight, GradKWeight, GradVWeight];
        args.extend(outputs.map(|tensor| Arg::At(Place::Tensor(tensor))));
        args.push(Arg::At(Place::Workspace(work.scratch)));
        args.extend([HiddenStates, QWeight, KWeight, VWeight].map(|tensor| Arg::At(Place::Tensor(tensor))));
        args.extend([Arg::WideStride(HiddenStates, 0), Arg::Stride(HiddenStates, 1)]);
        args.extend([QWeight, KWeight, VWeight].map(|tensor| Arg::Stride(tensor, 0)));
        args.push(Arg::Stride(GradHiddenStates, 1));
        args.extend([GradQWeight, GradKWeight, GradVWeight].map(|tensor| Arg::Stride(tensor, 0)));
        args.extend(
            [
                self.dims.hidden(),
                self.dims.tokens(),
                self.dims.seq().max(1),
                self.dims.query_rows(),
                self.dims.kv_rows(),
                self.w_rows,
                plan.schedule.first_task,
                plan.schedule.tasks_each,
                self.status(),
                self.token_blocks,
                self.weight_blocks,
            ]
            .map(int),
        );
        args
    }
}

const _: () =
    assert!(PREP_THREADS + SAMPLERS <= Rows::Whole.most_threads(), "more threads than the kernel was made for");

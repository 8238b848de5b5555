//! The backend: an instruction set and the threads that run it.

use qkv_rope_op::{Backend, Cost, Error, Plan, Precision, Problem, Session, Step};

use crate::blocking::{Blocking, Layout};
use crate::isa::Isa;
use crate::kernel::{CHUNK, Kernel};
use crate::session::{CpuSession, region_lens};
use crate::threads::{Pool, Threads};

/// How to make a [`CpuBackend`].
#[derive(Clone, Debug, Default)]
pub struct CpuOptions {
    /// The instruction set, or `None` for the widest that the machine has.
    pub isa: Option<Isa>,
    /// The threads to compute with.
    pub threads: Threads,
}

/// The operation on the CPU, in `ieee` precision.
#[derive(Debug)]
pub struct CpuBackend {
    isa: Isa,
    pool: Pool,
}

impl CpuBackend {
    /// A backend for this machine.
    ///
    /// # Errors
    /// [`Error::Refused`] when the machine lacks the instruction set, [`Error::Failed`] when threads cannot be started.
    pub fn new(options: CpuOptions) -> Result<Self, Error> {
        let isa = options.isa.unwrap_or_else(Isa::detect);
        if !isa.is_available() {
            let has: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
            let why = format!("this processor has no {isa}, only {}", has.join(", "));
            return Err(Error::Refused { backend: format!("cpu-{isa}"), why });
        }
        Ok(Self { isa, pool: Pool::new(options.threads)? })
    }

    /// The instruction set that it runs.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    fn layout(&self, problem: &Problem) -> Layout {
        Layout::new(Blocking::of(self.isa), Kernel::of(self.isa).width, problem.dims, &problem.outputs)
    }

    fn supports(&self, problem: &Problem) -> Result<(), Error> {
        match problem.precision {
            Precision::Ieee => Ok(()),
            Precision::Split | Precision::Fast => Err(Error::Refused {
                backend: self.name(),
                why: "its precision is ieee; split and fast are for tensor cores".to_owned(),
            }),
        }
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> String {
        format!("cpu-{}", self.isa)
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, Error> {
        self.supports(problem)?;
        let layout = self.layout(problem);
        let workspace_elems: usize = region_lens(&layout, problem).iter().sum();
        Ok(Plan {
            backend: self.name(),
            problem: *problem,
            cost: Cost::of(problem),
            workspace_bytes: (workspace_elems * size_of::<f32>()) as u64,
            steps: steps(&layout, problem),
            notes: notes(&layout, problem),
        })
    }

    fn session(&self, problem: &Problem) -> Result<Box<dyn Session + '_>, Error> {
        self.supports(problem)?;
        let session = CpuSession::new(Kernel::of(self.isa), self.layout(problem), &self.pool, problem);
        let failed =
            |error| Error::Failed { backend: self.name(), why: format!("no memory for the workspace: {error}") };
        Ok(Box::new(session.map_err(failed)?))
    }
}

/// The stages of a call with the bytes that they move between memory or the shared cache and the cores.
fn steps(layout: &Layout, problem: &Problem) -> Vec<Step> {
    let (dims, outputs) = (problem.dims, &problem.outputs);
    let (tokens, hidden) = (dims.tokens() as u128, dims.hidden() as u128);
    let rows: u128 = layout.segments.iter().map(|segment| segment.rows as u128).sum();
    let grad_rows: u128 =
        layout.segments.iter().filter(|segment| segment.weight_grad).map(|segment| segment.rows as u128).sum();
    let blocks = tokens.div_ceil(layout.block_tokens.max(1) as u128) as u64;
    let panel_blocks = layout.panels.div_ceil(layout.block_panels.max(1)) as u64;
    let launches = blocks * panel_blocks;
    let step = |kernel: &str, tiles: String, launches: u64, flops: u128, elems: u128| Step {
        kernel: kernel.to_owned(),
        tiles,
        launches,
        flops,
        bytes: elems * size_of::<f32>() as u128,
    };
    let tile = format!("{CHUNK}x{}", layout.width);
    let mut steps = Vec::new();
    if outputs.grad_hidden.is_some() {
        let tiles = format!("panels of {} columns", layout.width);
        steps.push(step("pack W", tiles, panel_blocks, 0, 2 * rows * hidden));
    }
    let tiles = format!("chunks of {CHUNK}x{CHUNK}, {} tokens", layout.block_tokens);
    steps.push(step("un-rotate and pack U", tiles, launches, 0, 2 * tokens * rows * u128::from(panel_blocks)));
    if outputs.any_weight() {
        let tiles = format!("panels of {} columns", layout.width);
        steps.push(step("pack X", tiles, launches, 0, 2 * tokens * hidden));
    }
    if outputs.grad_hidden.is_some() {
        let tiles = format!("{tile}, {} terms at a time", layout.blocking.terms.min(layout.chunks * CHUNK));
        let touched = 2 * layout.chunks.div_ceil(layout.block_chunks()) as u128 - 1;
        steps.push(step("U·W", tiles, launches, 2 * tokens * rows * hidden, tokens * hidden * touched));
    }
    if outputs.any_weight() {
        let tiles = format!("{tile}, {} terms at a time", layout.blocking.terms.min(layout.block_tokens));
        let touched = (2 * u128::from(blocks)).saturating_sub(1);
        steps.push(step("Uᵀ·X", tiles, launches, 2 * tokens * grad_rows * hidden, grad_rows * hidden * touched));
    }
    steps
}

fn notes(layout: &Layout, problem: &Problem) -> Vec<String> {
    let mut notes = Vec::new();
    if layout.block_panels < layout.panels {
        let columns = layout.block_panels * layout.width;
        notes.push(format!(
            "the hidden size is computed {columns} columns at a time, so U is un-rotated more than once"
        ));
    }
    if !problem.dims.head_dim().is_multiple_of(CHUNK) {
        notes.push(format!("the head size is no multiple of {CHUNK}: U is packed element by element"));
    }
    if !problem.dims.hidden().is_multiple_of(layout.width) {
        notes.push(format!("the hidden size is no multiple of {}: the last panel is partly padding", layout.width));
    }
    notes
}

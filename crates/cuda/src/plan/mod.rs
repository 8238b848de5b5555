//! What one call does: kernels, grids, arguments by name, workspace. Pure: it holds no address and needs no GPU.

mod hopper;
mod launch;
mod tiles;

pub use launch::{Arg, Launch, MapSpec, Place, WORKSPACE_ALIGNMENT, Workspace};

use qkv_rope_op::{Cost, Dims, Precision, Problem, Tensor, Write};
use serde::Serialize;

use crate::error::Error;
use crate::facts::Facts;
use crate::kernel::{Access, HOPPER_TILE, KERNELS, Kernel, PrepShape, Terms};
use crate::schedule::{self, Cut, Direct, Schedule};
use crate::tune;

/// Rows of U, W and X start at multiples of this many elements: what the tensor memory accelerator needs, and more.
const PITCH_ELEMS: usize = 64;

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
    let sizes = tiles::Sizes::new(problem, layout, prep)?;
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

impl GpuPlan {
    /// Least arithmetic and bytes of the problem.
    pub fn cost(&self) -> Cost {
        Cost::of(&self.problem)
    }
}

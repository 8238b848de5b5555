//! Runs a plan: resolves names to addresses and puts the launches on the caller's stream.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;
use qkv_rope_op::{Inputs, Outputs, Problem, Tensor, View, ViewMut};

use crate::error::Error;
use crate::gpu::{Gpu, Loaded, TensorMap};
use crate::kernel::Access;
use crate::memory::{Memory, Relaxed};
use crate::plan::{self, Arg, GpuPlan, Layout, Place, WORKSPACE_ALIGNMENT};

/// A plan made ready: kernels loaded, task tables in the GPU's memory. Calls borrow it: any number may be in flight on
/// different streams, each with a workspace of its own.
#[derive(Debug)]
pub struct Executor {
    gpu: Arc<Gpu>,
    plan: GpuPlan,
    kernels: Vec<Loaded>,
    product_table: Memory,
    finish_table: Memory,
}

// SAFETY: kernel handles are names that any thread may use; nothing is changed after construction.
unsafe impl Sync for Executor {}

/// Device memory that a call may use as it likes.
#[derive(Clone, Copy, Debug)]
pub struct WorkspacePtr {
    /// Address, a multiple of [`WORKSPACE_ALIGNMENT`].
    pub address: u64,
    /// Size.
    pub bytes: u64,
}

impl Executor {
    /// Prepares `problem` for tensors of `layout`: allocates and fills the task tables, loads the kernels.
    ///
    /// # Errors
    /// [`Error::Refused`] as [`plan::plan`], or what the driver says.
    pub fn new(gpu: &Arc<Gpu>, problem: &Problem, layout: Layout) -> Result<Self, Error> {
        Self::with_plan(gpu, plan::plan(problem, gpu.facts(), layout)?)
    }

    /// Prepares a plan that was made for this kind of GPU. Neither waits for nor delays work on any stream, and may be
    /// done while one is captured.
    ///
    /// # Errors
    /// What the driver says.
    pub fn with_plan(gpu: &Arc<Gpu>, plan: GpuPlan) -> Result<Self, Error> {
        let _entered = gpu.enter()?;
        // Streams are being captured perhaps, here or on another thread; nothing below touches one of them.
        let _relaxed = Relaxed::on_this_thread()?;
        let kernels = plan.launches.iter().map(|launch| gpu.load(launch.kernel)).collect::<Result<Vec<_>, _>>()?;
        let product_table = Memory::holding(gpu, &plan.schedule.product, "uploading the product kernel's tasks")?;
        let finish_table = Memory::holding(gpu, &plan.schedule.finish, "uploading the finish kernel's tasks")?;
        Ok(Self { gpu: gpu.clone(), plan, kernels, product_table, finish_table })
    }

    /// The plan.
    pub fn plan(&self) -> &GpuPlan {
        &self.plan
    }

    /// Whether a call with these tensors is what was planned for.
    pub(crate) fn fits(&self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> bool {
        Tensors::of(inputs, outputs).fit(self.plan.layout).is_ok()
    }

    /// The GPU that it runs on.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Bytes of workspace that a call needs.
    pub fn workspace_bytes(&self) -> u64 {
        self.plan.workspace.bytes
    }

    /// Puts one backward pass on `stream` and returns: no allocation, no synchronisation, so that it can be captured in
    /// a CUDA graph.
    ///
    /// The views hold device addresses: they are checked and passed on, never read.
    ///
    /// # Errors
    /// What [`Problem::validate`] finds; [`Error::Layout`] when a tensor is not what was planned for;
    /// [`Error::Workspace`]; or what the driver says of a launch.
    ///
    /// # Safety
    /// Until the work has run (for a captured call: as long as its graph is launched) this executor is kept; all
    /// addresses, `workspace` included, are memory of this executor's GPU that is valid for the views' extents,
    /// nothing else writes them, and nothing else reads the outputs and the workspace. `stream` belongs to the context
    /// of [`Gpu::context`].
    pub unsafe fn enqueue(
        &self,
        inputs: &Inputs<'_>,
        outputs: &mut Outputs<'_>,
        workspace: WorkspacePtr,
        stream: sys::CUstream,
    ) -> Result<(), Error> {
        self.plan.problem.validate(inputs, outputs)?;
        if workspace.bytes < self.plan.workspace.bytes || !workspace.address.is_multiple_of(WORKSPACE_ALIGNMENT) {
            return Err(Error::Workspace {
                found: workspace.bytes,
                found_alignment: 1 << workspace.address.trailing_zeros().min(WORKSPACE_ALIGNMENT.trailing_zeros()),
                needed: self.plan.workspace.bytes,
            });
        }
        let tensors = Tensors::of(inputs, outputs);
        tensors.fit(self.plan.layout)?;
        let _entered = self.gpu.enter()?;
        for (launch, &kernel) in self.plan.launches.iter().zip(&self.kernels) {
            let mut values = [0_u64; MAX_ARGS];
            let mut maps = [TensorMap::EMPTY; MAX_MAPS];
            let mut free_maps = maps.iter_mut();
            let mut args = [std::ptr::null_mut::<c_void>(); MAX_ARGS];
            for ((arg, value), slot) in launch.args.iter().zip(&mut values).zip(&mut args) {
                if let Arg::Map(spec) = arg {
                    // The driver copies the map when it takes the launch.
                    let Some(map) = free_maps.next() else { return Err(too_many_maps(launch)) };
                    map.encode(spec, workspace.address)?;
                    *slot = std::ptr::from_mut(map).cast();
                    continue;
                }
                *value = self.resolve(*arg, &tensors, workspace);
                // Integers of 32 bits are read from the low half: the hosts of NVIDIA GPUs are little-endian.
                *slot = std::ptr::from_mut(value).cast();
            }
            let args = &mut args[..launch.args.len()];
            // SAFETY: the plan lists each kernel's parameters in order; the caller answers for addresses and stream;
            // the tables are alive as long as self, which the caller keeps until the work has run.
            unsafe { self.gpu.launch(kernel, launch, args, stream) }?;
        }
        Ok(())
    }

    fn resolve(&self, arg: Arg, tensors: &Tensors, workspace: WorkspacePtr) -> u64 {
        let scratch = workspace.address + self.plan.workspace.scratch;
        // What is not part of the call is never accessed, but must be a valid, aligned address.
        let address = |tensor| tensors.get(tensor).map_or(scratch, |found| found.address);
        let stride = |tensor, dim: usize| tensors.get(tensor).and_then(|found| found.strides.get(dim).copied());
        match arg {
            Arg::At(Place::Tensor(tensor)) => address(tensor),
            Arg::At(Place::Workspace(offset)) => workspace.address + offset,
            Arg::At(Place::ProductTable) => self.product_table.address(),
            Arg::At(Place::FinishTable) => self.finish_table.address(),
            Arg::Distance(tensor) => {
                (address(tensor).cast_signed().wrapping_sub(scratch.cast_signed()) / 4).cast_unsigned()
            }
            Arg::Stride(tensor, dim) | Arg::WideStride(tensor, dim) => stride(tensor, dim).unwrap_or(0) as u64,
            Arg::Int(value) => u64::from(value.cast_unsigned()),
            Arg::Map(_) => 0,
        }
    }
}

/// More than the longest parameter list.
const MAX_ARGS: usize = 64;
/// Tensor maps of one launch.
const MAX_MAPS: usize = 2;

fn too_many_maps(launch: &plan::Launch) -> Error {
    Error::Refused { why: format!("{} has more than {MAX_MAPS} tensor maps", launch.kernel) }
}

/// Address and strides of a tensor.
#[derive(Clone, Copy, Debug)]
struct Found {
    address: u64,
    strides: [usize; 4],
    rank: usize,
    extents: [usize; 4],
}

/// The tensors of a call by name.
struct Tensors {
    found: [Option<Found>; 13],
}

impl Tensors {
    fn of(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> Self {
        let mut all = Self { found: [None; 13] };
        all.input(Tensor::GradQuery, Some(&inputs.grad_query));
        all.input(Tensor::GradKey, Some(&inputs.grad_key));
        all.input(Tensor::GradValue, Some(&inputs.grad_value));
        all.input(Tensor::Cos, Some(&inputs.cos));
        all.input(Tensor::Sin, Some(&inputs.sin));
        all.input(Tensor::HiddenStates, inputs.hidden_states.as_ref());
        all.input(Tensor::QWeight, inputs.q_weight.as_ref());
        all.input(Tensor::KWeight, inputs.k_weight.as_ref());
        all.input(Tensor::VWeight, inputs.v_weight.as_ref());
        all.output(Tensor::GradHiddenStates, outputs.grad_hidden.as_mut().map(|output| &mut output.view));
        all.output(Tensor::GradQWeight, outputs.grad_q_weight.as_mut().map(|output| &mut output.view));
        all.output(Tensor::GradKWeight, outputs.grad_k_weight.as_mut().map(|output| &mut output.view));
        all.output(Tensor::GradVWeight, outputs.grad_v_weight.as_mut().map(|output| &mut output.view));
        all
    }

    fn input<const RANK: usize>(&mut self, tensor: Tensor, view: Option<&View<'_, RANK>>) {
        self.found[tensor as usize] =
            view.map(|view| Found::new(view.as_ptr().addr() as u64, view.shape(), view.strides()));
    }

    fn output<const RANK: usize>(&mut self, tensor: Tensor, view: Option<&mut ViewMut<'_, RANK>>) {
        self.found[tensor as usize] =
            view.map(|view| Found::new(view.as_mut_ptr().addr() as u64, view.shape(), view.strides()));
    }

    fn get(&self, tensor: Tensor) -> Option<&Found> {
        self.found[tensor as usize].as_ref()
    }

    /// The narrowest layout that describes these tensors.
    fn layout(&self) -> Layout {
        let access = |tensors: &[Tensor]| {
            let wide = tensors.iter().filter_map(|&tensor| self.get(tensor)).all(Found::is_wide);
            if wide { Access::Wide } else { Access::Narrow }
        };
        Layout {
            inputs: access(&Tensor::INPUTS),
            outputs: access(&Tensor::OUTPUTS),
            flat_hidden: self.get(Tensor::GradHiddenStates).is_none_or(Found::is_flat),
        }
    }

    /// Whether a plan for `planned` serves these tensors.
    fn fit(&self, planned: Layout) -> Result<(), Error> {
        for (tensors, access) in [(&Tensor::INPUTS[..], planned.inputs), (&Tensor::OUTPUTS[..], planned.outputs)] {
            for &tensor in tensors {
                let Some(found) = self.get(tensor) else { continue };
                if let Some(stride) = found.narrow_strides().find(|&stride| stride > i32::MAX as usize) {
                    let expected = "strides below 2^31 elements, except between batches".to_owned();
                    return Err(Error::Layout { tensor, found: format!("a stride of {stride}"), expected });
                }
                if access == Access::Wide && !found.is_wide() {
                    let expected = "addresses and strides that are multiples of 16 bytes".to_owned();
                    return Err(Error::Layout { tensor, found: found.describe(), expected });
                }
            }
        }
        match self.get(Tensor::GradHiddenStates) {
            Some(found) if planned.flat_hidden && !found.is_flat() => Err(Error::Layout {
                tensor: Tensor::GradHiddenStates,
                found: found.describe(),
                expected: "one stride over all tokens".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

impl Found {
    fn new<const RANK: usize>(address: u64, shape: [usize; RANK], strides: [usize; RANK]) -> Self {
        let mut found = Self { address, strides: [0; 4], rank: RANK, extents: [1; 4] };
        found.strides[..RANK].copy_from_slice(&strides);
        found.extents[..RANK].copy_from_slice(&shape);
        found
    }

    fn leading(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let leading = self.rank.saturating_sub(1);
        self.strides[..leading].iter().copied().zip(self.extents[..leading].iter().copied())
    }

    /// Strides that kernels take as 32 bits: all but that of the batch and of the last dimension.
    fn narrow_strides(&self) -> impl Iterator<Item = usize> + '_ {
        let skipped = usize::from(self.rank > 2);
        self.leading().skip(skipped).map(|(stride, _)| stride)
    }

    fn is_wide(&self) -> bool {
        let aligned = self.leading().all(|(stride, extent)| extent <= 1 || stride.is_multiple_of(4));
        self.address.is_multiple_of(16) && aligned
    }

    /// Of a `[B, S, E]` tensor: batches follow each other at S times the stride of a token.
    fn is_flat(&self) -> bool {
        let (batch, seq) = (self.extents[0], self.extents[1]);
        batch <= 1 || seq == 0 || self.strides[0] == seq * self.strides[1]
    }

    fn describe(&self) -> String {
        format!("address 0x{:x}, strides {:?}", self.address, &self.strides[..self.rank])
    }
}

impl Layout {
    /// What can be assumed of the tensors of a call.
    pub fn of(inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> Self {
        Tensors::of(inputs, outputs).layout()
    }
}

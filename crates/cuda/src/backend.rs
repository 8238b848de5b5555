//! The backend for tensors in the host's memory: copies them to the GPU, runs, copies back. What the command line uses;
//! callers whose tensors are on the GPU already use [`Executor`].

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use qkv_rope_op::{Backend, Cost, Inputs, Output, Outputs, Plan, Problem, Session, Step, Tensor, View, ViewMut};

use crate::error::Error;
use crate::executor::{Executor, WorkspacePtr};
use crate::facts::Facts;
use crate::gpu::{Gpu, driver_error};
use crate::kernel::{HOPPER_TILE, Kernel};
use crate::plan::{self, GpuPlan, Layout};

/// One GPU as a backend, or the plans of one that is not there.
#[derive(Debug)]
pub struct CudaBackend {
    facts: Facts,
    gpu: Option<Arc<Gpu>>,
}

impl CudaBackend {
    /// Opens GPU `ordinal`.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open(ordinal: usize) -> Result<Self, Error> {
        let gpu = Gpu::open(ordinal)?;
        Ok(Self { facts: gpu.facts().clone(), gpu: Some(gpu) })
    }

    /// A backend on a GPU that is open already.
    pub fn on(gpu: &Arc<Gpu>) -> Self {
        Self { facts: gpu.facts().clone(), gpu: Some(gpu.clone()) }
    }

    /// A backend that plans for a GPU and cannot run.
    pub fn planning_for(facts: Facts) -> Self {
        Self { facts, gpu: None }
    }

    /// What it plans for.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The GPU, unless this backend only plans.
    pub fn gpu(&self) -> Option<&Arc<Gpu>> {
        self.gpu.as_ref()
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> String {
        format!("cuda-{}", self.facts.arch)
    }

    fn plan(&self, problem: &Problem) -> Result<Plan, qkv_rope_op::Error> {
        let plan = plan::plan(problem, &self.facts, Layout::dense(problem.dims))?;
        Ok(Plan {
            backend: self.name(),
            problem: *problem,
            cost: Cost::of(problem),
            workspace_bytes: plan.workspace.bytes,
            steps: steps(&plan),
            notes: plan.notes,
        })
    }

    fn session(&self, problem: &Problem) -> Result<Box<dyn Session + '_>, qkv_rope_op::Error> {
        let Some(gpu) = &self.gpu else {
            return Err(Error::Refused { why: format!("{} is planned for, not opened", self.facts.name) }.into());
        };
        Ok(Box::new(HostSession::new(gpu, problem)?))
    }
}

fn steps(plan: &GpuPlan) -> Vec<Step> {
    let cost = plan.cost();
    let dims = plan.problem.dims;
    let operands = (dims.tokens() * (dims.rows() + dims.hidden()) + dims.rows() * dims.hidden()) as u128;
    let terms = u128::from(plan.choice.cut.tile.terms.count());
    let scratch = u128::from(plan.workspace.bytes - plan.workspace.scratch);
    let step = |kernel: Kernel, grid: u32| {
        let (tiles, flops, bytes) = match kernel {
            Kernel::Prep { .. } | Kernel::PrepAny { .. } | Kernel::HopperPrep | Kernel::HopperPrepAny => {
                (format!("{grid} programs"), 0, operands * (4 + 2 * terms))
            }
            Kernel::Settle { .. } => (format!("{grid} programs"), 0, 0),
            Kernel::Product(_) | Kernel::HopperProduct => {
                let split = plan.choice.cut;
                let tile = split.tile;
                let runs = if tile == HOPPER_TILE { "clusters of two blocks" } else { "programs" };
                let mut tiles = format!(
                    "{}x{} tiles, k tiles of {}, {} pieces on {} {runs}",
                    tile.rows, tile.cols, tile.depth, plan.schedule.product_tasks, plan.schedule.programs,
                );
                for (of, split) in [("dX", split.hidden), ("dW", split.weight)] {
                    if split.tiles > 0 && split.parts > 1 {
                        tiles.push_str(&format!(", last {} of {of} in {} parts", split.tiles, split.parts));
                    }
                }
                (tiles, cost.flops, operands * 2 * terms)
            }
            Kernel::Finish { .. } | Kernel::HopperFinish => (format!("{grid} programs"), 0, 2 * scratch),
        };
        Step { kernel: kernel.to_string(), tiles, launches: 1, flops, bytes }
    };
    plan.launches.iter().map(|launch| step(launch.kernel, launch.grid)).collect()
}

/// One problem with its tensors' room on the GPU.
struct HostSession {
    stream: Arc<CudaStream>,
    executor: Executor,
    problem: Problem,
    tensors: Vec<(Tensor, CudaSlice<f32>)>,
    workspace: CudaSlice<u8>,
}

impl HostSession {
    fn new(gpu: &Arc<Gpu>, problem: &Problem) -> Result<Self, Error> {
        let executor = Executor::new(gpu, problem, Layout::dense(problem.dims))?;
        let stream = gpu.context().default_stream();
        let mut tensors = Vec::new();
        for tensor in Tensor::INPUTS.into_iter().chain(Tensor::OUTPUTS) {
            let elems = problem.dims.shape(tensor).iter().product::<usize>().max(1);
            // Nothing is read before it was written: every call copies the inputs and, to accumulate, the outputs.
            let room = stream.alloc_zeros::<f32>(elems).map_err(driver_error("allocating a tensor"))?;
            tensors.push((tensor, room));
        }
        let bytes = usize::try_from(executor.workspace_bytes()).unwrap_or(usize::MAX).max(1);
        let workspace = stream.alloc_zeros::<u8>(bytes).map_err(driver_error("allocating the workspace"))?;
        Ok(Self { stream, executor, problem: *problem, tensors, workspace })
    }

    fn room(&mut self, tensor: Tensor) -> &mut CudaSlice<f32> {
        &mut self.tensors[tensor as usize].1
    }

    fn address(&self, tensor: Tensor) -> u64 {
        let (address, _in_use) = self.tensors[tensor as usize].1.device_ptr(&self.stream);
        address
    }

    fn send<const RANK: usize>(
        &mut self,
        tensor: Tensor,
        shape: [usize; RANK],
        row: impl Fn(&[usize]) -> Vec<f32>,
    ) -> Result<(), Error> {
        let mut packed = Vec::with_capacity(shape.iter().product());
        for_rows(&shape, |index| packed.extend(row(index)));
        if packed.is_empty() {
            return Ok(());
        }
        let stream = self.stream.clone();
        let room = self.room(tensor);
        stream.memcpy_htod(&packed, room).map_err(driver_error("copying an input to the GPU"))
    }

    fn send_view<const RANK: usize>(&mut self, tensor: Tensor, view: &View<'_, RANK>) -> Result<(), Error> {
        self.send(tensor, view.shape(), |index| view.row(index).to_vec())
    }

    fn fetch<const RANK: usize>(&self, tensor: Tensor, view: &mut ViewMut<'_, RANK>) -> Result<(), Error> {
        let shape = view.shape();
        if shape.contains(&0) {
            return Ok(());
        }
        let packed = self.stream.clone_dtoh(&self.tensors[tensor as usize].1);
        let packed = packed.map_err(driver_error("copying an output from the GPU"))?;
        let row_elems = shape[RANK - 1];
        let mut rows = packed.chunks_exact(row_elems);
        for_rows(&shape, |index| {
            if let Some(row) = rows.next() {
                view.row_mut(index).copy_from_slice(row);
            }
        });
        Ok(())
    }

    fn dense<'a, const RANK: usize>(&self, tensor: Tensor, shape: [usize; RANK]) -> Result<View<'a, RANK>, Error> {
        let base = std::ptr::without_provenance::<f32>(self.address(tensor) as usize);
        // SAFETY: a device address, only passed on: Executor::enqueue reads no view. The room has all of the shape.
        Ok(unsafe { View::from_raw_parts(base, shape, dense_strides(shape)) }?)
    }

    fn dense_output<'a, const RANK: usize>(
        &self,
        tensor: Tensor,
        output: &Output<'_, RANK>,
    ) -> Result<Output<'a, RANK>, Error> {
        let shape = output.view.shape();
        let base = std::ptr::without_provenance_mut::<f32>(self.address(tensor) as usize);
        // SAFETY: as in `dense`; every tensor has a room of its own.
        let view = unsafe { ViewMut::from_raw_parts(base, shape, dense_strides(shape)) }?;
        Ok(Output { view, write: output.write })
    }

    fn run(&mut self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> Result<(), Error> {
        self.problem.validate(inputs, outputs)?;
        self.executor.gpu().bind()?;
        self.send_view(Tensor::GradQuery, &inputs.grad_query)?;
        self.send_view(Tensor::GradKey, &inputs.grad_key)?;
        self.send_view(Tensor::GradValue, &inputs.grad_value)?;
        self.send_view(Tensor::Cos, &inputs.cos)?;
        self.send_view(Tensor::Sin, &inputs.sin)?;
        if let Some(view) = &inputs.hidden_states {
            self.send_view(Tensor::HiddenStates, view)?;
        }
        for (tensor, view) in [
            (Tensor::QWeight, &inputs.q_weight),
            (Tensor::KWeight, &inputs.k_weight),
            (Tensor::VWeight, &inputs.v_weight),
        ] {
            if let Some(view) = view {
                self.send_view(tensor, view)?;
            }
        }
        self.send_old(outputs)?;
        let on_gpu = Inputs {
            grad_query: self.dense(Tensor::GradQuery, inputs.grad_query.shape())?,
            grad_key: self.dense(Tensor::GradKey, inputs.grad_key.shape())?,
            grad_value: self.dense(Tensor::GradValue, inputs.grad_value.shape())?,
            hidden_states: self.optional(Tensor::HiddenStates, inputs.hidden_states.as_ref())?,
            q_weight: self.optional(Tensor::QWeight, inputs.q_weight.as_ref())?,
            k_weight: self.optional(Tensor::KWeight, inputs.k_weight.as_ref())?,
            v_weight: self.optional(Tensor::VWeight, inputs.v_weight.as_ref())?,
            cos: self.dense(Tensor::Cos, inputs.cos.shape())?,
            sin: self.dense(Tensor::Sin, inputs.sin.shape())?,
        };
        let optional =
            |tensor, output: Option<&Output<'_, 2>>| output.map(|output| self.dense_output(tensor, output)).transpose();
        let mut outputs_on_gpu = Outputs {
            grad_hidden: outputs
                .grad_hidden
                .as_ref()
                .map(|output| self.dense_output(Tensor::GradHiddenStates, output))
                .transpose()?,
            grad_q_weight: optional(Tensor::GradQWeight, outputs.grad_q_weight.as_ref())?,
            grad_k_weight: optional(Tensor::GradKWeight, outputs.grad_k_weight.as_ref())?,
            grad_v_weight: optional(Tensor::GradVWeight, outputs.grad_v_weight.as_ref())?,
        };
        let (address, _in_use) = self.workspace.device_ptr(&self.stream);
        let workspace = WorkspacePtr { address, bytes: self.workspace.len() as u64 };
        // SAFETY: all tensors and the workspace are this session's own, on its GPU and its stream, and it waits below.
        unsafe { self.executor.enqueue(&on_gpu, &mut outputs_on_gpu, workspace, self.stream.cu_stream()) }?;
        self.stream.synchronize().map_err(driver_error("waiting for the GPU"))?;
        if let Some(output) = &mut outputs.grad_hidden {
            self.fetch(Tensor::GradHiddenStates, &mut output.view)?;
        }
        for (tensor, output) in [
            (Tensor::GradQWeight, &mut outputs.grad_q_weight),
            (Tensor::GradKWeight, &mut outputs.grad_k_weight),
            (Tensor::GradVWeight, &mut outputs.grad_v_weight),
        ] {
            if let Some(output) = output {
                self.fetch(tensor, &mut output.view)?;
            }
        }
        Ok(())
    }

    /// Sends what outputs hold already: it is added to, or shows through wherever a kernel failed to write.
    fn send_old(&mut self, outputs: &mut Outputs<'_>) -> Result<(), Error> {
        if let Some(output) = &mut outputs.grad_hidden {
            let view = std::cell::RefCell::new(output.view.reborrow());
            let shape = view.borrow().shape();
            self.send(Tensor::GradHiddenStates, shape, |index| view.borrow_mut().row_mut(index).to_vec())?;
        }
        for (tensor, output) in [
            (Tensor::GradQWeight, &mut outputs.grad_q_weight),
            (Tensor::GradKWeight, &mut outputs.grad_k_weight),
            (Tensor::GradVWeight, &mut outputs.grad_v_weight),
        ] {
            if let Some(output) = output {
                let view = std::cell::RefCell::new(output.view.reborrow());
                let shape = view.borrow().shape();
                self.send(tensor, shape, |index| view.borrow_mut().row_mut(index).to_vec())?;
            }
        }
        Ok(())
    }

    fn optional<'a, const RANK: usize>(
        &self,
        tensor: Tensor,
        view: Option<&View<'_, RANK>>,
    ) -> Result<Option<View<'a, RANK>>, Error> {
        view.map(|view| self.dense(tensor, view.shape())).transpose()
    }
}

impl Session for HostSession {
    fn backward(&mut self, inputs: &Inputs<'_>, outputs: &mut Outputs<'_>) -> Result<(), qkv_rope_op::Error> {
        Ok(self.run(inputs, outputs)?)
    }
}

fn dense_strides<const RANK: usize>(shape: [usize; RANK]) -> [usize; RANK] {
    let mut strides = [1; RANK];
    for dim in (1..RANK).rev() {
        strides[dim - 1] = strides[dim] * shape[dim];
    }
    strides
}

/// Calls `each` with every index of the leading dimensions, in order.
fn for_rows(shape: &[usize], mut each: impl FnMut(&[usize])) {
    let leading = &shape[..shape.len() - 1];
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; leading.len()];
    loop {
        each(&index);
        let Some(dim) = (0..leading.len()).rev().find(|&dim| index[dim] + 1 < leading[dim]) else { return };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}

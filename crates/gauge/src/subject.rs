//! The CUDA backend as the judge sees it.

use cudarc::driver::{CudaSlice, DevicePtr};
use kernelproof_eval::evaluation::Status;
use kernelproof_eval::judge::{Fault, Layout, Places, Subject};
use kernelproof_eval::measure::Clock;
use qkv_rope_cuda::plan::Layout as Dense;
use qkv_rope_cuda::{Executor, WorkspacePtr};
use qkv_rope_op::{Problem, Tensor};

use crate::block::{Block, views};
use crate::error::{Error, driver};
use crate::stopwatch::{Stopwatch, Taken};

/// One problem at a time on the GPU of a stopwatch: the block lies in device memory, and a call is timed there.
#[derive(Debug)]
pub struct CudaSubject<'s> {
    stopwatch: &'s Stopwatch,
    prepared: Option<Prepared>,
    activities: Option<Vec<String>>,
}

#[derive(Debug)]
struct Prepared {
    problem: Problem,
    executor: Executor,
    workspace: CudaSlice<u8>,
    block: Block,
    /// Where the room of the outputs begins, after that of the inputs.
    outputs_from: usize,
}

impl<'s> CudaSubject<'s> {
    /// A backend that has not seen a problem yet.
    pub fn new(stopwatch: &'s Stopwatch) -> Self {
        Self { stopwatch, prepared: None, activities: None }
    }

    fn prepared(&mut self) -> Result<&mut Prepared, Fault> {
        let early = || Fault { status: Status::Inconclusive, detail: "called before a problem was begun".to_owned() };
        self.prepared.as_mut().ok_or_else(early)
    }
}

/// A workspace for an executor, full of NaN: what a call reads of it, it must have written.
pub(crate) fn workspace(stopwatch: &Stopwatch, executor: &Executor) -> Result<CudaSlice<u8>, Error> {
    let bytes = usize::try_from(executor.workspace_bytes()).unwrap_or(usize::MAX).max(1);
    let stream = stopwatch.stream();
    let poison = vec![u8::MAX; bytes];
    stream.clone_htod(&poison).map_err(driver("allocating the workspace"))
}

impl Prepared {
    fn new(stopwatch: &Stopwatch, problem: &Problem, layout: &Layout) -> Result<Self, Error> {
        let executor = Executor::new(stopwatch.gpu(), problem, Dense::dense(problem.dims))?;
        let workspace = workspace(stopwatch, &executor)?;
        let block = Block::new(stopwatch.stream(), layout.len_elems())?;
        stopwatch.wait()?;
        let outputs_from = layout.slots()[Tensor::INPUTS.len()].start;
        Ok(Self { problem: *problem, executor, workspace, block, outputs_from })
    }

    fn enqueue(&self, stopwatch: &Stopwatch, places: &Places) -> Result<(), Error> {
        let (inputs, mut outputs) = views(self.problem.dims, self.block.address(), &places.spans())?;
        let (address, _in_use) = self.workspace.device_ptr(stopwatch.stream());
        let workspace = WorkspacePtr { address, bytes: self.workspace.len() as u64 };
        // SAFETY: the block has room for every place that its layout gives, and lives, with the workspace, until the
        // stopwatch has waited for the device.
        Ok(unsafe { self.executor.enqueue(&inputs, &mut outputs, workspace, stopwatch.stream().cu_stream()) }?)
    }
}

impl Subject for CudaSubject<'_> {
    fn begin(&mut self, problem: &Problem, layout: &Layout) -> Result<(), Fault> {
        // The old memory goes before the new one comes.
        self.prepared = None;
        self.prepared = Some(Prepared::new(self.stopwatch, problem, layout)?);
        Ok(())
    }

    fn stage(&mut self, places: &Places) -> Result<(), Fault> {
        let prepared = self.prepared()?;
        prepared.block.upload(prepared.outputs_from)?;
        prepared.block.fill(prepared.outputs_from..usize::MAX, Places::GUARD)?;
        for span in places.spans().into_iter().skip(Tensor::INPUTS.len()) {
            prepared.block.fill(span.start..span.start + span.len, Places::POISON)?;
        }
        Ok(())
    }

    fn memory(&mut self) -> &mut [f32] {
        // Without memory the judge's first look fails, which is an error and no verdict by accident.
        self.prepared.as_mut().and_then(|prepared| prepared.block.host().ok()).unwrap_or_default()
    }

    fn call(&mut self, places: &Places, _: &dyn Clock) -> Result<u64, Fault> {
        let stopwatch = self.stopwatch;
        let prepared = &*self.prepared()?;
        let Taken { time_ns, activities } = stopwatch.time(|| prepared.enqueue(stopwatch, places))?;
        self.activities = activities;
        Ok(time_ns)
    }

    fn collect(&mut self, all: bool) -> Result<(), Fault> {
        let prepared = self.prepared()?;
        Ok(prepared.block.download(if all { 0 } else { prepared.outputs_from })?)
    }

    fn activities(&self) -> Option<Vec<String>> {
        self.activities.clone()
    }

    fn settle(&mut self) {
        let stopwatch = self.stopwatch;
        if let Some(prepared) = &mut self.prepared {
            // An error here was an error before, when the call was made.
            drop(stopwatch.wait().and_then(|()| prepared.block.download(0)));
        }
    }
}

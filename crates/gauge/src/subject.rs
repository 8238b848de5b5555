//! The CUDA backend as the judge sees it.

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result};
use kernelproof_eval::evaluation::Status;
use kernelproof_eval::judge::{Extent, Fault, Layout, Mixture, Places, Run, Subject};
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
    /// Inputs of earlier stages, by slot, with their places.
    kept: Vec<Option<(CudaSlice<f32>, Places)>>,
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

/// Where memory is; events that would order its use are off, because all of it is used on one stream.
pub(crate) fn address<T>(memory: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    let (address, _in_use) = memory.device_ptr(stream);
    address
}

/// A workspace for an executor, full of NaN: what a call reads of it, it must have written.
pub(crate) fn workspace(stopwatch: &Stopwatch, executor: &Executor) -> Result<CudaSlice<u8>, Error> {
    let bytes = usize::try_from(executor.workspace_bytes()).unwrap_or(usize::MAX).max(1);
    let stream = stopwatch.stream();
    let room = stream.alloc_zeros::<u8>(bytes).map_err(driver("allocating the workspace"))?;
    let address = address(&room, stream);
    // SAFETY: the range is the room that was just made.
    unsafe { result::memset_d8_async(address, u8::MAX, bytes, stream.cu_stream()) }
        .map_err(driver("poisoning the workspace"))?;
    Ok(room)
}

impl Prepared {
    fn new(stopwatch: &Stopwatch, problem: &Problem, layout: &Layout) -> Result<Self, Error> {
        let executor = Executor::new(stopwatch.gpu(), problem, Dense::dense(problem.dims))?;
        let workspace = workspace(stopwatch, &executor)?;
        let block = Block::new(stopwatch.stream(), layout.len_elems())?;
        stopwatch.wait()?;
        let outputs_from = layout.slots()[Tensor::INPUTS.len()].start;
        Ok(Self {
            problem: *problem,
            executor,
            workspace,
            block,
            outputs_from,
            kept: (0..Mixture::SLOTS).map(|_| None).collect(),
        })
    }

    /// Fills outputs with poison and everything around them with guards.
    fn poison(&mut self, places: &Places) -> Result<(), Error> {
        self.block.fill(self.outputs_from..usize::MAX, Places::GUARD)?;
        let outputs = places.spans().into_iter().skip(Tensor::INPUTS.len());
        outputs.into_iter().try_for_each(|span| self.block.fill(span.start..span.start + span.len, Places::POISON))
    }

    fn keep(&mut self, stopwatch: &Stopwatch, slot: usize, places: &Places) -> Result<(), Error> {
        let stream = stopwatch.stream();
        let room = stream.alloc_zeros::<f32>(self.outputs_from.max(1)).map_err(driver("allocating a kept set"))?;
        let to = address(&room, stream);
        let bytes = self.outputs_from * size_of::<f32>();
        // SAFETY: both ranges have as many bytes and are this subject's own.
        unsafe { result::memcpy_dtod_async(to, self.block.address(), bytes, stream.cu_stream()) }
            .map_err(driver("keeping a set"))?;
        stopwatch.wait()?;
        if let Some(place) = self.kept.get_mut(slot) {
            *place = Some((room, *places));
        }
        Ok(())
    }

    fn compose(&mut self, stopwatch: &Stopwatch, places: &Places, mixture: &Mixture) -> Result<(), Error> {
        stopwatch.gpu().context().bind_to_thread().map_err(driver("making the context current"))?;
        let stream = stopwatch.stream();
        for Run { slot, input, elems } in mixture.runs() {
            let Some((kept, kept_places)) = self.kept.get(slot).and_then(Option::as_ref) else {
                return Err(Error::Records { why: "a set that was not kept is asked for".to_owned() });
            };
            let at = |base: u64, places: &Places| {
                base + ((places.spans()[input].start + elems.start) * size_of::<f32>()) as u64
            };
            let (from, to) = (at(address(kept, stream), kept_places), at(self.block.address(), places));
            let bytes = elems.len() * size_of::<f32>();
            // SAFETY: places are inside the block, of which a kept set has all inputs.
            unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream()) }
                .map_err(driver("putting inputs together"))?;
        }
        Ok(())
    }

    fn enqueue(&self, stopwatch: &Stopwatch, places: &Places) -> Result<(), Error> {
        let (inputs, mut outputs) = views(self.problem.dims, self.block.address(), &places.spans())?;
        let address = address(&self.workspace, stopwatch.stream());
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
        Ok(prepared.poison(places)?)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn keep(&mut self, slot: usize, places: &Places) -> Result<(), Fault> {
        let stopwatch = self.stopwatch;
        Ok(self.prepared()?.keep(stopwatch, slot, places)?)
    }

    fn compose(&mut self, places: &Places, mixture: &Mixture) -> Result<(), Fault> {
        let stopwatch = self.stopwatch;
        let prepared = self.prepared()?;
        prepared.compose(stopwatch, places, mixture)?;
        Ok(prepared.poison(places)?)
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

    fn collect(&mut self, places: &Places, extent: Extent) -> Result<(), Fault> {
        let prepared = self.prepared()?;
        let range = match extent {
            Extent::All => 0..usize::MAX,
            Extent::Outputs => prepared.outputs_from..usize::MAX,
            Extent::One(tensor) => places.watched(tensor),
        };
        Ok(prepared.block.download(range)?)
    }

    fn activities(&self) -> Option<Vec<String>> {
        self.activities.clone()
    }

    fn settle(&mut self) {
        let stopwatch = self.stopwatch;
        if let Some(prepared) = &mut self.prepared {
            // An error here was an error before, when the call was made.
            drop(stopwatch.wait().and_then(|()| prepared.block.download(0..usize::MAX)));
        }
    }
}

//! The CUDA backend as a contestant of `bench`: fixed addresses, so that a call can be a CUDA graph.

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice};
use kernelproof_eval::judge::Span;
use kernelproof_eval::measure::{Clock, Contestant, Reason};
use qkv_rope_cuda::plan::Layout as Dense;
use qkv_rope_cuda::{Executor, WorkspacePtr};
use qkv_rope_op::{OwnedInputs, OwnedOutputs, Problem, Tensor};

use crate::block::{Block, views};
use crate::error::{Error, driver};
use crate::stopwatch::Stopwatch;
use crate::subject::{address, workspace};

/// How a call reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// One launch of a captured graph.
    Graph,
    /// A launch for each kernel.
    Stream,
}

/// Tensors begin at multiples of 256 bytes.
const ALIGNED_ELEMS: usize = 64;

/// A prepared problem with its input sets on the device.
#[derive(Debug)]
pub struct CudaContestant<'s> {
    stopwatch: &'s Stopwatch,
    name: String,
    problem: Problem,
    spans: [Span; 13],
    sets: Vec<Set>,
    set: usize,
    executor: Executor,
    workspace: CudaSlice<u8>,
}

/// One set of inputs, its outputs, and the call on them as a graph.
struct Set {
    block: Block,
    graph: Option<CudaGraph>,
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Set").field("block", &self.block).field("graph", &self.graph.is_some()).finish()
    }
}

impl<'s> CudaContestant<'s> {
    /// Carries the inputs to the device, and captures a call on each set where `launch` says so.
    ///
    /// # Errors
    /// When the backend refuses the problem or the device has no room.
    pub fn new(
        stopwatch: &'s Stopwatch,
        problem: Problem,
        inputs: &[OwnedInputs],
        launch: Launch,
    ) -> Result<Self, Error> {
        let executor = Executor::new(stopwatch.gpu(), &problem, Dense::dense(problem.dims))?;
        let workspace = workspace(stopwatch, &executor)?;
        let mode = format!("{:?}", problem.precision).to_lowercase();
        let how = if launch == Launch::Graph { "graph" } else { "stream" };
        let (name, spans) = (format!("cuda-{mode} ({how})"), packed(&problem));
        let mut contestant = Self { stopwatch, name, problem, spans, sets: Vec::new(), set: 0, executor, workspace };
        for inputs in inputs {
            let block = contestant.block(inputs)?;
            contestant.sets.push(Set { block, graph: None });
        }
        for set in 0..contestant.sets.len() {
            // Once outside a capture: whatever is made in the first call is made here.
            contestant.enqueue(set)?;
            stopwatch.wait()?;
            if launch == Launch::Graph {
                contestant.sets[set].graph = Some(contestant.capture(set)?);
            }
        }
        Ok(contestant)
    }

    fn block(&self, inputs: &OwnedInputs) -> Result<Block, Error> {
        let last = self.spans[12];
        let mut block = Block::new(self.stopwatch.stream(), last.start + last.len)?;
        let host = block.host()?;
        host.fill(f32::NAN);
        for (tensor, span) in Tensor::INPUTS.into_iter().zip(self.spans) {
            host[span.start..span.start + span.len].copy_from_slice(inputs.tensor(tensor).unwrap_or_default());
        }
        let elems = block.host()?.len();
        block.upload(elems)?;
        Ok(block)
    }

    fn enqueue(&self, set: usize) -> Result<(), Error> {
        let (inputs, mut outputs) = views(self.problem.dims, self.sets[set].block.address(), &self.spans)?;
        let stream = self.stopwatch.stream();
        let address = address(&self.workspace, stream);
        let workspace = WorkspacePtr { address, bytes: self.workspace.len() as u64 };
        // SAFETY: block and workspace are this contestant's own and live until the stopwatch has waited for the device.
        Ok(unsafe { self.executor.enqueue(&inputs, &mut outputs, workspace, stream.cu_stream()) }?)
    }

    fn capture(&self, set: usize) -> Result<CudaGraph, Error> {
        let stream = self.stopwatch.stream();
        let what = "capturing a graph";
        stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).map_err(driver(what))?;
        let enqueued = self.enqueue(set);
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        // Ended also when the call failed, or the stream would stay in its capture.
        let graph = stream.end_capture(flags).map_err(driver(what))?;
        enqueued?;
        graph.ok_or(Error::Records { why: "the captured call did nothing".to_owned() })
    }

    /// The stopwatch's name of its timer.
    pub fn timer(&self) -> &'static str {
        self.stopwatch.timer()
    }

    /// What the call on the first set gives.
    ///
    /// # Errors
    /// When the device fails.
    pub fn outputs(&mut self) -> Result<OwnedOutputs, Error> {
        self.set = 0;
        self.launch()?;
        self.stopwatch.wait()?;
        let mut outputs = OwnedOutputs::poisoned(&self.problem, 0);
        let block = &mut self.sets[0].block;
        block.download(self.spans[Tensor::INPUTS.len()].start..usize::MAX)?;
        let host = block.host()?;
        for (tensor, span) in Tensor::OUTPUTS.into_iter().zip(self.spans.into_iter().skip(Tensor::INPUTS.len())) {
            if let Some(values) = outputs.tensor_mut(tensor) {
                values.copy_from_slice(&host[span.start..span.start + span.len]);
            }
        }
        Ok(outputs)
    }

    fn launch(&self) -> Result<(), Error> {
        match &self.sets[self.set].graph {
            Some(graph) => graph.launch().map_err(driver("launching a graph")),
            None => self.enqueue(self.set),
        }
    }
}

impl Contestant for CudaContestant<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn prepare(&mut self, round: u64) -> Result<(), Reason> {
        // The remainder is below a vector's length.
        self.set = (round % self.sets.len().max(1) as u64) as usize;
        Ok(())
    }

    fn run_once(&mut self, _: &dyn Clock) -> Result<u64, Reason> {
        Ok(self.stopwatch.time(|| self.launch())?.time_ns)
    }
}

/// Spans of the thirteen tensors one after the other.
fn packed(problem: &Problem) -> [Span; 13] {
    let mut start = 0;
    let mut tensors = Tensor::INPUTS.into_iter().chain(Tensor::OUTPUTS);
    std::array::from_fn(|_| {
        let len = tensors.next().map_or(0, |tensor| problem.dims.elems(tensor));
        let span = Span { start, len };
        start += len.next_multiple_of(ALIGNED_ELEMS);
        span
    })
}

#[cfg(test)]
mod tests {
    use qkv_rope_op::Dims;

    use super::*;

    #[test]
    fn tensors_lie_one_after_the_other() {
        let spans = packed(&Problem::new(Dims::new(2, 3, 5, 2, 1, 4).expect("valid")));
        assert!(spans.windows(2).all(|pair| pair[0].start + pair[0].len <= pair[1].start));
        assert!(spans.iter().all(|span| span.len > 0 && span.start.is_multiple_of(ALIGNED_ELEMS)));
    }
}

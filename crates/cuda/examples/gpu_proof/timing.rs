//! Times of the suite: cold second-level cache, CUDA graph on and off, all samples kept.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, result};
use qkv_rope_cuda::plan::Layout;
use qkv_rope_cuda::{Executor, Gpu, WorkspacePtr};
use qkv_rope_op::{Case, Cost, Inputs, OwnedInputs, Precision, Problem, Recipe, SUITE, Tensor, View};
use serde_json::json;

use crate::emit;
use crate::layouts::views;

const WARM_UPS: usize = 10;

/// Times every case in both modes with `samples` samples each.
pub(crate) fn all(gpu: &Arc<Gpu>, samples: usize) -> Result<usize> {
    for case in SUITE {
        let inputs = OwnedInputs::generate(case.dims(), Recipe::Benchmark, 200);
        for precision in [Precision::Fast, Precision::Split] {
            one(gpu, case, precision, &inputs, samples)?;
        }
    }
    Ok(0)
}

fn one(gpu: &Arc<Gpu>, case: Case, precision: Precision, inputs: &OwnedInputs, samples: usize) -> Result<()> {
    let problem = Problem { precision, ..Problem::new(case.dims()) };
    let context = gpu.context();
    // SAFETY: everything here runs on one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream()?;
    let mut memory = Vec::new();
    for tensor in Tensor::INPUTS {
        memory.push(stream.clone_htod(inputs.tensor(tensor).context("every input was generated")?)?);
    }
    let on_gpu = dense(&problem, &stream, &memory)?;
    let rows = [problem.dims.tokens(), problem.dims.query_rows(), problem.dims.kv_rows(), problem.dims.kv_rows()];
    let outputs = rows
        .into_iter()
        .map(|rows| stream.alloc_zeros::<f32>(rows * problem.dims.hidden()))
        .collect::<Result<Vec<_>, _>>()?;
    let executor = Executor::new(gpu, &problem, Layout::DENSE)?;
    let room = stream.alloc_zeros::<u8>(usize::try_from(executor.workspace_bytes())?)?;
    let workspace = WorkspacePtr { address: room.device_ptr(&stream).0, bytes: room.len() as u64 };
    let enqueue = || -> Result<()> {
        let mut outputs = views(&problem, &stream, &outputs, 0)?;
        // SAFETY: all memory is local to this function, which waits for the stream before it returns.
        Ok(unsafe { executor.enqueue(&on_gpu, &mut outputs, workspace, stream.cu_stream()) }?)
    };
    enqueue()?;
    stream.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    enqueue()?;
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags)?.context("the capture is empty")?;
    let flush = stream.alloc_zeros::<u8>(2 * usize::try_from(gpu.facts().l2_bytes)?)?;
    let with_graph = spans(&stream, &flush, samples, || Ok(graph.launch()?))?;
    let without = spans(&stream, &flush, samples, enqueue)?;
    let cost = Cost::of(&problem);
    emit(&json!({
        "case": case.name(),
        "tokens": problem.dims.tokens(),
        "precision": precision,
        "median_ns": { "graph": median(&with_graph), "stream": median(&without) },
        "samples_ns": { "graph": with_graph, "stream": without },
        "flops": cost.flops,
        "min_bytes": cost.min_bytes,
        "launches": executor.plan().launches.len(),
        "workspace_bytes": executor.workspace_bytes(),
        "choice": executor.plan().choice,
    }));
    stream.synchronize()?;
    Ok(())
}

/// Device time of each call in ns: from the event before it to the event after it, with the cache full of zeros before.
fn spans(
    stream: &Arc<CudaStream>,
    flush: &CudaSlice<u8>,
    samples: usize,
    call: impl Fn() -> Result<()>,
) -> Result<Vec<u64>> {
    let timed = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let mut events = Vec::new();
    for _ in 0..WARM_UPS + samples {
        let (address, _) = flush.device_ptr(stream);
        // SAFETY: the range is `flush`, which nothing else uses.
        unsafe { result::memset_d8_async(address, 0, flush.len(), stream.cu_stream()) }?;
        let before = stream.record_event(timed)?;
        call()?;
        events.push((before, stream.record_event(timed)?));
    }
    stream.synchronize()?;
    let spans = events.iter().skip(WARM_UPS).map(|(before, after)| before.elapsed_ms(after));
    spans.map(|ms| Ok((f64::from(ms?) * 1e6) as u64)).collect()
}

fn median(samples: &[u64]) -> u64 {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

fn dense(problem: &Problem, stream: &Arc<CudaStream>, memory: &[CudaSlice<f32>]) -> Result<Inputs<'static>> {
    fn view<const RANK: usize>(
        problem: &Problem,
        stream: &Arc<CudaStream>,
        memory: &[CudaSlice<f32>],
        tensor: Tensor,
    ) -> Result<View<'static, RANK>> {
        let shape: Vec<usize> = problem.dims.shape(tensor);
        let shape: [usize; RANK] = shape.try_into().map_err(|_| anyhow::anyhow!("{tensor} has another rank"))?;
        let mut strides = [1; RANK];
        for dim in (1..RANK).rev() {
            strides[dim - 1] = strides[dim] * shape[dim];
        }
        let (address, _) = memory[tensor as usize].device_ptr(stream);
        let base = std::ptr::without_provenance::<f32>(usize::try_from(address)?);
        // SAFETY: a device address that is only passed on; the caller keeps the allocation, which has all of the shape.
        Ok(unsafe { View::from_raw_parts(base, shape, strides) }?)
    }
    Ok(Inputs {
        grad_query: view(problem, stream, memory, Tensor::GradQuery)?,
        grad_key: view(problem, stream, memory, Tensor::GradKey)?,
        grad_value: view(problem, stream, memory, Tensor::GradValue)?,
        hidden_states: Some(view(problem, stream, memory, Tensor::HiddenStates)?),
        q_weight: Some(view(problem, stream, memory, Tensor::QWeight)?),
        k_weight: Some(view(problem, stream, memory, Tensor::KWeight)?),
        v_weight: Some(view(problem, stream, memory, Tensor::VWeight)?),
        cos: view(problem, stream, memory, Tensor::Cos)?,
        sin: view(problem, stream, memory, Tensor::Sin)?,
    })
}

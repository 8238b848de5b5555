//! The same bits whatever the run and however tensors lie in memory; nothing read or written between their elements.

use std::sync::Arc;

use anyhow::{Result, ensure};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use qkv_rope_cuda::plan::Layout;
use qkv_rope_cuda::{Executor, Gpu, WorkspacePtr};
use qkv_rope_op::inputs::{Arranged, Arrangement};
use qkv_rope_op::{Dims, Inputs, Output, Outputs, OwnedInputs, Precision, Problem, Recipe, View, ViewMut};
use serde_json::json;

use crate::emit;

const ARRANGEMENTS: [Arrangement; 6] = [
    Arrangement::Offset(0),
    Arrangement::Offset(1),
    Arrangement::Offset(4),
    Arrangement::Transposed,
    Arrangement::Padded(3),
    Arrangement::Padded(4),
];

/// Returns how many comparisons failed.
pub(crate) fn all(gpu: &Arc<Gpu>, runs: usize) -> Result<usize> {
    let mut failed = 0;
    for precision in [Precision::Fast, Precision::Split] {
        for (batch, seq) in [(2, 128), (2, 293), (1, 2048), (1, 4096)] {
            let problem = Problem { precision, ..Problem::new(Dims::new(batch, seq, 1536, 24, 4, 96)?) };
            failed += repeats(gpu, &problem, runs)?;
            failed += arrangements(gpu, &problem)?;
        }
    }
    Ok(failed + streams(gpu)?)
}

/// Streams that work at the same time, and calls of each in flight together.
const STREAMS: usize = 4;
const CALLS_IN_FLIGHT: usize = 8;

/// One executor, several streams, each with a workspace of its own: as if they were alone.
fn streams(gpu: &Arc<Gpu>) -> Result<usize> {
    let mut failed = 0;
    for precision in [Precision::Fast, Precision::Split] {
        let problem = Problem { precision, ..Problem::new(Dims::new(2, 293, 1536, 24, 4, 96)?) };
        let executor = Arc::new(Executor::new(gpu, &problem, Layout::DENSE)?);
        let mut calls = Vec::new();
        for seed in 0..STREAMS {
            let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, seed as u64);
            let stream = gpu.context().new_stream()?;
            calls.push(Call::on(&stream, Some(executor.clone()), gpu, &problem, &inputs.views(), 0)?);
        }
        let alone = calls.iter_mut().map(Call::run).collect::<Result<Vec<_>>>()?;
        for _ in 0..CALLS_IN_FLIGHT {
            for call in &calls {
                call.enqueue()?;
            }
        }
        let together = calls.iter().map(Call::bits).collect::<Result<Vec<_>>>()?;
        let different = alone.iter().zip(&together).filter(|(alone, together)| alone != together).count();
        emit(&json!({ "streams": STREAMS, "problem": problem, "different": different }));
        failed += different;
    }
    Ok(failed)
}

fn repeats(gpu: &Arc<Gpu>, problem: &Problem, runs: usize) -> Result<usize> {
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 11);
    let mut call = Call::new(gpu, problem, &inputs.views(), 0)?;
    let first = call.run()?;
    let mut different = 0;
    for _ in 1..runs {
        different += usize::from(call.run()? != first);
    }
    emit(&json!({ "repeats": problem, "runs": runs, "different": different }));
    Ok(different)
}

fn arrangements(gpu: &Arc<Gpu>, problem: &Problem) -> Result<usize> {
    let inputs = OwnedInputs::generate(problem.dims, Recipe::Benchmark, 12);
    let dense = Call::new(gpu, problem, &inputs.views(), 0)?.run()?;
    let mut failed = 0;
    for arrangement in ARRANGEMENTS {
        let arranged = Arranged::new(&inputs, arrangement);
        for out_offset in [0, 1] {
            let mut call = Call::new(gpu, problem, &arranged.views(), out_offset)?;
            let same = call.run()? == dense;
            failed += usize::from(!same);
            emit(&json!({
                "arrangement": format!("{arrangement:?}"),
                "outputs_offset": out_offset,
                "problem": problem,
                "notes": call.executor.plan().notes,
                "same_bits": same,
            }));
        }
    }
    let expanded = Arranged::new(&inputs, Arrangement::Expanded);
    let packed = expanded.packed();
    let same =
        Call::new(gpu, problem, &expanded.views(), 0)?.run()? == Call::new(gpu, problem, &packed.views(), 0)?.run()?;
    emit(&json!({ "arrangement": "Expanded", "problem": problem, "same_bits": same }));
    Ok(failed + usize::from(!same))
}

/// A prepared call on tensors that lie on the GPU as they do on the host.
struct Call {
    stream: Arc<CudaStream>,
    executor: Arc<Executor>,
    problem: Problem,
    inputs: Inputs<'static>,
    outputs: Vec<CudaSlice<f32>>,
    out_offset: usize,
    workspace: CudaSlice<u8>,
    _memory: Vec<CudaSlice<f32>>,
}

impl Call {
    fn new(gpu: &Arc<Gpu>, problem: &Problem, inputs: &Inputs<'_>, out_offset: usize) -> Result<Self> {
        Self::on(&gpu.context().default_stream(), None, gpu, problem, inputs, out_offset)
    }

    /// On a stream, with an executor that others use too, if there is one.
    fn on(
        stream: &Arc<CudaStream>,
        executor: Option<Arc<Executor>>,
        gpu: &Arc<Gpu>,
        problem: &Problem,
        inputs: &Inputs<'_>,
        out_offset: usize,
    ) -> Result<Self> {
        let stream = stream.clone();
        let mut memory = Vec::new();
        let on_gpu = Inputs {
            grad_query: move_view(&stream, &inputs.grad_query, &mut memory)?,
            grad_key: move_view(&stream, &inputs.grad_key, &mut memory)?,
            grad_value: move_view(&stream, &inputs.grad_value, &mut memory)?,
            hidden_states: optional(&stream, inputs.hidden_states.as_ref(), &mut memory)?,
            q_weight: optional(&stream, inputs.q_weight.as_ref(), &mut memory)?,
            k_weight: optional(&stream, inputs.k_weight.as_ref(), &mut memory)?,
            v_weight: optional(&stream, inputs.v_weight.as_ref(), &mut memory)?,
            cos: move_view(&stream, &inputs.cos, &mut memory)?,
            sin: move_view(&stream, &inputs.sin, &mut memory)?,
        };
        let dims = problem.dims;
        let rows = [dims.tokens(), dims.query_rows(), dims.kv_rows(), dims.kv_rows()];
        let outputs = rows
            .into_iter()
            .map(|rows| stream.clone_htod(&vec![f32::NAN; rows * dims.hidden() + out_offset]))
            .collect::<Result<Vec<_>, _>>()?;
        let layout = Layout::of(&on_gpu, &mut views(problem, &stream, &outputs, out_offset)?);
        let executor = match executor {
            Some(executor) => executor,
            None => Arc::new(Executor::new(gpu, problem, layout)?),
        };
        let workspace = stream.alloc_zeros::<u8>(usize::try_from(executor.workspace_bytes())?)?;
        Ok(Self {
            stream,
            executor,
            problem: *problem,
            inputs: on_gpu,
            outputs,
            out_offset,
            workspace,
            _memory: memory,
        })
    }

    /// The bits of all outputs; they are NaN before.
    fn run(&mut self) -> Result<Vec<u32>> {
        for output in &mut self.outputs {
            let poison = vec![f32::NAN; output.len()];
            self.stream.memcpy_htod(&poison, output)?;
        }
        self.enqueue()?;
        self.bits()
    }

    fn enqueue(&self) -> Result<()> {
        let (address, _) = self.workspace.device_ptr(&self.stream);
        let workspace = WorkspacePtr { address, bytes: self.workspace.len() as u64 };
        let mut outputs = views(&self.problem, &self.stream, &self.outputs, self.out_offset)?;
        // SAFETY: all memory is this call's own and lives until `bits` has waited for the stream.
        Ok(unsafe { self.executor.enqueue(&self.inputs, &mut outputs, workspace, self.stream.cu_stream()) }?)
    }

    fn bits(&self) -> Result<Vec<u32>> {
        self.stream.synchronize()?;
        let mut bits = Vec::new();
        for output in &self.outputs {
            let values = self.stream.clone_dtoh(output)?;
            ensure!(
                values[..self.out_offset].iter().all(|value| value.is_nan()),
                "memory before an output was written"
            );
            bits.extend(values[self.out_offset..].iter().map(|value| value.to_bits()));
        }
        Ok(bits)
    }
}

/// Copies what a view spans, gaps included, to the same offset from a 256-byte boundary.
fn move_view<const RANK: usize>(
    stream: &Arc<CudaStream>,
    view: &View<'_, RANK>,
    memory: &mut Vec<CudaSlice<f32>>,
) -> Result<View<'static, RANK>> {
    let range = view.address_range();
    let elems = range.len() / size_of::<f32>();
    let offset = range.start % 256 / size_of::<f32>();
    // SAFETY: the arrangements fill gaps with NaN, so all that a view spans is initialised.
    let spanned = unsafe { std::slice::from_raw_parts(view.as_ptr(), elems) };
    let mut packed = vec![f32::NAN; offset];
    packed.extend_from_slice(spanned);
    let on_gpu = stream.clone_htod(&packed)?;
    let (address, _) = on_gpu.device_ptr(stream);
    let base = std::ptr::without_provenance::<f32>(usize::try_from(address)? + offset * size_of::<f32>());
    memory.push(on_gpu);
    // SAFETY: a device address that is only passed on; the allocation is kept in `memory`.
    Ok(unsafe { View::from_raw_parts(base, view.shape(), view.strides()) }?)
}

fn optional<const RANK: usize>(
    stream: &Arc<CudaStream>,
    view: Option<&View<'_, RANK>>,
    memory: &mut Vec<CudaSlice<f32>>,
) -> Result<Option<View<'static, RANK>>> {
    view.map(|view| move_view(stream, view, memory)).transpose()
}

/// Dense outputs, `offset` elements into their memory.
pub(crate) fn views(
    problem: &Problem,
    stream: &Arc<CudaStream>,
    outputs: &[CudaSlice<f32>],
    offset: usize,
) -> Result<Outputs<'static>> {
    let dims = problem.dims;
    let base = |index: usize| {
        let (address, _) = outputs[index].device_ptr(stream);
        std::ptr::without_provenance_mut::<f32>(address as usize + offset * size_of::<f32>())
    };
    let matrix = |index: usize, rows: usize| {
        let (shape, strides) = ([rows, dims.hidden()], [dims.hidden(), 1]);
        // SAFETY: a device address that is only passed on; the caller keeps the allocation, which has all of the shape.
        unsafe { ViewMut::from_raw_parts(base(index), shape, strides) }.map(Output::overwrite)
    };
    let hidden_shape = [dims.batch(), dims.seq(), dims.hidden()];
    let hidden_strides = [dims.seq() * dims.hidden(), dims.hidden(), 1];
    // SAFETY: as above.
    let hidden = unsafe { ViewMut::from_raw_parts(base(0), hidden_shape, hidden_strides) }.map(Output::overwrite)?;
    Ok(Outputs {
        grad_hidden: Some(hidden),
        grad_q_weight: Some(matrix(1, dims.query_rows())?),
        grad_k_weight: Some(matrix(2, dims.kv_rows())?),
        grad_v_weight: Some(matrix(3, dims.kv_rows())?),
    })
}

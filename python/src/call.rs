//! One call from Python.

use std::num::NonZeroUsize;

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;
use qkv_rope::cuda::{self, DeviceSession, WorkspacePtr};
use qkv_rope::device::{shared_gpu, shared_session};
use qkv_rope::process::shared_cpu;
use qkv_rope::{Backend, Dims, Error, Inputs, Output, Outputs, Pairing, Precision, Problem, Requested, Tensor, Write};

use crate::queue::Queue;
use crate::sessions::with_session;
use crate::tensor::{Found, Library, Place};

/// Multiply-adds below which waking another thread costs more than it saves: about 20 µs of one core.
const SMALL: u128 = 1 << 20;

fn python_error(error: Error) -> PyErr {
    match error {
        Error::MissingInput { .. } | Error::Absent { .. } => PyTypeError::new_err(error.to_string()),
        Error::Failed { .. } => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// A GPU without its driver, or of the wrong kind, is no fault of the arguments.
pub(crate) fn cuda_error(error: cuda::Error) -> PyErr {
    match error {
        cuda::Error::Call(error) => python_error(error),
        cuda::Error::Refused { .. } => PyValueError::new_err(error.to_string()),
        cuda::Error::Layout { tensor, found, expected } => {
            PyValueError::new_err(format!("{tensor}: found {found}, expected {expected}"))
        }
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

/// The GPU of a number as a name: `NVIDIA H200 (sm_90)`.
///
/// # Errors
/// RuntimeError with what was looked for when there is no such GPU, no driver, or no kernel for it.
#[pyfunction]
#[pyo3(signature = (ordinal=0, /))]
pub(crate) fn gpu(py: Python<'_>, ordinal: usize) -> PyResult<String> {
    let gpu = py.detach(|| shared_gpu(ordinal)).map_err(cuda_error)?;
    Ok(format!("{} ({})", gpu.facts().name, gpu.facts().arch))
}

/// The instruction set that calls run on, as a name: `cpu-avx512`.
///
/// # Errors
/// When the processor cannot be asked.
#[pyfunction]
pub(crate) fn cpu() -> PyResult<String> {
    Ok(shared_cpu(NonZeroUsize::new(1)).map_err(python_error)?.name())
}

/// Computes the gradients; `qkv_rope.backward` is the documented form.
///
/// `inputs` are the nine tensors or None, `out` the four outputs or None to have them made, `modes` 0 (not wanted),
/// 1 (overwrite) or 2 (accumulate) for each. 0 threads means as many as the library of the tensors uses.
///
/// # Errors
/// TypeError or ValueError, naming the argument; RuntimeError when memory or threads give out.
#[pyfunction]
#[pyo3(signature = (inputs, out, modes, interleaved, precision, threads, /))]
pub(crate) fn backward<'py>(
    py: Python<'py>,
    inputs: &Bound<'py, PyTuple>,
    out: &Bound<'py, PyTuple>,
    modes: (u8, u8, u8, u8),
    interleaved: bool,
    precision: &str,
    threads: usize,
) -> PyResult<Bound<'py, PyTuple>> {
    let request = Requested {
        grad_hidden: mode(modes.0)?,
        grad_q_weight: mode(modes.1)?,
        grad_k_weight: mode(modes.2)?,
        grad_v_weight: mode(modes.3)?,
    };
    let first = inputs.get_borrowed_item(0)?.to_owned();
    let queue = Queue::of(&first)?;
    let given = Given::read(inputs, &request, queue.stream)?;
    let given_outputs = GivenOutputs::read(out, &request, queue.stream)?;
    let problem = Problem {
        dims: given.dims(&given_outputs)?,
        pairing: if interleaved { Pairing::Interleaved } else { Pairing::HalfSplit },
        precision: named_precision(precision, queue.place)?,
        outputs: request,
    };
    let mut outputs = given_outputs.complete(&problem, &queue, &first)?;
    for found in given.all().chain(outputs.found.iter().flatten()) {
        found.expect_at(queue.place)?;
    }
    match queue.place {
        Place::Host => {
            let threads = threads_for(&problem, &given.grad_query, threads)?;
            let given = given.expanded(problem.dims.batch());
            let (inputs, mut outputs) = (given.views()?, outputs.views(&request)?);
            py.detach(|| with_session(&problem, threads, |session| session.backward(&inputs, &mut outputs)))
                .map_err(python_error)?;
        }
        Place::Cuda(ordinal) => {
            let given = given.expanded(problem.dims.batch());
            on_gpu(py, &problem, ordinal, &queue, &given, &mut outputs)?;
        }
    }
    outputs.objects(&queue, &first)
}

/// Puts a call on the stream of its library.
fn on_gpu(
    py: Python<'_>,
    problem: &Problem,
    ordinal: usize,
    queue: &Queue,
    given: &Given<'_>,
    outputs: &mut GivenOutputs<'_>,
) -> PyResult<()> {
    // Another library does not know that this stream reads its memory, and may reuse it once the call returns.
    let foreign = |found: &Found<'_>| found.library() != queue.library || found.library() == Library::Exchange;
    let wait = given.all().chain(outputs.found.iter().flatten()).any(foreign);
    let (inputs, mut outputs) = (given.views()?, outputs.views(&problem.outputs)?);
    let session = py.detach(|| shared_session(ordinal, problem)).map_err(cuda_error)?;
    let bytes = session.workspace_bytes_for(&inputs, &mut outputs);
    let scratch = queue.scratch(bytes, given.grad_query.owner())?;
    let workspace = WorkspacePtr { address: scratch.address, bytes: scratch.bytes };
    let stream = Stream(queue.stream);
    py.detach(|| enqueue(&session, &inputs, &mut outputs, workspace, stream, wait)).map_err(cuda_error)
}

/// A driver's stream handle, which any thread may use.
#[derive(Clone, Copy)]
struct Stream(u64);

fn enqueue(
    session: &DeviceSession,
    inputs: &Inputs<'_>,
    outputs: &mut Outputs<'_>,
    workspace: WorkspacePtr,
    stream: Stream,
    wait: bool,
) -> Result<(), cuda::Error> {
    let stream: cuda::CUstream = std::ptr::with_exposed_provenance_mut(stream.0 as usize);
    // SAFETY: the tensors are on this GPU, as their library says, and that library keeps memory that is given back to
    // it until its stream has passed this point; for any other, `wait` is set. The cache keeps sessions that are in
    // use.
    unsafe { session.enqueue(inputs, outputs, workspace, stream) }?;
    if wait {
        // SAFETY: the stream is of this GPU, as above.
        unsafe { session.gpu().wait_for(stream) }?;
    }
    Ok(())
}

fn mode(mode: u8) -> PyResult<Option<Write>> {
    match mode {
        0 => Ok(None),
        1 => Ok(Some(Write::Overwrite)),
        2 => Ok(Some(Write::Accumulate)),
        other => Err(PyValueError::new_err(format!("modes: found {other}, expected 0, 1 or 2"))),
    }
}

fn named_precision(name: &str, place: Place) -> PyResult<Precision> {
    match name {
        "default" => Ok(if place == Place::Host { Precision::Ieee } else { Precision::Split }),
        "ieee" => Ok(Precision::Ieee),
        "split" => Ok(Precision::Split),
        "fast" => Ok(Precision::Fast),
        other => Err(PyValueError::new_err(format!("precision: found '{other}', expected 'ieee', 'split' or 'fast'"))),
    }
}

/// The thread count to compute with; `None` is one per core.
fn threads_for(problem: &Problem, like: &Found<'_>, asked: usize) -> PyResult<Option<NonZeroUsize>> {
    static TORCH_THREADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let dims = problem.dims;
    let products = 2 * dims.tokens() as u128 * dims.rows() as u128 * dims.hidden() as u128;
    if products < SMALL {
        return Ok(NonZeroUsize::new(1));
    }
    if asked == 0 && like.library() == Library::Torch {
        let py = like.owner().py();
        let count: usize = TORCH_THREADS.import(py, "torch", "get_num_threads")?.call0()?.extract()?;
        return Ok(NonZeroUsize::new(count));
    }
    Ok(NonZeroUsize::new(asked))
}

/// The inputs as they were handed over.
struct Given<'py> {
    grad_query: Found<'py>,
    grad_key: Found<'py>,
    grad_value: Found<'py>,
    hidden_states: Option<Found<'py>>,
    weights: [Option<Found<'py>>; 3],
    cos: Found<'py>,
    sin: Found<'py>,
}

impl<'py> Given<'py> {
    fn read(inputs: &Bound<'py, PyTuple>, request: &Requested, stream: u64) -> PyResult<Self> {
        let object = |index: usize| inputs.get_borrowed_item(index);
        let required = |index: usize| -> PyResult<Found<'py>> {
            let (tensor, object) = (Tensor::INPUTS[index], object(index)?);
            if object.is_none() {
                return Err(python_error(Error::Absent { tensor }));
            }
            Found::input(tensor, &object, stream)
        };
        // What no requested output needs is not looked at.
        let optional = |index: usize, wanted: bool| -> PyResult<Option<Found<'py>>> {
            let object = object(index)?;
            let given = wanted && !object.is_none();
            given.then(|| Found::input(Tensor::INPUTS[index], &object, stream)).transpose()
        };
        let weights = request.grad_hidden.is_some();
        Ok(Self {
            grad_query: required(0)?,
            grad_key: required(1)?,
            grad_value: required(2)?,
            hidden_states: optional(3, request.any_weight())?,
            weights: [optional(4, weights)?, optional(5, weights)?, optional(6, weights)?],
            cos: required(7)?,
            sin: required(8)?,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Found<'py>> {
        let required = [&self.grad_query, &self.grad_key, &self.grad_value, &self.cos, &self.sin];
        required.into_iter().chain(&self.hidden_states).chain(self.weights.iter().flatten())
    }

    /// The sizes that the first tensor to have each axis gives; the others are checked against them in the call.
    fn dims(&self, outputs: &GivenOutputs<'py>) -> PyResult<Dims> {
        let [batch, query_heads, seq, head_dim] = self.grad_query.shape()?;
        let [_, kv_heads, ..] = self.grad_key.shape::<4>()?;
        let rotary_dim = match self.cos.shape::<2>() {
            Ok([_, rotary_dim]) => rotary_dim,
            Err(_) => self.cos.shape::<3>()?[2],
        };
        let mut hidden = None;
        if let Some(found) = &self.hidden_states {
            hidden = Some(found.shape::<3>()?[2]);
        }
        if let (None, Some(found)) = (hidden, &self.weights[0]) {
            hidden = Some(found.shape::<2>()?[1]);
        }
        let hidden = hidden.or(outputs.hidden()?).unwrap_or(0);
        let dims = Dims::new(batch, seq, hidden, query_heads, kv_heads, head_dim);
        dims.and_then(|dims| dims.with_rotary_dim(rotary_dim)).map_err(python_error)
    }

    fn expanded(self, batch: usize) -> Self {
        Self { cos: self.cos.expanded(batch), sin: self.sin.expanded(batch), ..self }
    }

    fn views(&self) -> PyResult<Inputs<'_>> {
        let weight = |index: usize| self.weights[index].as_ref().map(Found::view::<2>).transpose();
        Ok(Inputs {
            grad_query: self.grad_query.view()?,
            grad_key: self.grad_key.view()?,
            grad_value: self.grad_value.view()?,
            hidden_states: self.hidden_states.as_ref().map(Found::view).transpose()?,
            q_weight: weight(0)?,
            k_weight: weight(1)?,
            v_weight: weight(2)?,
            cos: self.cos.view()?,
            sin: self.sin.view()?,
        })
    }
}

/// The outputs as they were handed over, then with those that were made.
struct GivenOutputs<'py> {
    found: [Option<Found<'py>>; 4],
    /// Those that were not handed over.
    made: [bool; 4],
}

impl<'py> GivenOutputs<'py> {
    fn read(out: &Bound<'py, PyTuple>, request: &Requested, stream: u64) -> PyResult<Self> {
        let mut found = [const { None }; 4];
        for (index, (found, tensor)) in found.iter_mut().zip(Tensor::OUTPUTS).enumerate() {
            let object = out.get_borrowed_item(index)?;
            match request.get(tensor) {
                Some(_) if !object.is_none() => *found = Some(Found::output(tensor, &object, stream)?),
                Some(Write::Accumulate) => {
                    return Err(PyTypeError::new_err(format!("{tensor}: accumulating needs a tensor in out")));
                }
                _ => {}
            }
        }
        Ok(Self { found, made: [false; 4] })
    }

    fn hidden(&self) -> PyResult<Option<usize>> {
        match &self.found {
            [Some(grad_hidden), ..] => Ok(Some(grad_hidden.shape::<3>()?[2])),
            [_, weights @ ..] => {
                let first = weights.iter().flatten().next();
                first.map(|found| found.shape::<2>().map(|shape| shape[1])).transpose()
            }
        }
    }

    /// Makes those that are wanted and were not given, in the library of `like`.
    fn complete(mut self, problem: &Problem, queue: &Queue, like: &Bound<'py, PyAny>) -> PyResult<Self> {
        for ((found, made), tensor) in self.found.iter_mut().zip(&mut self.made).zip(Tensor::OUTPUTS) {
            if found.is_none() && problem.outputs.get(tensor).is_some() {
                let empty = queue.empty(&problem.dims.shape(tensor), like)?;
                *found = Some(Found::output(tensor, &empty, queue.stream)?);
                *made = true;
            }
        }
        Ok(self)
    }

    /// What Python gets back: a tensor or None for each output.
    fn objects(self, queue: &Queue, like: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let objects = self.found.iter().zip(self.made).map(|(found, made)| match found {
            Some(found) if made => queue.handed_over(found.owner().clone(), like).map(Some),
            Some(found) => Ok(Some(found.owner().clone())),
            None => Ok(None),
        });
        PyTuple::new(like.py(), objects.collect::<PyResult<Vec<_>>>()?)
    }

    fn views(&mut self, request: &Requested) -> PyResult<Outputs<'_>> {
        let [hidden, query, key, value] = &mut self.found;
        Ok(Outputs {
            grad_hidden: output(hidden, request.grad_hidden)?,
            grad_q_weight: output(query, request.grad_q_weight)?,
            grad_k_weight: output(key, request.grad_k_weight)?,
            grad_v_weight: output(value, request.grad_v_weight)?,
        })
    }
}

fn output<'a, const RANK: usize>(
    found: &'a mut Option<Found<'_>>,
    write: Option<Write>,
) -> PyResult<Option<Output<'a, RANK>>> {
    match (found, write) {
        (Some(found), Some(write)) => Ok(Some(Output { view: found.view_mut()?, write })),
        _ => Ok(None),
    }
}

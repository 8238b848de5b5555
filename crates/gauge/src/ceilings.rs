//! What a GPU was seen to do at most: a large copy, and a large matrix product.

use std::ffi::c_int;

use cudarc::driver::result;
use cudarc::driver::sys::CUevent_flags;
use half::f16;
use kernelproof_eval::evaluation::{Ceiling, Origin, Resource};
use qkv_rope_cuda::plan::Layout as Dense;
use qkv_rope_cuda::{Executor, WorkspacePtr};
use qkv_rope_op::{Cost, Dims, OwnedInputs, Precision, Problem, Recipe};

use crate::block::{Block, views};
use crate::cublas::Cublas;
use crate::error::{Error, driver};
use crate::stopwatch::Stopwatch;
use crate::subject::address;

/// Samples of each figure; the best counts, because a ceiling is not a typical value.
const SAMPLES: usize = 9;

/// Thirty times the largest second-level cache.
const COPY_BYTES: usize = 2 << 30;

/// Rows and columns of the product: a millisecond of work.
const EXTENT: usize = 8192;

/// Products that `split` makes of one.
const SPLIT_PRODUCTS: f64 = 3.0;

/// Ceilings of the stopwatch's GPU, by CUDA events.
///
/// # Errors
/// When the device has no room or fails. A missing cuBLAS is none: the operation itself takes its place, and says so.
pub fn measured(stopwatch: &Stopwatch) -> Result<Vec<Ceiling>, Error> {
    let copy = copy_rate(stopwatch)?;
    let (product, what) = match library_rate(stopwatch) {
        Ok(rate) => (rate, format!("cuBLAS, product of {EXTENT} cubed in fp16 with f32 sums, random contents")),
        Err(Error::Missing { .. }) => {
            (own_rate(stopwatch)?, "this project's operation in fast mode, no cuBLAS".to_owned())
        }
        Err(error) => return Err(error),
    };
    let ceiling = |resource, precision, per_ns, source: &str| Ceiling {
        resource,
        origin: Origin::Measured,
        precision,
        per_ns,
        source: format!("{source}, best of {SAMPLES}"),
    };
    Ok(vec![
        ceiling(Resource::Arithmetic, Some(Precision::Fast), product, &what),
        ceiling(
            Resource::Arithmetic,
            Some(Precision::Split),
            product / SPLIT_PRODUCTS,
            &format!("{what}, a third of it for three products"),
        ),
        ceiling(Resource::Bandwidth, None, copy, "copying 2 GiB on the device, bytes both ways"),
    ])
}

/// The shortest of several runs, in ns.
fn shortest(stopwatch: &Stopwatch, run: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
    let event =
        || stopwatch.stream().record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).map_err(driver("recording an event"));
    let mut shortest_ns = f64::INFINITY;
    for _ in 0..SAMPLES {
        let before = event()?;
        run()?;
        let after = event()?;
        stopwatch.wait()?;
        let time_ms = before.elapsed_ms(&after).map_err(driver("reading the events"))?;
        shortest_ns = shortest_ns.min(f64::from(time_ms) * 1e6);
    }
    Ok(shortest_ns)
}

fn copy_rate(stopwatch: &Stopwatch) -> Result<f64, Error> {
    let room = || stopwatch.stream().alloc_zeros::<u8>(COPY_BYTES).map_err(driver("allocating room for a copy"));
    let (from, to) = (room()?, room()?);
    let (source, target) = (address(&from, stopwatch.stream()), address(&to, stopwatch.stream()));
    let stream = stopwatch.stream().cu_stream();
    let time_ns = shortest(stopwatch, || {
        // SAFETY: both ranges are local to this function, which waits for the copy.
        unsafe { result::memcpy_dtod_async(target, source, COPY_BYTES, stream) }.map_err(driver("copying"))
    })?;
    Ok(2.0 * COPY_BYTES as f64 / time_ns)
}

fn library_rate(stopwatch: &Stopwatch) -> Result<f64, Error> {
    stopwatch.gpu().context().bind_to_thread().map_err(driver("making the context current"))?;
    let stream = stopwatch.stream();
    let cublas = Cublas::open(stream.cu_stream())?;
    // Normal numbers: on zeros the clocks stay higher than any user will see them.
    let dims = Dims::new(1, EXTENT / 4, EXTENT, 1, 1, 4)?;
    let normal = OwnedInputs::generate(dims, Recipe::Benchmark, 200);
    let hidden = normal.tensor(qkv_rope_op::Tensor::HiddenStates).unwrap_or_default();
    let quarter: Vec<u16> = hidden.iter().map(|&value| f16::from_f32(value).to_bits()).collect();
    let contents = [&quarter[..], &quarter, &quarter, &quarter].concat();
    let room = |what| stream.clone_htod(&contents).map_err(driver(what));
    let (a, b) = (room("allocating an operand")?, room("allocating an operand")?);
    let c = stream.alloc_zeros::<f32>(EXTENT * EXTENT).map_err(driver("allocating a product"))?;
    let places = [address(&a, stream), address(&b, stream), address(&c, stream)];
    let time_ns = shortest(stopwatch, || {
        // SAFETY: the three matrices have the extent, and live until `shortest` has waited.
        unsafe { cublas.product(EXTENT as c_int, places) }
    })?;
    Ok(2.0 * (EXTENT as f64).powi(3) / time_ns)
}

fn own_rate(stopwatch: &Stopwatch) -> Result<f64, Error> {
    let dims = Dims::new(4, EXTENT, 1536, 24, 4, 96)?;
    let problem = Problem { precision: Precision::Fast, ..Problem::new(dims) };
    let layout = kernelproof_eval::judge::Layout::new(dims);
    let executor = Executor::new(stopwatch.gpu(), &problem, Dense::dense(dims))?;
    let workspace = crate::subject::workspace(stopwatch, &executor)?;
    let mut block = Block::new(stopwatch.stream(), layout.len_elems())?;
    let inputs = OwnedInputs::generate(dims, Recipe::Benchmark, 200);
    for (tensor, span) in qkv_rope_op::Tensor::INPUTS.into_iter().zip(layout.slots()) {
        let values = inputs.tensor(tensor).unwrap_or_default();
        block.host()?[span.start..span.start + span.len].copy_from_slice(values);
    }
    block.upload(layout.len_elems())?;
    let room = WorkspacePtr { address: address(&workspace, stopwatch.stream()), bytes: workspace.len() as u64 };
    let time_ns = shortest(stopwatch, || {
        let (inputs, mut outputs) = views(dims, block.address(), &layout.slots())?;
        // SAFETY: block and workspace live until `shortest` has waited.
        Ok(unsafe { executor.enqueue(&inputs, &mut outputs, room, stopwatch.stream().cu_stream()) }?)
    })?;
    Ok(Cost::of(&problem).flops as f64 / time_ns)
}

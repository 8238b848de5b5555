//! Calls across the border: right results, and a status with a text for everything that a caller can get wrong.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use qkv_rope_capi as c;
use qkv_rope_capi::qkv_rope_status::{self, *};

const B: u64 = 2;
const S: u64 = 3;
const E: u64 = 16;
const H: u64 = 2;
const K: u64 = 1;
const D: u64 = 4;
const START: f32 = 0.5;

/// Tensors full of ones, so that every sum is a count: cos is 1 and sin 0, so nothing turns.
struct Call {
    ones: Vec<f32>,
    outputs: [Vec<f32>; 4],
}

impl Call {
    fn new() -> Self {
        let outputs = [B * S * E, H * D * E, K * D * E, K * D * E].map(|elems| vec![START; elems as usize]);
        Self { ones: vec![1.0; 512], outputs }
    }

    fn tensor(&self, shape: &[u64]) -> c::qkv_rope_tensor {
        let (shape, strides, rank) = arrange(shape);
        c::qkv_rope_tensor { data: self.ones.as_ptr(), rank, reserved: 0, shape, strides }
    }

    fn inputs(&self) -> c::qkv_rope_inputs {
        let mut sin = self.tensor(&[B, S, D]);
        static ZEROS: [f32; 64] = [0.0; 64];
        sin.data = ZEROS.as_ptr();
        c::qkv_rope_inputs {
            grad_query: self.tensor(&[B, H, S, D]),
            grad_key: self.tensor(&[B, K, S, D]),
            grad_value: self.tensor(&[B, K, S, D]),
            hidden_states: self.tensor(&[B, S, E]),
            q_weight: self.tensor(&[H * D, E]),
            k_weight: self.tensor(&[K * D, E]),
            v_weight: self.tensor(&[K * D, E]),
            cos: self.tensor(&[B, S, D]),
            sin,
        }
    }

    fn outputs(&mut self) -> c::qkv_rope_outputs {
        let shapes: [&[u64]; 4] = [&[B, S, E], &[H * D, E], &[K * D, E], &[K * D, E]];
        let mut made = self.outputs.iter_mut().zip(shapes).map(|(values, shape)| {
            let (shape, strides, rank) = arrange(shape);
            c::qkv_rope_output { data: values.as_mut_ptr(), rank, write: c::QKV_ROPE_ACCUMULATE, shape, strides }
        });
        let mut next = || made.next().expect("four outputs");
        c::qkv_rope_outputs {
            grad_hidden_states: next(),
            grad_q_weight: next(),
            grad_k_weight: next(),
            grad_v_weight: next(),
        }
    }

    /// One backward pass of a changed call on a new session.
    fn run(&mut self, change: impl FnOnce(&mut c::qkv_rope_inputs, &mut c::qkv_rope_outputs)) -> qkv_rope_status {
        let (mut inputs, mut outputs) = (self.inputs(), self.outputs());
        change(&mut inputs, &mut outputs);
        let session = create(&problem(), 2);
        // SAFETY: a live session and structs whose memory lives in self.
        let status = unsafe { c::qkv_rope_backward(session, &inputs, &outputs) };
        // SAFETY: created above, used nowhere else.
        unsafe { c::qkv_rope_session_destroy(session) };
        status
    }

    fn expect_counts(&self) {
        let counts = [((H + 2 * K) * D) as f32, (B * S) as f32, (B * S) as f32, (B * S) as f32];
        for (values, count) in self.outputs.iter().zip(counts) {
            assert!(values.iter().all(|&value| value == START + count), "{values:?}");
        }
    }

    fn expect_untouched(&self) {
        assert!(self.outputs.iter().flatten().all(|&value| value == START));
    }
}

fn arrange(shape: &[u64]) -> ([u64; 4], [i64; 4], u32) {
    let (mut extents, mut strides, mut stride) = ([0; 4], [0; 4], 1);
    for dim in (0..shape.len()).rev() {
        (extents[dim], strides[dim]) = (shape[dim], stride);
        stride *= shape[dim] as i64;
    }
    (extents, strides, shape.len() as u32)
}

fn problem() -> c::qkv_rope_problem {
    c::qkv_rope_problem {
        abi_version: c::QKV_ROPE_ABI_VERSION,
        pairing: c::QKV_ROPE_HALF_SPLIT,
        precision: c::QKV_ROPE_IEEE,
        grad_hidden_states: c::QKV_ROPE_ACCUMULATE,
        grad_q_weight: c::QKV_ROPE_ACCUMULATE,
        grad_k_weight: c::QKV_ROPE_ACCUMULATE,
        grad_v_weight: c::QKV_ROPE_ACCUMULATE,
        reserved: 0,
        dims: c::qkv_rope_dims { batch: B, seq: S, hidden: E, query_heads: H, kv_heads: K, head_dim: D, rotary_dim: D },
    }
}

fn create(problem: &c::qkv_rope_problem, threads: u32) -> *mut c::qkv_rope_session {
    let mut session = null_mut();
    // SAFETY: both point to values on this stack.
    let status = unsafe { c::qkv_rope_session_create(problem, threads, &mut session) };
    assert_eq!(status, QKV_ROPE_OK, "{}", last_error());
    session
}

/// The status and text of creating a session for a changed problem.
fn refused(change: impl FnOnce(&mut c::qkv_rope_problem)) -> (qkv_rope_status, String) {
    let mut changed = problem();
    change(&mut changed);
    let mut session = std::ptr::dangling_mut();
    // SAFETY: both point to values on this stack.
    let status = unsafe { c::qkv_rope_session_create(&changed, 1, &mut session) };
    assert!(session.is_null(), "the handle is null after a failure");
    (status, last_error())
}

fn last_error() -> String {
    // SAFETY: never null, and no call between here and the copy.
    unsafe { CStr::from_ptr(c::qkv_rope_last_error()) }.to_string_lossy().into_owned()
}

#[test]
fn sums_are_exact() {
    let mut call = Call::new();
    assert_eq!(call.run(|_, _| ()), QKV_ROPE_OK, "{}", last_error());
    call.expect_counts();
}

#[test]
fn wrong_problems_are_refused() {
    let (status, text) = refused(|problem| problem.abi_version = 0);
    assert_eq!((status, text.as_str()), (QKV_ROPE_WRONG_VERSION, "problem.abi_version: found 0, this library has 1"));
    let (status, text) = refused(|problem| problem.pairing = 7);
    assert_eq!(
        (status, text.as_str()),
        (QKV_ROPE_INVALID_VALUE, "problem.pairing: found 7, which is none of its values")
    );
    assert_eq!(refused(|problem| problem.precision = -1).0, QKV_ROPE_INVALID_VALUE);
    assert_eq!(refused(|problem| problem.grad_v_weight = 3).0, QKV_ROPE_INVALID_VALUE);
    assert_eq!(refused(|problem| problem.reserved = 1).0, QKV_ROPE_INVALID_VALUE);
    assert_eq!(refused(|problem| problem.dims.head_dim = 5).0, QKV_ROPE_DIMS);
    assert_eq!(refused(|problem| problem.dims.batch = u64::MAX).0, QKV_ROPE_DIMS);
    assert_eq!(refused(|problem| problem.precision = c::QKV_ROPE_FAST).0, QKV_ROPE_REFUSED);
}

#[test]
fn null_pointers_are_refused() {
    let (mut session, mut bytes) = (null_mut(), 0);
    // SAFETY: null is allowed, the rest points to values on this stack.
    assert_eq!(unsafe { c::qkv_rope_session_create(null(), 1, &mut session) }, QKV_ROPE_NULL_POINTER);
    assert_eq!(last_error(), "problem is null");
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_session_create(&problem(), 1, null_mut()) }, QKV_ROPE_NULL_POINTER);
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_workspace_bytes(null(), &mut bytes) }, QKV_ROPE_NULL_POINTER);
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_workspace_bytes(&problem(), null_mut()) }, QKV_ROPE_NULL_POINTER);
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_backward(null_mut(), null(), null()) }, QKV_ROPE_NULL_POINTER);
    assert_eq!(last_error(), "session is null");
    let session = create(&problem(), 1);
    // SAFETY: a live session; null is allowed.
    assert_eq!(unsafe { c::qkv_rope_backward(session, null(), null()) }, QKV_ROPE_NULL_POINTER);
    // SAFETY: created above, used nowhere else.
    unsafe { c::qkv_rope_session_destroy(session) };
    // SAFETY: null is allowed.
    unsafe { c::qkv_rope_session_destroy(null_mut()) };
    let mut call = Call::new();
    assert_eq!(call.run(|_, outputs| outputs.grad_k_weight.data = null_mut()), QKV_ROPE_NULL_POINTER);
    assert_eq!(last_error(), "grad_k_weight: its data is null");
    call.expect_untouched();
}

type Change = fn(&mut c::qkv_rope_inputs, &mut c::qkv_rope_outputs);

#[test]
fn wrong_tensors_are_named_and_nothing_is_written() {
    let changes: [(Change, qkv_rope_status, &str); 11] = [
        (|x, _| x.cos.data = x.cos.data.wrapping_byte_add(2), QKV_ROPE_MISALIGNED, "cos: address"),
        (|_, y| y.grad_q_weight.data = y.grad_q_weight.data.wrapping_byte_add(1), QKV_ROPE_MISALIGNED, "grad_q_weight"),
        (|x, _| x.sin.data = null(), QKV_ROPE_MISSING_INPUT, "sin: missing, every call needs it"),
        (|x, _| x.k_weight.data = null(), QKV_ROPE_MISSING_INPUT, "k_weight: missing, but grad_hidden_states"),
        (|x, _| x.q_weight.rank = 3, QKV_ROPE_SHAPE, "q_weight: found rank 3, expected 2"),
        (|x, _| x.q_weight.rank = 99, QKV_ROPE_SHAPE, "q_weight: found rank 99, expected 2"),
        (|x, _| x.grad_key.shape[3] = 2, QKV_ROPE_SHAPE, "grad_key: found shape [2, 1, 3, 2], expected [2, 1, 3, 4]"),
        (|x, _| x.grad_value.strides[1] = -4, QKV_ROPE_STRIDES, "grad_value: stride -4 in dimension 1 is negative"),
        (|_, y| y.grad_v_weight.strides[0] = 0, QKV_ROPE_STRIDES, "grad_v_weight: output view"),
        (
            |_, y| y.grad_k_weight.write = c::QKV_ROPE_OVERWRITE,
            QKV_ROPE_WRONG_OUTPUTS,
            "grad_k_weight: found an output",
        ),
        (|_, y| y.grad_k_weight.data = y.grad_v_weight.data, QKV_ROPE_OVERLAP, "grad_k_weight and grad_v_weight"),
    ];
    for (change, status, start) in changes {
        let mut call = Call::new();
        assert_eq!(call.run(change), status, "{start}: {}", last_error());
        assert!(last_error().starts_with(start), "found {}, expected {start}", last_error());
        call.expect_untouched();
    }
}

#[test]
fn an_empty_batch_needs_no_memory() {
    let mut empty = problem();
    empty.dims.batch = 0;
    empty.grad_q_weight = c::QKV_ROPE_OVERWRITE;
    let session = create(&empty, 0);
    let mut call = Call::new();
    let (mut inputs, mut outputs) = (call.inputs(), call.outputs());
    let tensors = [&mut inputs.grad_query, &mut inputs.grad_key, &mut inputs.grad_value];
    for tensor in tensors.into_iter().chain([&mut inputs.hidden_states, &mut inputs.cos, &mut inputs.sin]) {
        (tensor.data, tensor.shape[0]) = (null(), 0);
    }
    (outputs.grad_hidden_states.data, outputs.grad_hidden_states.shape[0]) = (null_mut(), 0);
    outputs.grad_q_weight.write = c::QKV_ROPE_OVERWRITE;
    // SAFETY: a live session and structs whose memory lives in `call`.
    let status = unsafe { c::qkv_rope_backward(session, &inputs, &outputs) };
    assert_eq!(status, QKV_ROPE_OK, "{}", last_error());
    // SAFETY: created above, used nowhere else.
    unsafe { c::qkv_rope_session_destroy(session) };
    assert!(call.outputs[1].iter().all(|&value| value == 0.0), "an empty sum overwrites");
    assert!(call.outputs[2].iter().all(|&value| value == START), "an empty sum is added");
}

#[test]
fn threads_may_share_a_session() {
    struct Shared(*mut c::qkv_rope_session);
    // SAFETY: the header promises that calls on one session may come from any thread.
    unsafe impl Sync for Shared {}
    let shared = &Shared(create(&problem(), 2));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut call = Call::new();
                    let (inputs, outputs) = (call.inputs(), call.outputs());
                    // SAFETY: a live session and structs whose memory lives in `call`.
                    let status = unsafe { c::qkv_rope_backward(shared.0, &inputs, &outputs) };
                    assert_eq!(status, QKV_ROPE_OK, "{}", last_error());
                    call.expect_counts();
                }
            });
        }
    });
    // SAFETY: created above; the threads have ended.
    unsafe { c::qkv_rope_session_destroy(shared.0) };
}

#[test]
fn gpu_calls_refuse_what_is_wrong_on_any_machine() {
    let (mut session, mut bytes) = (std::ptr::dangling_mut(), 0);
    let mut changed = problem();
    changed.precision = c::QKV_ROPE_SPLIT;
    // SAFETY: null is allowed, the rest points to values on this stack.
    assert_eq!(unsafe { c::qkv_rope_cuda_device_count(null_mut()) }, QKV_ROPE_NULL_POINTER);
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_cuda_session_create(&changed, 0, null_mut()) }, QKV_ROPE_NULL_POINTER);
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_cuda_session_create(&changed, 1000, &mut session) }, QKV_ROPE_NO_DEVICE);
    assert!(session.is_null(), "the handle is null after a failure");
    let text = last_error();
    assert!(text.starts_with("no NVIDIA driver: none of libcuda") || text.starts_with("no GPU 1000"), "{text}");
    changed.dims.head_dim = 5;
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_cuda_session_create(&changed, 0, &mut session) }, QKV_ROPE_DIMS);
    // SAFETY: as above.
    assert_eq!(unsafe { c::qkv_rope_cuda_workspace_bytes(null(), &mut bytes) }, QKV_ROPE_NULL_POINTER);
    // SAFETY: as above.
    let status = unsafe { c::qkv_rope_cuda_backward(null(), null(), null(), null_mut(), 0, null_mut()) };
    assert_eq!(status, QKV_ROPE_NULL_POINTER);
    assert_eq!(last_error(), "session is null");
    // SAFETY: null is allowed.
    unsafe { c::qkv_rope_cuda_session_destroy(null_mut()) };
}

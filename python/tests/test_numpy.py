"""qkv_rope.backward on NumPy arrays: right, in place, and clear about what is wrong. No PyTorch here."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import Problem, assert_close, expected

import qkv_rope

SMALL = Problem(batch=2, seq=7, hidden=24, heads=4, kv_heads=2, head_dim=8, rotary=6, style="half-split")


@pytest.fixture
def inputs():
    return SMALL.inputs(np.random.default_rng(1))


@pytest.mark.parametrize("seed", range(60))
def test_random_problems(seed):
    rng = np.random.default_rng(seed)
    problem = Problem.random(rng)
    inputs = problem.inputs(rng)
    found = qkv_rope.backward(*inputs, style=problem.style, threads=1 + seed % 2)
    assert_close(found, expected(inputs, problem.style), problem)


def strange(array: np.ndarray, way: str) -> np.ndarray:
    """The same values in other memory."""
    if way == "transposed":
        order = (0, 2, 1, 3) if array.ndim == 4 else tuple(range(array.ndim))
        return np.ascontiguousarray(array.transpose(order)).transpose(order)
    if way == "columns":
        return np.asfortranarray(array)
    if way == "backwards":
        return np.ascontiguousarray(array[::-1])[::-1]
    if way == "misaligned":
        raw = np.zeros(array.nbytes + 1, dtype=np.uint8)
        moved = raw[1:].view(np.float32).reshape(array.shape)
        moved[...] = array
        return moved
    if way == "read-only":
        array = array.copy()
        array.flags.writeable = False
        return array
    raise AssertionError(way)


@pytest.mark.parametrize("way", ["transposed", "columns", "backwards", "misaligned", "read-only"])
def test_any_memory_gives_the_same_bits(inputs, way):
    plain = qkv_rope.backward(*inputs)
    moved = qkv_rope.backward(*(strange(array, way) for array in inputs))
    for one, other in zip(plain, moved):
        assert np.array_equal(one, other)


def test_expanded_gradients_and_tables(inputs):
    inputs[0] = np.broadcast_to(np.float32(0.5), inputs[0].shape)
    inputs[1] = np.broadcast_to(inputs[1][:, :1], inputs[1].shape)
    for tables in ([table[0] for table in inputs[7:]], [table[:1] for table in inputs[7:]]):
        found = qkv_rope.backward(*inputs[:7], *tables)
        whole = [np.broadcast_to(table[0] if table.ndim == 3 else table, (2, 7, 6)) for table in tables]
        assert_close(found, expected([*inputs[:7], *whole], "half-split"))


def test_needs(inputs):
    everything = qkv_rope.backward(*inputs)
    for name in qkv_rope.Gradients._fields:
        some = qkv_rope.backward(*inputs, needs=[name])
        for field in qkv_rope.Gradients._fields:
            if field == name:
                assert np.array_equal(getattr(some, field), getattr(everything, field))
            else:
                assert getattr(some, field) is None
    without_weights = qkv_rope.backward(*inputs[:4], None, None, None, *inputs[7:], needs=["grad_q_weight"])
    assert np.array_equal(without_weights.grad_q_weight, everything.grad_q_weight)
    without_hidden = qkv_rope.backward(*inputs[:3], None, *inputs[4:], needs=["grad_hidden_states"])
    assert np.array_equal(without_hidden.grad_hidden_states, everything.grad_hidden_states)
    assert qkv_rope.backward(*inputs, needs=[]) == (None, None, None, None)


def test_out_and_accumulate(inputs):
    fresh = qkv_rope.backward(*inputs)
    out = [np.full_like(gradient, np.nan) for gradient in fresh]
    found = qkv_rope.backward(*inputs, out=out)
    assert all(one is other for one, other in zip(found, out))
    assert all(np.array_equal(one, other) for one, other in zip(fresh, out))
    start = [np.random.default_rng(2).standard_normal(one.shape, dtype=np.float32) for one in fresh]
    out = [one.copy() for one in start]
    qkv_rope.backward(*inputs, out=out, accumulate=True)
    for one, added, total in zip(start, fresh, out):
        assert np.array_equal(one + added, total), "exactly one addition"
    mixed = qkv_rope.backward(*inputs, out={"grad_k_weight": start[2].copy()}, accumulate=["grad_k_weight"])
    assert np.array_equal(mixed.grad_k_weight, start[2] + fresh[2])
    assert np.array_equal(mixed.grad_q_weight, fresh[1])


def test_empty_batches_give_zero_weight_gradients():
    problem = Problem(batch=0, seq=5, hidden=8, heads=2, kv_heads=1, head_dim=4, rotary=4, style="half-split")
    found = qkv_rope.backward(*problem.inputs(np.random.default_rng(0)))
    assert found.grad_hidden_states.shape == (0, 5, 8)
    assert all(not gradient.any() for gradient in found[1:])


def test_nan_stays_in_its_row(inputs):
    inputs[2][1, 0, 3, 0] = np.nan
    found = qkv_rope.backward(*inputs)
    rows = np.isnan(found.grad_hidden_states).all(axis=2)
    assert rows.sum() == 1 and rows[1, 3]
    assert np.isnan(found.grad_v_weight[0]).all() and not np.isnan(found.grad_v_weight[1:]).any()


WRONG = [
    (lambda x: x.__setitem__(4, x[4].astype(np.float64)), TypeError, "q_weight: found dtype float64, expected float32"),
    (lambda x: x.__setitem__(4, x[4].astype(">f4")), TypeError, "q_weight: found dtype >f4, expected float32"),
    (
        lambda x: x.__setitem__(7, [1.0]),
        TypeError,
        "cos: found list, expected a PyTorch tensor, a NumPy array or one with __dlpack__",
    ),
    (lambda x: x.__setitem__(8, None), TypeError, "sin: missing, every call needs it"),
    (lambda x: x.__setitem__(5, None), TypeError, "k_weight: missing, but grad_hidden_states is computed from it"),
    (lambda x: x.__setitem__(3, x[3][0]), ValueError, r"hidden_states: found shape \[7, 24\], expected 3 dimensions"),
    (lambda x: x.__setitem__(6, x[6][1:]), ValueError, r"v_weight: found shape \[15, 24\], expected \[16, 24\]"),
    (lambda x: x.__setitem__(8, x[8][:, :, :4]), ValueError, r"sin: found shape \[2, 7, 4\], expected \[2, 7, 6\]"),
    (lambda x: x.__setitem__(0, x[0][..., :5]), ValueError, "head size D must be even"),
    (lambda x: x.__setitem__(0, x[0][None]), ValueError, "grad_query: found 5 dimensions"),
]


@pytest.mark.parametrize("change, kind, text", WRONG)
def test_wrong_inputs_are_named(inputs, change, kind, text):
    change(inputs)
    with pytest.raises(kind, match=text):
        qkv_rope.backward(*inputs)


def test_wrong_options_are_named(inputs):
    read_only = np.zeros((32, 24), dtype=np.float32)
    read_only.flags.writeable = False
    for options, kind, text in [
        ({"style": "neox"}, ValueError, "style: found 'neox'"),
        ({"precision": "tf32"}, ValueError, "precision: found 'tf32'"),
        ({"precision": "fast"}, ValueError, "its precision is ieee"),
        ({"threads": 0}, ValueError, "threads: found 0"),
        ({"threads": 1.5}, TypeError, "threads: found 1.5"),
        ({"needs": "cos"}, TypeError, "needs: found the string"),
        ({"needs": ["cos"]}, ValueError, r"needs: found \['cos'\]"),
        ({"accumulate": True}, TypeError, "grad_hidden_states: accumulating needs a tensor in out"),
        ({"out": [None]}, ValueError, "out: found 1 tensors"),
        ({"out": {"cos": None}}, ValueError, r"out: found \['cos'\]"),
        ({"out": {"grad_q_weight": read_only}}, ValueError, "grad_q_weight: found a read-only array"),
        ({"out": {"grad_q_weight": np.zeros((24, 32), np.float32).T}}, ValueError, "grad_q_weight: found an output wh"),
        ({"out": {"grad_q_weight": np.zeros((1, 1), np.float32)}}, ValueError, r"grad_q_weight: found shape \[1, 1\]"),
        ({"out": {"grad_q_weight": inputs[4]}}, ValueError, "grad_q_weight and q_weight overlap"),
        ({"out": {"grad_q_weight": np.broadcast_to(np.zeros(24, np.float32), (32, 24))}}, ValueError, "read-only"),
    ]:
        with pytest.raises(kind, match=text):
            qkv_rope.backward(*inputs, **options)


def large():
    problem = Problem(batch=1, seq=256, hidden=128, heads=4, kv_heads=2, head_dim=32, rotary=32, style="half-split")
    return problem.inputs(np.random.default_rng(3))


def test_threads_at_once_are_right():
    inputs = large()
    wanted = qkv_rope.backward(*inputs)
    wrong = []

    def work():
        for _ in range(20):
            found = qkv_rope.backward(*inputs, threads=2)
            if not all(np.array_equal(one, other) for one, other in zip(found, wanted)):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_gil_is_released():
    problem = Problem(batch=1, seq=2048, hidden=768, heads=12, kv_heads=4, head_dim=64, rotary=64, style="half-split")
    inputs = problem.inputs(np.random.default_rng(3))
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    for _ in range(3):
        qkv_rope.backward(*inputs, threads=1)
    during = ticks[0] - before
    stop.set()
    thread.join()
    assert during > 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_after_a_call_is_safe():
    inputs = large()
    wanted = qkv_rope.backward(*inputs, threads=2)
    child = os.fork()
    if child == 0:
        found = qkv_rope.backward(*inputs, threads=2)
        same = all(np.array_equal(one, other) for one, other in zip(found, wanted))
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0
    again = qkv_rope.backward(*inputs, threads=2)
    assert all(np.array_equal(one, other) for one, other in zip(again, wanted))


def test_import_brings_in_neither_library_and_no_thread():
    code = (
        "import sys, threading, qkv_rope\n"
        "assert not {'numpy', 'torch'} & set(sys.modules)\n"
        "import os\n"
        "assert not os.path.isdir('/proc/self/task') or len(os.listdir('/proc/self/task')) == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_more_problems_than_are_kept(inputs):
    for seq in range(1, 20):
        problem = Problem(batch=1, seq=seq, hidden=8, heads=2, kv_heads=1, head_dim=4, rotary=4, style="half-split")
        some = problem.inputs(np.random.default_rng(seq))
        assert_close(qkv_rope.backward(*some), expected(some, "half-split"))


class Lender:
    """Memory of an array behind nothing but DLPack."""

    def __init__(self, array, device=(1, 0), versioned=True):
        self.array, self.device, self.versioned = array, device, versioned
        self.streams = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, **options):
        if options and not self.versioned:
            raise TypeError("got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        return self.array.__dlpack__(**options)


@pytest.mark.parametrize("versioned", [True, False])
def test_any_library_with_dlpack(inputs, versioned):
    plain = qkv_rope.backward(*inputs)
    if versioned:
        inputs[4].flags.writeable = False
    lenders = [Lender(array, versioned=versioned) for array in inputs]
    lenders[1] = Lender(strange(inputs[1], "transposed"), versioned=versioned)
    found = qkv_rope.backward(*lenders)
    assert all(np.array_equal(one, other) for one, other in zip(found, plain))
    assert lenders[0].streams == [None], "the host has no streams"
    out = np.zeros_like(plain.grad_q_weight)
    again = qkv_rope.backward(*inputs, out={"grad_q_weight": Lender(out, versioned=versioned)})
    assert np.array_equal(out, plain.grad_q_weight) and isinstance(again.grad_q_weight, Lender)


def test_lent_memory_is_given_back(inputs):
    before = [sys.getrefcount(array) for array in inputs]
    for _ in range(3):
        qkv_rope.backward(*(Lender(array) for array in inputs))
    wrong = [Lender(array) for array in inputs]
    wrong[8] = Lender(inputs[8].astype(np.float64))
    with pytest.raises(TypeError, match="sin: found DLPack type code 2 of 64 bits"):
        qkv_rope.backward(*wrong)
    del wrong
    assert [sys.getrefcount(array) for array in inputs] == before


def test_wrong_lenders_are_named(inputs):
    read_only = np.zeros((32, 24), dtype=np.float32)
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="grad_q_weight: found a read-only array"):
        qkv_rope.backward(*inputs, out={"grad_q_weight": Lender(read_only)})
    with pytest.raises(ValueError, match="cos: found it on DLPack device type 8, expected 1 or 2"):
        qkv_rope.backward(*inputs[:7], Lender(inputs[7], device=(8, 0)), inputs[8])
    with pytest.raises(ValueError, match="k_weight: found it on device cuda:3, expected cpu as grad_query"):
        qkv_rope.backward(*inputs[:5], Lender(inputs[5], device=(2, 3)), *inputs[6:])
    with pytest.raises(TypeError, match="q_weight: its last dimension is not contiguous, and it has no copy"):
        qkv_rope.backward(*inputs[:4], Lender(np.asfortranarray(inputs[4])), *inputs[5:])


def test_a_gpu_that_is_not_there(inputs):
    lenders = [Lender(array, device=(2, 1000)) for array in inputs]
    for call in (lambda: qkv_rope.backward(*lenders), lambda: qkv_rope.gpu(1000)):
        with pytest.raises(RuntimeError, match="no NVIDIA driver: none of .*cuda.* could be loaded|no GPU 1000"):
            call()
    assert lenders[0].streams == [1], "the legacy default stream, as DLPack numbers it"

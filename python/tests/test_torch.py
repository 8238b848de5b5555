"""The PyTorch operator: gradients as PyTorch's own autograd in float64, under everything that training does."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import Problem, assert_close

torch = pytest.importorskip("torch", reason="PyTorch is not installed: python/ci.sh --torch runs these")

import qkv_rope  # noqa: E402
from qkv_rope import _functional, _torch  # noqa: E402

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

SMALL = Problem(batch=2, seq=5, hidden=12, heads=4, kv_heads=2, head_dim=6, rotary=4, style="half-split")


def rotate_half(x, style):
    half = x.shape[-1] // 2
    if style == "half-split":
        return torch.cat((-x[..., half:], x[..., :half]), -1)
    return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)


def eager(hidden, wq, wk, wv, cos, sin, heads, kv_heads, style="half-split"):
    """The layer as people write it."""

    def split(weight, heads):
        return (hidden @ weight.t()).unflatten(-1, (heads, -1)).transpose(1, 2)

    def turn(x):
        rotary = cos.shape[-1]
        head = x[..., :rotary] * cos[:, None] + rotate_half(x[..., :rotary], style) * sin[:, None]
        return torch.cat((head, x[..., rotary:]), -1)

    return turn(split(wq, heads)), turn(split(wk, kv_heads)), split(wv, kv_heads)


def tensors(problem, seed=0):
    return [torch.from_numpy(array) for array in problem.inputs(np.random.default_rng(seed))]


def layer_inputs(problem, seed=0, dtype=torch.float32, frozen=()):
    made = [tensor.to(dtype) for tensor in tensors(problem, seed)[3:]]
    for index in range(4):
        made[index].requires_grad_(index not in frozen)
    return made


def gradients(layer, inputs, problem, grads):
    outputs = layer(*inputs, problem.heads, problem.kv_heads, problem.style)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    # Of the layer as people write it, an output of frozen tensors only has no gradient to give.
    pairs = [(output, grad.to(output.dtype)) for output, grad in zip(outputs, grads) if output.requires_grad]
    return torch.autograd.grad([output for output, _ in pairs], wanted, [grad for _, grad in pairs])


@pytest.mark.parametrize("seed", range(120))
def test_random_problems_equal_autograd_in_f64(seed):
    rng = np.random.default_rng(1000 + seed)
    problem = Problem.random(rng)
    frozen = [index for index in range(4) if rng.random() < 0.25]
    if len(frozen) == 4:
        frozen = []
    grads = tensors(problem, seed)[:3]
    if seed % 3 == 1:
        grads = [grad.transpose(1, 2).contiguous().transpose(1, 2) for grad in grads]
    elif seed % 3 == 2:
        grads = [grad[:, :1, :1, :1].expand(grad.shape) for grad in grads]
    found = gradients(qkv_rope.qkv_rope, layer_inputs(problem, seed, frozen=frozen), problem, grads)
    wanted = gradients(eager, layer_inputs(problem, seed, torch.float64, frozen), problem, grads)
    assert_close(found, wanted, problem)


def test_forward_is_the_layer():
    inputs = layer_inputs(SMALL, dtype=torch.float64)
    for style in ("half-split", "interleaved"):
        found = qkv_rope.qkv_rope(*inputs, 4, 2, style)
        for one, other in zip(found, eager(*inputs, 4, 2, style)):
            torch.testing.assert_close(one, other)


def test_backward_takes_tensors_and_arrays_alike():
    inputs = tensors(SMALL)
    found = qkv_rope.backward(*inputs)
    arrays = qkv_rope.backward(*(tensor.numpy() for tensor in inputs))
    assert all(
        isinstance(one, torch.Tensor) and np.array_equal(one.numpy(), other) for one, other in zip(found, arrays)
    )


def test_accumulate_into_main_grad_tells_autograd():
    inputs = tensors(SMALL)
    fresh = qkv_rope.backward(*inputs)
    main_grad = torch.ones_like(fresh.grad_q_weight)
    version = main_grad._version
    qkv_rope.backward(*inputs, out={"grad_q_weight": main_grad}, accumulate=["grad_q_weight"])
    assert torch.equal(main_grad, fresh.grad_q_weight + 1)
    assert main_grad._version > version
    with pytest.raises(ValueError, match="grad_q_weight: found an output that requires grad"):
        qkv_rope.backward(*inputs, out={"grad_q_weight": main_grad.requires_grad_()})


def test_wrong_tensors_are_named():
    inputs = tensors(SMALL)
    for index, tensor, kind, text in [
        (4, inputs[4].double(), TypeError, "q_weight: found dtype torch.float64, expected torch.float32"),
        (4, inputs[4].to("meta"), ValueError, "q_weight: found it on device meta, expected cpu or cuda"),
        (3, torch.complex(inputs[3], inputs[3]).conj().imag, ValueError, "hidden_states: its negative bit is set"),
        (5, inputs[5].to_sparse(), TypeError, "k_weight: it has no plain memory"),
    ]:
        with pytest.raises(kind, match=text):
            qkv_rope.backward(*inputs[:index], tensor, *inputs[index + 1 :])


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_fake_tensors_have_no_memory():
    from torch._subclasses.fake_tensor import FakeTensorMode

    inputs = tensors(SMALL)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(inputs[0])
    with pytest.raises((TypeError, ValueError), match="grad_query"):
        qkv_rope.backward(fake, *inputs[1:])


@pytest.mark.parametrize("style", ["half-split", "interleaved"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opcheck(style, dtype):
    inputs = layer_inputs(SMALL, dtype=dtype)
    torch.library.opcheck(torch.ops.qkv_rope.forward.default, (*inputs, 4, 2, style, None))
    plain = [tensor.to(dtype) for tensor in tensors(SMALL)]
    for needs in ([True] * 4, [True, False, False, True]):
        torch.library.opcheck(torch.ops.qkv_rope.backward.default, (*plain, needs, style, None))


@pytest.mark.parametrize("style", ["half-split", "interleaved"])
def test_gradcheck(style):
    inputs = layer_inputs(SMALL, dtype=torch.float64)
    cos, sin = inputs[4:]
    assert torch.autograd.gradcheck(lambda *x: qkv_rope.qkv_rope(*x, cos, sin, 4, 2, style), inputs[:4])


def test_only_what_needs_a_gradient_is_computed(monkeypatch):
    asked = []
    native = _torch._native.backward

    class Spy:
        @staticmethod
        def backward(*arguments):
            asked.append(arguments[2])
            return native(*arguments)

    monkeypatch.setattr(_torch, "_native", Spy)
    inputs = layer_inputs(SMALL, frozen=(1, 3))
    sum(output.sum() for output in qkv_rope.qkv_rope(*inputs, 4, 2)).backward()
    assert asked == [(1, 0, 1, 0)]
    assert inputs[1].grad is None and inputs[2].grad is not None


def test_tables_get_no_gradient():
    inputs = layer_inputs(SMALL)
    inputs[4].requires_grad_()
    with pytest.raises(ValueError, match="cos: requires grad"):
        qkv_rope.qkv_rope(*inputs, 4, 2)
    query, _, _ = torch.ops.qkv_rope.forward(*inputs, 4, 2, "half-split", None)
    with pytest.raises(RuntimeError, match="no gradient of the rotary tables"):
        query.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivatives_are_refused(dtype):
    inputs = layer_inputs(SMALL, dtype=dtype)
    query, _, _ = qkv_rope.qkv_rope(*inputs, 4, 2)
    (first,) = torch.autograd.grad(query.pow(2).sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated once only"):
        first.sum().backward()


def test_unused_outputs_and_one_layer_twice():
    inputs = layer_inputs(SMALL)
    _, _, value = qkv_rope.qkv_rope(*inputs, 4, 2)
    query, _, _ = qkv_rope.qkv_rope(*inputs, 4, 2)
    (value.sum() + query.sum()).backward()
    double = layer_inputs(SMALL, dtype=torch.float64)
    _, _, value = eager(*double, 4, 2)
    query, _, _ = eager(*double, 4, 2)
    (value.sum() + query.sum()).backward()
    assert not inputs[2].grad.any() and double[2].grad is None, "as of any function: zeros for an unused output"
    for index in (0, 1, 3):
        torch.testing.assert_close(inputs[index].grad.double(), double[index].grad, rtol=1e-4, atol=1e-4)


def test_wrong_shapes_are_named():
    inputs = layer_inputs(SMALL)
    for index, tensor, text in [
        (0, inputs[0][0], "hidden_states: found shape"),
        (1, inputs[1][:-1], "q_weight: found shape"),
        (2, inputs[2][:-1], "k_weight: found shape"),
        (3, inputs[3][:, :-1], "v_weight: found shape"),
        (4, inputs[4][:, :-1], "cos: found shape"),
        (5, inputs[5][..., :2], "sin: found R = 2"),
    ]:
        with pytest.raises(ValueError, match=text):
            qkv_rope.qkv_rope(*inputs[:index], tensor, *inputs[index + 1 :], 4, 2)
    with pytest.raises(ValueError, match="style: found 'neox'"):
        qkv_rope.qkv_rope(*inputs, 4, 2, "neox")


def test_autocast_computes_in_float32():
    inputs = layer_inputs(SMALL)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        query, key, value = qkv_rope.qkv_rope(inputs[0].bfloat16(), *inputs[1:], 4, 2)
    assert query.dtype == key.dtype == value.dtype == torch.float32
    query.sum().backward()
    assert inputs[1].grad.dtype == torch.float32


def test_checkpointing_and_deterministic_algorithms():
    from torch.utils.checkpoint import checkpoint

    found = []
    torch.use_deterministic_algorithms(True)
    try:
        for use_reentrant in (None, False, True):
            inputs = layer_inputs(SMALL)
            if use_reentrant is None:
                outputs = qkv_rope.qkv_rope(*inputs, 4, 2)
            else:
                outputs = checkpoint(qkv_rope.qkv_rope, *inputs, 4, 2, use_reentrant=use_reentrant)
            sum(output.sum() for output in outputs).backward()
            found.append([tensor.grad for tensor in inputs[:4]])
    finally:
        torch.use_deterministic_algorithms(False)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_a_break(backend):
    if backend == "inductor" and shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("inductor needs a C++ compiler")

    def step(hidden, wq, wk, wv, cos, sin):
        return sum(output.square().sum() for output in qkv_rope.qkv_rope(hidden, wq, wk, wv, cos, sin, 4, 2))

    torch._dynamo.reset()
    graphs = torch._dynamo.testing.CompileCounterWithBackend(backend)
    compiled = torch.compile(step, fullgraph=True, dynamic=True, backend=graphs)
    for seq in (5, 9, 14):
        problem = Problem(2, seq, 12, 4, 2, 6, 4, "half-split")
        one, other = layer_inputs(problem), layer_inputs(problem)
        compiled(*one).backward()
        step(*other).backward()
        for compiled_input, plain_input in zip(one[:4], other[:4]):
            torch.testing.assert_close(compiled_input.grad, plain_input.grad)
    assert graphs.frame_count == 1, "one graph for all lengths"


def test_the_default_precision_follows_what_pytorch_allows():
    class OnGpu:
        is_cuda = True

    assert _functional.default_precision(torch.zeros(1)) == "default"
    assert _functional.default_precision(np.zeros(1)) == "default"
    found = {}
    try:
        found["untouched"] = _functional.default_precision(OnGpu())
        for setting in ("high", "medium", "highest"):
            torch.set_float32_matmul_precision(setting)
            found[setting] = _functional.default_precision(OnGpu())
        for allowed in (True, False):
            torch.backends.cuda.matmul.allow_tf32 = allowed
            found[allowed] = _functional.default_precision(OnGpu())
        if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
            torch.backends.cuda.matmul.fp32_precision = "tf32"
            assert _functional.default_precision(OnGpu()) == "fast"
            torch.backends.cuda.matmul.fp32_precision = "ieee"
    finally:
        torch.set_float32_matmul_precision("highest")
    split, fast = "split", "fast"
    assert found == {"untouched": split, "high": fast, "medium": fast, "highest": split, True: fast, False: split}


def test_a_precision_for_gpus_is_no_mistake_on_the_cpu():
    inputs = layer_inputs(SMALL)
    grads = tensors(SMALL)[:3]
    exact = gradients(qkv_rope.qkv_rope, inputs, SMALL, grads)
    loose = gradients(functools.partial(qkv_rope.qkv_rope, precision="fast"), inputs, SMALL, grads)
    assert all(torch.equal(one, other) for one, other in zip(exact, loose))
    with pytest.raises(ValueError, match="precision: found 'tf32', expected one of"):
        qkv_rope.qkv_rope(*inputs, 4, 2, precision="tf32")
    with pytest.raises(ValueError, match="its precision is ieee"):
        qkv_rope.backward(*tensors(SMALL), precision="split")


def test_types_are_strict():
    mypy = pytest.importorskip("mypy.api", reason="mypy is not installed: python/ci.sh --torch runs this")
    said, errors, status = mypy.run(["--strict", "--no-incremental", "--package", "qkv_rope"])
    assert status == 0, said + errors


def test_two_threads_of_autograd():
    problem = Problem(1, 300, 64, 4, 2, 16, 16, "half-split")
    wanted = gradients(qkv_rope.qkv_rope, layer_inputs(problem), problem, tensors(problem)[:3])
    wrong = []

    def work():
        for _ in range(10):
            found = gradients(qkv_rope.qkv_rope, layer_inputs(problem), problem, tensors(problem)[:3])
            wrong.extend(1 for one, other in zip(found, wanted) if not torch.equal(one, other))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
def test_tensor_parallel_and_ddp_on_two_processes():
    said = subprocess.run(
        [sys.executable, EXAMPLES / "distributed.py", "--processes", "2"], capture_output=True, text=True, timeout=120
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("2 processes on cpu (gloo), gradients within") == 2, said.stdout


def test_training_ends_where_pytorch_alone_does(tmp_path):
    drawing = tmp_path / "loss.svg"
    said = subprocess.run(
        [sys.executable, EXAMPLES / "train.py", "--steps", "20", "--svg", drawing], capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "qkv_rope, ieee: losses within" in said.stdout
    assert drawing.read_text().count("<polyline") == 2


def test_curves_that_part_are_found():
    sys.path.insert(0, str(EXAMPLES))
    try:
        import train
    finally:
        sys.path.remove(str(EXAMPLES))
    reference = [3.0, 2.0, 1.0]
    close, far = [3.0, 2.0, 1.000009], [3.0, 2.0, 1.00002]
    assert train.judge({"PyTorch, f32": reference, "qkv_rope, ieee": close})["qkv_rope, ieee"] < 1e-5
    with pytest.raises(AssertionError, match="qkv_rope, split: losses differ from PyTorch's by 2.0e-05"):
        train.judge({"PyTorch, f32": reference, "qkv_rope, split": far})
    gpu = {"PyTorch, f32": reference, "qkv_rope, fast": far, "PyTorch, TF32": [3.0, 2.0, 1.00003]}
    assert train.judge(gpu)["qkv_rope, fast"] > 1e-5
    with pytest.raises(AssertionError, match="qkv_rope, fast"):
        train.judge({**gpu, "PyTorch, TF32": close})


GPU_SCRIPT = Path(__file__).resolve().parents[2] / "bench" / "gpu" / "training"


def test_the_gpu_script_says_what_is_missing(tmp_path):
    try:
        qkv_rope.gpu()
    except RuntimeError as error:
        missing = str(error)
    else:
        pytest.skip("this machine has a GPU")
    said = subprocess.run([sys.executable, GPU_SCRIPT, tmp_path / "out.json"], capture_output=True, text=True)
    assert (said.returncode, said.stderr.strip()) == (2, missing)


def test_the_gpu_script_judges():
    judge = (
        "import cases, torch\n"
        "cases.OPTIONS.device, cases.OPTIONS.quick = 'cpu', True\n"
        "cases.BOUNDS.clear()\n"
        "cases.BOUNDS['ieee'] = 2e-6\n"
        "import right\n"
        "found = right.equality()\n"
        "assert found['problems'] == 20 and not found['fast_with_cancelling_sums'], found\n"
        "inputs = cases.tensors(cases.Problem(2, 9, 11, 4, 2, 8, 6, 'interleaved'), 1)\n"
        "problem = cases.Problem(2, 9, 11, 4, 2, 8, 6, 'interleaved')\n"
        "for wanted, size in zip(cases.autograd(problem, inputs), cases.magnitudes(problem, inputs)):\n"
        "    assert (wanted.abs() <= size * (1 + 1e-12)).all()\n"
        "    assert not cases.beyond_rounding(wanted.float(), wanted, size)\n"
        "    assert cases.beyond_rounding((wanted + size / 500).float(), wanted, size)\n"
        "cases.BOUNDS['ieee'] = 1e-9\n"
        "try:\n"
        "    right.equality()\n"
        "except AssertionError as error:\n"
        "    assert 'ieee' in str(error)\n"
        "else:\n"
        "    raise SystemExit('a bound that cannot hold held')\n"
    )
    said = subprocess.run([sys.executable, "-c", judge], cwd=GPU_SCRIPT, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr

"""Proves and times the Python package on this machine's NVIDIA GPU, and writes one JSON, and the loss
curves as an SVG beside it.

    python bench/gpu/training.py OUT.json [--commit ID] [--c-example PROGRAM] [--skip PART,...] [--quick]

Needs the wheel (`pip install ./python`), PyTorch with CUDA and NumPy; uses CuPy, JAX and transformers where they are.
Each part's failure is recorded beside the others' results. Exit code 1 when one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import statistics
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import torch

import qkv_rope

PYTHON = Path(__file__).resolve().parents[2] / "python"
sys.path[:0] = [str(PYTHON / "examples"), str(PYTHON / "tests")]

import llama  # noqa: E402
import train  # noqa: E402
from conftest import Problem  # noqa: E402

BOUNDS = {"split": 2e-6, "fast": 4e-4}
GPU = torch.device("cuda", 0)
QUICK = False
DRAWING = Path("training.svg")


def tensors(problem: Problem, seed: int) -> list[torch.Tensor]:
    return [torch.from_numpy(array).to(GPU) for array in problem.inputs(np.random.default_rng(seed))]


def rotated(x, cos, sin, style):
    rotary, half = cos.shape[-1], cos.shape[-1] // 2
    head = x[..., :rotary]
    if style == "half-split":
        partner = torch.cat((-head[..., half:], head[..., :half]), -1)
    else:
        partner = torch.stack((-head[..., 1::2], head[..., 0::2]), -1).flatten(-2)
    return torch.cat((head * cos[:, None] + partner * sin[:, None], x[..., rotary:]), -1)


def layer(hidden, wq, wk, wv, cos, sin, heads, kv_heads, style):
    split = lambda weight, count: (hidden @ weight.t()).unflatten(-1, (count, -1)).transpose(1, 2)
    return rotated(split(wq, heads), cos, sin, style), rotated(split(wk, kv_heads), cos, sin, style), split(wv, kv_heads)


def autograd(problem: Problem, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """PyTorch's own gradients in float64."""
    grads, leaves, tables = inputs[:3], inputs[3:7], inputs[7:]
    leaves = [leaf.double().requires_grad_() for leaf in leaves]
    outputs = layer(*leaves, *(table.double() for table in tables), problem.heads, problem.kv_heads, problem.style)
    return list(torch.autograd.grad(outputs, leaves, [grad.double() for grad in grads]))


def apart(found, wanted) -> float:
    """Normwise difference; NaN and wrong shapes count as infinite."""
    assert found.shape == wanted.shape, f"{list(found.shape)} is not {list(wanted.shape)}"
    scale = wanted.double().norm().item()
    off = (found.double() - wanted.double()).norm().item()
    return 0.0 if off == 0 else off / scale if off == off and scale > 0 else float("inf")


def beyond_rounding(found, wanted, magnitude) -> bool:
    """Whether an element is further off than rounding both factors of each product to 11 bits can move it."""
    return bool(((found.double() - wanted).abs() > 2.0**-10 * 1.01 * magnitude).any())


def magnitudes(problem: Problem, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """|U| times |W|, and |U| transposed times |X|: what the terms of each gradient's sums come to without their signs."""
    *grads, hidden = (tensor.double() for tensor in inputs[:4])
    weights, tables = ([tensor.double() for tensor in part] for part in (inputs[4:7], inputs[7:]))
    rows = []
    for index, grad in enumerate(grads):
        leaf = torch.zeros_like(grad, requires_grad=True)
        turned = rotated(leaf, *tables, problem.style) if index < 2 else leaf
        (unrotated,) = torch.autograd.grad(turned, leaf, grad)
        rows.append(unrotated.abs().transpose(1, 2).flatten(2))
    of_hidden = sum(row @ weight.abs() for row, weight in zip(rows, weights))
    return [of_hidden, *(row.flatten(0, 1).t() @ hidden.flatten(0, 1).abs() for row in rows)]


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other))


def equality() -> dict:
    """Random problems against PyTorch's autograd in float64.

    The normwise bounds are for sums of many independent terms. Where terms cancel in a handful of sums (an expanded
    gradient times a few columns), `fast` is held to what rounding can do to each element instead, and the problem listed.
    """
    count = 20 if QUICK else 160
    largest = {name: 0.0 for name in BOUNDS}
    cancelling = []
    for seed in range(count):
        rng = np.random.default_rng(5000 + seed)
        problem = Problem.random(rng)
        if seed % 8 == 7:  # the kernels for whole aligned heads
            problem = Problem(2, int(rng.integers(1, 300)), 4 * int(rng.integers(1, 64)), 4, 2, 64, 64, "half-split")
        inputs = tensors(problem, seed)
        if seed % 4 == 1:
            inputs[:3] = [grad.transpose(1, 2).contiguous().transpose(1, 2) for grad in inputs[:3]]
        elif seed % 4 == 2:
            inputs[:3] = [grad[:, :1, :1, :1].expand(grad.shape) for grad in inputs[:3]]
        elif seed % 4 == 3:
            for index in (0, 3, 4, 8):
                room = torch.empty(inputs[index].numel() + 1, device=GPU)[1:]
                inputs[index] = room.view(inputs[index].shape).copy_(inputs[index])
        wanted = autograd(problem, inputs)
        needs = [name for name in qkv_rope.Gradients._fields if rng.random() < 0.8] or ["grad_hidden_states"]
        for precision, bound in BOUNDS.items():
            found = qkv_rope.backward(*inputs, style=problem.style, precision=precision, needs=needs)
            for name, one, other in zip(found._fields, found, wanted):
                assert (one is not None) == (name in needs), (problem, name)
                if one is not None:
                    off = apart(one, other)
                    if off <= bound:
                        largest[precision] = max(largest[precision], off)
                        continue
                    magnitude = magnitudes(problem, inputs)[qkv_rope.Gradients._fields.index(name)]
                    right = precision == "fast" and not beyond_rounding(one, other, magnitude)
                    assert right, (seed, problem, precision, name, off)
                    cancelling.append({"seed": seed, "output": name, "normwise_error": off})
    assert len(cancelling) <= count // 40, cancelling
    return {"problems": count, "largest_normwise_error": largest, "fast_with_cancelling_sums": cancelling}


LARGE = Problem(batch=2, seq=512, hidden=1536, heads=24, kv_heads=4, head_dim=96, rotary=96, style="half-split")


def operator() -> dict:
    """The operator's gradients, its default precision, accumulation, errors."""
    problem = Problem(2, 100, 96, 4, 2, 32, 32, "half-split")
    inputs = tensors(problem, 1)
    wanted = autograd(problem, inputs)

    def gradients():
        leaves = [leaf.clone().requires_grad_() for leaf in inputs[3:7]]
        return torch.autograd.grad(qkv_rope.qkv_rope(*leaves, *inputs[7:], 4, 2), leaves, inputs[:3])

    exact = max(map(apart, gradients(), wanted))
    assert exact <= BOUNDS["split"], exact
    loose = {}
    for setting, allow in (("high", lambda: torch.set_float32_matmul_precision("high")),
                           ("allow_tf32", lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True))):  # fmt: skip
        allow()
        loose[setting] = max(map(apart, gradients(), wanted))
        torch.set_float32_matmul_precision("highest")
        assert BOUNDS["split"] < loose[setting] <= BOUNDS["fast"], loose
    again = max(map(apart, gradients(), wanted))
    assert again == exact
    main_grad = torch.randn_like(inputs[4])
    fresh = qkv_rope.backward(*inputs)
    total = main_grad + fresh.grad_q_weight
    qkv_rope.backward(*inputs, out={"grad_q_weight": main_grad}, accumulate=["grad_q_weight"])
    assert torch.equal(main_grad, total), "exactly one addition"
    strided = torch.empty(64, 200, device=GPU)[:, 3:99]
    qkv_rope.backward(*inputs, out={"grad_k_weight": strided})
    assert torch.equal(strided, fresh.grad_k_weight)
    errors = []
    for change, text in (
        (lambda x: x.__setitem__(4, x[4].cpu()), "q_weight: found it on device cpu, expected cuda:0 as grad_query"),
        (lambda x: x.__setitem__(7, x[7].double()), "cos: found dtype torch.float64"),
        (lambda x: x.__setitem__(5, x[5][1:]), "k_weight: found shape"),
    ):
        wrong = list(inputs)
        change(wrong)
        try:
            qkv_rope.backward(*wrong)
            raise AssertionError(f"accepted: {text}")
        except (TypeError, ValueError) as error:
            assert text in str(error), str(error)
            errors.append(str(error))
    empty = qkv_rope.backward(*tensors(Problem(0, 5, 8, 2, 1, 4, 4, "half-split"), 0))
    assert empty[0].shape == (0, 5, 8) and not any(gradient.any() for gradient in empty[1:])
    return {"default": exact, "tf32_allowed": loose, "errors": errors}


def bits() -> dict:
    """The same bits every time, on any stream and at any address."""
    inputs = tensors(LARGE, 2)
    moved = [torch.empty(tensor.numel() + 1, device=GPU)[1:].view(tensor.shape).copy_(tensor) for tensor in inputs]
    torch.use_deterministic_algorithms(True)
    found = {}
    for precision in BOUNDS:
        first = qkv_rope.backward(*inputs, precision=precision)
        found[precision] = {
            "repeats": all(same(first, qkv_rope.backward(*inputs, precision=precision)) for _ in range(50)),
            "odd_addresses": same(first, qkv_rope.backward(*moved, precision=precision)),
        }
    torch.use_deterministic_algorithms(False)
    assert all(all(result.values()) for result in found.values()), found
    return found


def streams() -> dict:
    """Side streams, and two threads at once on streams of their own."""
    inputs = tensors(LARGE, 3)
    wanted = qkv_rope.backward(*inputs)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)  # about 10 ms, so that a call on another stream would read too early
        late = [torch.empty_like(tensor).copy_(tensor) for tensor in inputs]
        begin = time.perf_counter()
        found = qkv_rope.backward(*late)
        enqueued = time.perf_counter() - begin
    waited = not side.query()
    side.synchronize()
    assert same(found, wanted)
    assert waited, "the call waited for its stream"
    wrong = []

    def work():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                if not same(qkv_rope.backward(*inputs), wanted):
                    wrong.append(1)
        stream.synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    return {"enqueue_us_while_the_stream_is_busy": enqueued * 1e6, "threads": 4}


def graphs() -> dict:
    """Captured in a CUDA graph, also as the first call of its shape, and replayed on new contents."""
    found = {}
    for precision in BOUNDS:
        for first_call in (False, True):
            problem = Problem(1, 256 + 8 * first_call, 512, 8, 2, 64, 64, "half-split")
            inputs = tensors(problem, 4)
            if not first_call:
                qkv_rope.backward(*inputs, precision=precision)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                outputs = qkv_rope.backward(*inputs, precision=precision)
            fresh = tensors(problem, 5)
            for tensor, other in zip(inputs, fresh):
                tensor.copy_(other)
            graph.replay()
            torch.cuda.synchronize()
            right = same(outputs, qkv_rope.backward(*fresh, precision=precision))
            found[f"{precision}, {'first' if first_call else 'later'} call"] = right
    assert all(found.values()), found
    model = llama.Block(256, 8, 2, 32, 512, qkv_rope.qkv_rope).to(GPU)
    x = torch.randn(2, 64, 256, device=GPU, requires_grad=True)
    tables = llama.tables(64, 32, GPU)
    whole = torch.cuda.make_graphed_callables(model, (x, *tables))
    whole(x, *tables).square().sum().backward()
    graphed = [parameter.grad.clone() for parameter in model.parameters()]
    found["a block, forward and backward"] = all(bool(gradient.isfinite().all()) for gradient in graphed)
    assert all(found.values()), found
    return found


def memory() -> dict:
    """Peak beyond what was there, of one layer's backward pass, and of a step of the block."""
    found = {}
    for case in (Problem(4, 512, 1536, 24, 4, 96, 96, "half-split"), Problem(1, 8192, 1536, 24, 4, 96, 96, "half-split")):
        grads, leaves, tables = (part := tensors(case, 6))[:3], part[3:7], part[7:]
        for leaf in leaves:
            leaf.requires_grad_()
        peaks = {}
        for name, project in projections().items():
            with tf32(name):
                for _ in range(2):
                    outputs = project(*leaves, *tables, case.heads, case.kv_heads)
                    with peak(peaks, name):
                        torch.autograd.grad(outputs, leaves, grads)
                    del outputs
        found[f"backward, T = {case.batch * case.seq}, bytes"] = peaks
    return found


@contextlib.contextmanager
def peak(peaks: dict, name: str):
    """Most bytes that were asked for at once beyond those of the start; what the allocator rounds up is its own affair."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    yield
    torch.cuda.synchronize()
    peaks[name] = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before


def projections() -> dict:
    of = lambda precision: functools.partial(qkv_rope.qkv_rope, precision=precision)
    return {"eager_f32": llama.eager, "ours_split": of("split"), "eager_tf32": llama.eager, "ours_fast_tf32": of("fast")}


@contextlib.contextmanager
def tf32(name: str):
    torch.set_float32_matmul_precision("high" if name.endswith("tf32") else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


def steps() -> dict:
    """Forward, backward and optimizer of a 4-layer block, contestants in turn; peak memory of a step."""
    batch, seq, rounds = 2, 2048, 3 if QUICK else 12
    sizes = dict(hidden=1536, heads=24, kv_heads=4, head_dim=96, inner=4096)
    contestants = {}
    for name, project in projections().items():
        torch.manual_seed(0)
        blocks = torch.nn.ModuleList(llama.Block(project=project, **sizes) for _ in range(4)).to(GPU)
        contestants[name] = (blocks, torch.optim.SGD(blocks.parameters(), lr=1e-6))
    x = torch.randn(batch, seq, 1536, device=GPU)
    tables = llama.tables(seq, 96, GPU)

    def step(name):
        blocks, optimizer = contestants[name]
        optimizer.zero_grad()
        y = x
        for block in blocks:
            y = block(y, *tables)
        y.square().mean().backward()
        optimizer.step()

    samples = {name: [] for name in contestants}
    peaks = {}
    for index in range(rounds + 2):
        for name in list(contestants)[:: 1 if index % 2 else -1]:
            with tf32(name):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                with peak(peaks, name):
                    start.record()
                    step(name)
                    end.record()
                if index >= 2:
                    samples[name].append(round(start.elapsed_time(end) * 1e3, 1))
    median = {name: statistics.median(taken) for name, taken in samples.items()}
    ratio = lambda one, other: statistics.median(a / b for a, b in zip(samples[one], samples[other]))
    for ours, theirs in (("ours_split", "eager_f32"), ("ours_fast_tf32", "eager_tf32")):
        assert peaks[ours] <= peaks[theirs], peaks
    return {
        "block": {"layers": 4, "batch": batch, "seq": seq, **sizes},
        "samples_us": samples,
        "median_us": median,
        "eager_f32 / ours_split": ratio("eager_f32", "ours_split"),
        "eager_tf32 / ours_fast_tf32": ratio("eager_tf32", "ours_fast_tf32"),
        "peak_bytes_of_a_step": peaks,
    }


def layers() -> dict:
    """The backward pass of one layer alone, contestants in turn, by events; and a call's time on the host at T = 1."""
    found = {}
    for seq, batch in ((512, 1), (2048, 1), (2048, 4)):
        case = Problem(batch, seq, 1536, 24, 4, 96, 96, "half-split")
        part = tensors(case, 7)
        grads, leaves, tables = part[:3], [leaf.requires_grad_() for leaf in part[3:7]], part[7:]
        samples = {name: [] for name in projections()}
        outputs = {name: project(*leaves, *tables, 24, 4) for name, project in projections().items()}
        for index in range(4 if QUICK else 24):
            for name in list(samples)[:: 1 if index % 2 else -1]:
                with tf32(name):
                    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    torch.cuda._sleep(1_000_000)  # hides the host's time
                    start.record()
                    torch.autograd.grad(outputs[name], leaves, grads, retain_graph=True)
                    end.record()
                    torch.cuda.synchronize()
                    if index >= 4 or QUICK:
                        samples[name].append(round(start.elapsed_time(end) * 1e3, 1))
        found[f"T = {seq * batch}, median us"] = {name: statistics.median(taken) for name, taken in samples.items()}
    tiny = tensors(Problem(1, 1, 8, 1, 1, 4, 4, "half-split"), 0)
    leaves = [leaf.requires_grad_() for leaf in tiny[3:7]]
    outputs = {name: project(*leaves, *tiny[7:], 1, 1) for name, project in (("ours", qkv_rope.qkv_rope), ("eager", llama.eager))}
    backward = lambda name: torch.autograd.grad(outputs[name], leaves, tiny[:3], retain_graph=True)
    on_cpu = [tensor.detach().cpu() for tensor in tiny]
    found["host time at T = 1, median us"] = {
        "qkv_rope.backward": host_time(lambda: qkv_rope.backward(*tiny)),
        "qkv_rope.backward on the CPU": host_time(lambda: qkv_rope.backward(*on_cpu)),
        "backward step of the operator": host_time(lambda: backward("ours")),
        "backward step of eager": host_time(lambda: backward("eager")),
    }
    return found


def host_time(work) -> float:
    samples = []
    for index in range(1500):
        begin = time.perf_counter()
        work()
        samples.append((time.perf_counter() - begin) * 1e6)
        if index % 50 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    return round(statistics.median(samples[500:]), 1)


def many_shapes() -> dict:
    """More shapes than sessions are kept: results stay right, and so do graphs that were captured before."""
    problem = Problem(1, 33, 64, 2, 1, 32, 32, "half-split")
    inputs = tensors(problem, 10)
    wanted = qkv_rope.backward(*inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = qkv_rope.backward(*inputs)
    begin = time.perf_counter()
    count = 600
    for seq in range(1, count + 1):
        some = tensors(Problem(1, seq, 8, 2, 1, 4, 4, "half-split"), seq)
        found = qkv_rope.backward(*some)
        if seq % 50 == 0:
            assert apart(found[0], autograd(Problem(1, seq, 8, 2, 1, 4, 4, "half-split"), some)[0]) <= BOUNDS["split"]
    taken = (time.perf_counter() - begin) / count
    for output in outputs:
        output.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert same(outputs, wanted)
    return {"shapes": count, "first_call_of_a_shape_us": round(taken * 1e6, 1)}


def forked() -> dict:
    """A child of a process that used the GPU is told so; the CPU works there."""
    import os

    on_cpu = [tensor.cpu() for tensor in tensors(Problem(1, 5, 8, 2, 1, 4, 4, "half-split"), 0)]
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            qkv_rope.backward(*on_cpu, threads=1)
            qkv_rope.gpu(0)
            said = "no error"
        except RuntimeError as error:
            said = str(error)
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 4096).decode()
    assert "before fork()" in said, said
    return {"said": said}


def distributed() -> dict:
    """The distributed example on NCCL, with as many processes as there are GPUs."""
    program = PYTHON / "examples" / "distributed.py"
    command = [sys.executable, str(program), "--backend", "nccl", "--processes", str(torch.cuda.device_count())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    return {"said": done.stdout.strip().splitlines()}


def training() -> dict:
    """200 steps of a tiny model: losses beside PyTorch's float32 and TF32."""
    found = train.curves(20 if QUICK else 200, "cuda")
    differences = train.judge(found)
    train.write(DRAWING, train.svg(found, differences))
    return {"differences": differences, "losses": found}


def other_libraries() -> dict:
    """CuPy and JAX by DLPack."""
    problem = Problem(2, 40, 64, 4, 2, 16, 16, "half-split")
    inputs = tensors(problem, 8)
    wanted = qkv_rope.backward(*inputs)
    found = {}
    try:
        import cupy

        with cupy.cuda.Stream(non_blocking=True):
            arrays = [cupy.asarray(tensor.cpu().numpy()) for tensor in inputs]
            results = qkv_rope.backward(*arrays)
            assert all(isinstance(result, cupy.ndarray) for result in results)
            found["cupy"] = all(np.array_equal(one.get(), other.cpu().numpy()) for one, other in zip(results, wanted))
    except ImportError as error:
        found["cupy"] = f"not there: {error}"
    try:
        import os

        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        if jax.default_backend() == "gpu":
            arrays = [jax.numpy.asarray(tensor.cpu().numpy()) for tensor in inputs]
            results = qkv_rope.backward(*arrays)
            assert all(isinstance(result, jax.Array) for result in results)
            found["jax"] = all(np.array_equal(np.asarray(a), b.cpu().numpy()) for a, b in zip(results, wanted))
        else:
            found["jax"] = f"not there: {jax.default_backend()} only"
    except ImportError as error:
        found["jax"] = f"not there: {error}"
    assert False not in found.values(), found
    return found


def hugging_face() -> dict:
    """patch_llama: gradients of a tiny Llama beside those of the unpatched one."""
    import transformers

    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **sizes)).to(GPU)
    tokens = torch.arange(22, device=GPU).reshape(2, 11)

    def gradients():
        model.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    before = gradients()
    undo = qkv_rope.patch_llama(model)
    largest = max(map(apart, gradients(), before))
    undo()
    assert largest <= 1e-5, largest
    return {"transformers": transformers.__version__, "largest_normwise_difference": largest}


def compiled() -> dict:
    """torch.compile with its default backend, whole graph, two lengths."""
    step = lambda *x: sum(output.square().sum() for output in qkv_rope.qkv_rope(*x, 4, 2))
    whole = torch.compile(step, fullgraph=True, dynamic=True)
    largest = 0.0
    for seq in (64,) if QUICK else (64, 96):
        inputs = tensors(Problem(2, seq, 64, 4, 2, 16, 16, "half-split"), 9)[3:]
        gradients = []
        for function in (whole, step):
            leaves = [leaf.clone().requires_grad_() for leaf in inputs[:4]]
            gradients.append(torch.autograd.grad(function(*leaves, *inputs[4:]), leaves))
        largest = max([largest, *map(apart, *gradients)])
    assert largest <= 1e-5, largest
    return {"largest_normwise_difference": largest}


def c_example(program: str) -> dict:
    """The C example with the driver's pointers."""
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "GPU" in done.stdout, (done.returncode, done.stdout, done.stderr)
    return {"said": done.stdout.strip().splitlines()}


def facts(commit: str) -> dict:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,temperature.gpu", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit,
        "gpu": qkv_rope.gpu(0),
        "nvidia_smi": driver,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "qkv_rope": qkv_rope.__version__,
    }


def main() -> int:
    global QUICK, DRAWING
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--c-example")
    parser.add_argument("--skip", default="", help="parts to leave out, separated by commas")
    parser.add_argument("--quick", action="store_true", help="fewer samples and problems")
    arguments = parser.parse_args()
    QUICK, DRAWING = arguments.quick, arguments.out.with_suffix(".svg")
    parts = [equality, operator, bits, streams, graphs, memory, layers, steps, training]
    parts += [many_shapes, forked, other_libraries, hugging_face, compiled, distributed]
    if arguments.c_example:
        parts.append(functools.update_wrapper(functools.partial(c_example, arguments.c_example), c_example))
    parts = [part for part in parts if part.__name__ not in arguments.skip.split(",")]
    record = {"facts": facts(arguments.commit), "parts": {}}
    failed = []
    for part in parts:
        begin = time.perf_counter()
        try:
            result = part()
        except Exception as error:
            failed.append(part.__name__)
            result = {"failed": f"{type(error).__name__}: {error}"}
            traceback.print_exc()
        record["parts"][part.__name__] = {**result, "seconds": round(time.perf_counter() - begin, 2)}
        shown = {key: value for key, value in result.items() if key not in ("losses", "samples_us")}
        print(f"{part.__name__}: {json.dumps(shown)}", flush=True)
        # Whole after every part: a later one may be stopped by a limit of the machine.
        train.write(arguments.out, json.dumps(record, indent=1) + "\n")
    print("failed: " + ", ".join(failed) if failed else "all parts passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

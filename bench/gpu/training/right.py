"""What must be right: gradients, bits, streams, CUDA graphs, many shapes, forks."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import torch
from cases import BOUNDS, LARGE, OPTIONS, Problem, apart, autograd, beyond_rounding, magnitudes, same, tensors

import qkv_rope

import llama  # isort: skip  # found through cases


def equality() -> dict:
    """Random problems against PyTorch's autograd in float64.

    The normwise bounds are for sums of many independent terms. Where terms cancel in a handful of sums (an expanded
    gradient times a few columns), `fast` is held to what rounding can do to each element instead, and the problem
    listed.
    """
    count = 20 if OPTIONS.quick else 160
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
                room = torch.empty(inputs[index].numel() + 1, device=OPTIONS.device)[1:]
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
    strided = torch.empty(64, 200, device=OPTIONS.device)[:, 3:99]
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
    moved = [
        torch.empty(tensor.numel() + 1, device=OPTIONS.device)[1:].view(tensor.shape).copy_(tensor) for tensor in inputs
    ]
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
    model = llama.Block(256, 8, 2, 32, 512, qkv_rope.qkv_rope).to(OPTIONS.device)
    x = torch.randn(2, 64, 256, device=OPTIONS.device, requires_grad=True)
    tables = llama.tables(64, 32, OPTIONS.device)
    whole = torch.cuda.make_graphed_callables(model, (x, *tables))
    whole(x, *tables).square().sum().backward()
    graphed = [parameter.grad.clone() for parameter in model.parameters()]
    found["a block, forward and backward"] = all(bool(gradient.isfinite().all()) for gradient in graphed)
    assert all(found.values()), found
    return found


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

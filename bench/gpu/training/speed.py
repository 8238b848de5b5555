"""What it costs: memory and time, beside PyTorch's own operations, and what training gives."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time

import torch
from cases import OPTIONS, Problem, tensors

import qkv_rope

import llama  # isort: skip  # found through cases
import train  # isort: skip


def projections() -> dict:
    of = lambda precision: functools.partial(qkv_rope.qkv_rope, precision=precision)
    return {
        "eager_f32": llama.eager,
        "ours_split": of("split"),
        "eager_tf32": llama.eager,
        "ours_fast_tf32": of("fast"),
    }


@contextlib.contextmanager
def tf32(name: str):
    torch.set_float32_matmul_precision("high" if name.endswith("tf32") else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision("highest")


@contextlib.contextmanager
def peak(peaks: dict, name: str):
    """Most bytes that were asked for at once beyond those of the start; what the allocator rounds up is its own affair."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    yield
    torch.cuda.synchronize()
    peaks[name] = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before


def memory() -> dict:
    """Peak beyond what was there, of one layer's backward pass, and of a step of the block."""
    found = {}
    for case in (
        Problem(4, 512, 1536, 24, 4, 96, 96, "half-split"),
        Problem(1, 8192, 1536, 24, 4, 96, 96, "half-split"),
    ):
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


def layers() -> dict:
    """The backward pass of one layer alone, contestants in turn, by events; and a call's time on the host at T = 1."""
    found = {}
    for seq, batch in ((512, 1), (2048, 1), (2048, 4)):
        case = Problem(batch, seq, 1536, 24, 4, 96, 96, "half-split")
        part = tensors(case, 7)
        grads, leaves, tables = part[:3], [leaf.requires_grad_() for leaf in part[3:7]], part[7:]
        samples = {name: [] for name in projections()}
        outputs = {name: project(*leaves, *tables, 24, 4) for name, project in projections().items()}
        for index in range(4 if OPTIONS.quick else 24):
            for name in list(samples)[:: 1 if index % 2 else -1]:
                with tf32(name):
                    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                    torch.cuda._sleep(1_000_000)  # hides the host's time
                    start.record()
                    torch.autograd.grad(outputs[name], leaves, grads, retain_graph=True)
                    end.record()
                    torch.cuda.synchronize()
                    if index >= 4 or OPTIONS.quick:
                        samples[name].append(round(start.elapsed_time(end) * 1e3, 1))
        found[f"T = {seq * batch}, median us"] = {name: statistics.median(taken) for name, taken in samples.items()}
    tiny = tensors(Problem(1, 1, 8, 1, 1, 4, 4, "half-split"), 0)
    leaves = [leaf.requires_grad_() for leaf in tiny[3:7]]
    outputs = {
        name: project(*leaves, *tiny[7:], 1, 1)
        for name, project in (("ours", qkv_rope.qkv_rope), ("eager", llama.eager))
    }
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


def steps() -> dict:
    """Forward, backward and optimizer of a 4-layer block, contestants in turn; peak memory of a step."""
    batch, seq, rounds = 2, 2048, 3 if OPTIONS.quick else 12
    sizes = dict(hidden=1536, heads=24, kv_heads=4, head_dim=96, inner=4096)
    contestants = {}
    for name, project in projections().items():
        torch.manual_seed(0)
        blocks = torch.nn.ModuleList(llama.Block(project=project, **sizes) for _ in range(4)).to(OPTIONS.device)
        contestants[name] = (blocks, torch.optim.SGD(blocks.parameters(), lr=1e-6))
    x = torch.randn(batch, seq, 1536, device=OPTIONS.device)
    tables = llama.tables(seq, 96, OPTIONS.device)

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


def training() -> dict:
    """200 steps of a tiny model: losses beside PyTorch's float32 and TF32."""
    found = train.curves(20 if OPTIONS.quick else 200, "cuda")
    differences = train.judge(found)
    train.write(OPTIONS.drawing, train.svg(found, differences))
    return {"differences": differences, "losses": found}

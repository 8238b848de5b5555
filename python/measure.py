"""The package's figures on this machine: overhead of a call, a training step beside PyTorch's own, import time.

    python python/measure.py [--threads 2]

Contestants take turns and the medians are printed, with the ratio inside each round, so that a drifting clock cancels.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import torch

import qkv_rope


def once(work) -> float:
    start = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start) / 1e3


def tensors(batch, seq, hidden, heads, kv_heads, head_dim):
    rows, kv_rows = heads * head_dim, kv_heads * head_dim
    grads = [torch.randn(batch, seq, count, head_dim).transpose(1, 2) for count in (heads, kv_heads, kv_heads)]
    weights = [torch.randn(count, hidden) for count in (rows, kv_rows, kv_rows)]
    tables = [torch.randn(1, seq, head_dim) for _ in range(2)]
    return grads, torch.randn(batch, seq, hidden), weights, tables


def eager(hidden, wq, wk, wv, cos, sin, heads, kv_heads):
    """As Hugging Face Llama has it."""

    def split(weight, count):
        return torch.nn.functional.linear(hidden, weight).unflatten(-1, (count, -1)).transpose(1, 2)

    def turn(x):
        half = x.shape[-1] // 2
        return x * cos[:, None] + torch.cat((-x[..., half:], x[..., :half]), -1) * sin[:, None]

    return turn(split(wq, heads)), turn(split(wk, kv_heads)), split(wv, kv_heads)


def overhead() -> None:
    grads, hidden, weights, tables = tensors(1, 1, 8, 1, 1, 4)
    for name, convert in (("PyTorch", lambda x: x), ("NumPy", lambda x: x.numpy())):
        arguments = [convert(tensor) for tensor in (*grads, hidden, *weights, *tables)]
        work = lambda: qkv_rope.backward(*arguments)
        samples = [once(work) for _ in range(5000)][500:]
        print(f"call at T = 1, {name}: {statistics.median(samples):.1f} us (tenth {sorted(samples)[len(samples) // 10]:.1f})")


def step(seq: int, rounds: int) -> None:
    heads, kv_heads = 24, 4
    grads, hidden, weights, tables = tensors(1, seq, 1536, heads, kv_heads, 96)
    leaves = [hidden.requires_grad_(), *(weight.requires_grad_() for weight in weights)]
    graphs = {
        "ours": qkv_rope.qkv_rope(*leaves, *tables, heads, kv_heads),
        "eager": eager(*leaves, *tables, heads, kv_heads),
    }
    backward = lambda name: torch.autograd.grad(graphs[name], leaves, grads, retain_graph=True)
    whole = {"ours": qkv_rope.qkv_rope, "eager": eager}
    both = lambda name: torch.autograd.grad(whole[name](*leaves, *tables, heads, kv_heads), leaves, grads)
    for what, work in (("backward", backward), ("forward and backward", both)):
        samples = {"ours": [], "eager": []}
        for index in range(rounds + 2):
            for name in ("ours", "eager") if index % 2 else ("eager", "ours"):
                taken = once(lambda: work(name))
                if index >= 2:
                    samples[name].append(taken)
        ratio = statistics.median(other / one for one, other in zip(samples["ours"], samples["eager"]))
        ours, theirs = (statistics.median(samples[name]) / 1e3 for name in ("ours", "eager"))
        print(f"{what} at T = {seq}: ours {ours:.1f} ms, eager {theirs:.1f} ms, eager / ours {ratio:.3f}")


def import_time() -> None:
    def run(code):
        return once(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    samples = [run("import qkv_rope") - run("pass") for _ in range(15)]
    print(f"import qkv_rope: {statistics.median(samples) / 1e3:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"PyTorch {torch.__version__}, {arguments.threads} threads, {qkv_rope.cpu()}")
    overhead()
    import_time()
    step(2048, arguments.rounds)


if __name__ == "__main__":
    main()

"""Problems, what they must give, and how far off a result is."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import torch

PYTHON = Path(__file__).resolve().parents[3] / "python"
sys.path[:0] = [str(PYTHON / "examples"), str(PYTHON / "tests")]

from conftest import Problem  # noqa: E402

BOUNDS = {"split": 2e-6, "fast": 4e-4}
"""Normwise error that each precision may have."""

LARGE = Problem(batch=2, seq=512, hidden=1536, heads=24, kv_heads=4, head_dim=96, rotary=96, style="half-split")


@dataclasses.dataclass
class Options:
    """What a run was asked for."""

    device: str = "cuda:0"
    quick: bool = False
    drawing: Path = Path("training.svg")
    c_example: str | None = None


OPTIONS = Options()


def tensors(problem: Problem, seed: int) -> list[torch.Tensor]:
    return [torch.from_numpy(array).to(OPTIONS.device) for array in problem.inputs(np.random.default_rng(seed))]


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
    return (
        rotated(split(wq, heads), cos, sin, style),
        rotated(split(wk, kv_heads), cos, sin, style),
        split(wv, kv_heads),
    )


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

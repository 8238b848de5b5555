"""The layer for PyTorch: a custom operator with autograd.

Two operators: ``qkv_rope::forward`` in PyTorch's own, whose gradient is ``qkv_rope::backward``, ours on float32
tensors of CPUs and NVIDIA GPUs and PyTorch's own otherwise.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, NoReturn, Optional

import torch
from torch import Tensor
from torch.nn import functional

from . import _native
from ._functional import PRECISIONS, default_precision

_STYLES = ("half-split", "interleaved")


def qkv_rope(
    hidden_states: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    num_heads: int,
    num_kv_heads: int,
    style: str = "half-split",
    precision: Optional[str] = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of an attention layer, the first two rotated.

    The forward pass is PyTorch's. The backward pass is this library's for float32 tensors on the CPU or one NVIDIA
    GPU, and computes only what needs a gradient; for other dtypes and devices it is PyTorch's. It can be
    differentiated once. Under autocast, everything is computed in float32.

    ``precision`` is that of the backward pass on GPUs, ``"split"`` or ``"fast"``; the default is as in ``backward``,
    by what PyTorch allows when the backward pass runs.

    Shapes:
        hidden_states: [B, S, E]
        q_weight, k_weight, v_weight: [H*D, E], [K*D, E], [K*D, E]
        cos, sin: [B, S, R] or [1, S, R], without gradient
        returns: [B, H, S, D], [B, K, S, D], [B, K, S, D]

    Raises:
        ValueError: shapes that contradict each other, an unknown style or precision, or cos or sin that require a
            gradient.
        RuntimeError: in a second derivative.
    """
    if torch.is_grad_enabled():
        for name, table in (("cos", cos), ("sin", sin)):
            if table.requires_grad:
                raise ValueError(f"{name}: requires grad, but no gradient of the rotary tables is computed")
    if style not in _STYLES:
        raise ValueError(f"style: found {style!r}, expected 'half-split' or 'interleaved'")
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision: found {precision!r}, expected one of {list(PRECISIONS)}")
    _check(hidden_states, q_weight, k_weight, v_weight, cos, sin, num_heads, num_kv_heads)
    query, key, value = torch.ops.qkv_rope.forward(
        hidden_states, q_weight, k_weight, v_weight, cos, sin, num_heads, num_kv_heads, style, precision
    )
    return query, key, value


def _check(
    hidden_states: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    if hidden_states.dim() != 3:
        raise ValueError(f"hidden_states: found shape {list(hidden_states.shape)}, expected [B, S, E]")
    batch, seq, hidden = hidden_states.shape
    if num_heads < 1 or num_kv_heads < 1:
        raise ValueError(f"num_heads, num_kv_heads: found {num_heads} and {num_kv_heads}, expected at least 1")
    if q_weight.dim() != 2 or q_weight.shape[1] != hidden or q_weight.shape[0] % (2 * num_heads) != 0:
        expected = f"[{num_heads}*D, {hidden}] with D even"
        raise ValueError(f"q_weight: found shape {list(q_weight.shape)}, expected {expected}")
    head_dim = q_weight.shape[0] // num_heads
    for name, weight in (("k_weight", k_weight), ("v_weight", v_weight)):
        if weight.dim() != 2 or weight.shape[0] != num_kv_heads * head_dim or weight.shape[1] != hidden:
            rows = num_kv_heads * head_dim
            raise ValueError(f"{name}: found shape {list(weight.shape)}, expected [{rows}, {hidden}]")
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dim() != 3 or table.shape[1] != seq or (table.shape[0] != 1 and table.shape[0] != batch):
            raise ValueError(f"{name}: found shape {list(table.shape)}, expected [{batch} or 1, {seq}, R]")
        if table.shape[2] % 2 != 0 or table.shape[2] > head_dim or table.shape[2] != cos.shape[2]:
            raise ValueError(f"{name}: found R = {table.shape[2]}, expected it even, at most {head_dim}, one for both")


def _partner(x: Tensor, style: str) -> Tensor:
    """P(x): -second, first of each pair. Its transpose is -P."""
    half = x.shape[-1] // 2
    sizes, dim = ((2, half), -2) if style == "half-split" else ((half, 2), -1)
    first, second = x.view(*x.shape[:-1], *sizes).unbind(dim)
    return torch.stack((-second, first), dim).flatten(-2)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, style: str, *, back: bool = False) -> Tensor:
    """The rotation of the first R elements of each head, or its transpose."""
    rotary = cos.shape[-1]
    head, tail = x[..., :rotary], x[..., rotary:]
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned = -_partner(head * sin, style) if back else _partner(head, style) * sin
    return torch.cat((head * cos + turned, tail), dim=-1)


def _heads(x: Tensor, heads: int) -> Tensor:
    batch, seq, rows = x.shape
    return x.view(batch, seq, heads, rows // heads).transpose(1, 2)


def _forward(
    hidden_states: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    num_heads: int,
    num_kv_heads: int,
    style: str,
    precision: Optional[str],
) -> tuple[Tensor, Tensor, Tensor]:
    query = _heads(functional.linear(hidden_states, q_weight), num_heads)
    key = _heads(functional.linear(hidden_states, k_weight), num_kv_heads)
    value = _heads(functional.linear(hidden_states, v_weight), num_kv_heads)
    return _rotate(query, cos, sin, style), _rotate(key, cos, sin, style), value


def _rows(grad: Tensor) -> Tensor:
    """[B, heads, S, D] as [B, S, heads*D]."""
    return grad.transpose(1, 2).flatten(2)


def _backward_in_pytorch(
    grads: tuple[Tensor, Tensor, Tensor],
    hidden_states: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    cos: Tensor,
    sin: Tensor,
    needs: list[bool],
    style: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    grad_query, grad_key, grad_value = grads
    turned = [_rotate(grad, cos, sin, style, back=True) for grad in (grad_query, grad_key)]
    rows = [_rows(grad) for grad in (*turned, grad_value)]
    outputs = [hidden_states.new_empty(0) for _ in range(4)]
    if needs[0]:
        query, key, value = (row @ weight for row, weight in zip(rows, weights))
        outputs[0] = (query + key + value).contiguous()
    for index, row in enumerate(rows, start=1):
        if needs[index]:
            outputs[index] = (row.flatten(0, 1).t() @ hidden_states.flatten(0, 1)).contiguous()
    return outputs[0], outputs[1], outputs[2], outputs[3]


# Schemas are written out: annotations are strings in this file.
_forward_op = torch.library.custom_op(
    "qkv_rope::forward",
    _forward,
    mutates_args=(),
    schema=(
        "(Tensor hidden_states, Tensor q_weight, Tensor k_weight, Tensor v_weight, Tensor cos, Tensor sin, "
        "SymInt num_heads, SymInt num_kv_heads, str style, str? precision) -> (Tensor, Tensor, Tensor)"
    ),
)
# The same operations on fake tensors give the same shapes and strides.
_forward_op.register_fake(_forward)


def _backward(
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    hidden_states: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    needs: list[bool],
    style: str,
    precision: Optional[str],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tensors = [grad_query, grad_key, grad_value, hidden_states, q_weight, k_weight, v_weight, cos, sin]
    if not _is_ours(grad_query) or any(
        tensor.dtype is not torch.float32 or tensor.device != grad_query.device for tensor in tensors
    ):
        grads, weights = (grad_query, grad_key, grad_value), (q_weight, k_weight, v_weight)
        return _backward_in_pytorch(grads, hidden_states, weights, cos, sin, needs, style)
    if any(tensor.is_neg() for tensor in tensors):
        tensors = [tensor.resolve_neg() for tensor in tensors]
    hidden, query, key, value = map(int, needs)
    if grad_query.is_cpu or precision is None:
        # CPUs have one precision, so one that was chosen for GPUs is no mistake there.
        precision = default_precision(grad_query)
    modes = (hidden, query, key, value)
    found = _native.backward(tuple(tensors), (None, None, None, None), modes, style == "interleaved", precision, 0)
    # An operator returns tensors; those that nobody wants are empty.
    made = [hidden_states.new_empty(0) if gradient is None else gradient for gradient in found]
    return made[0], made[1], made[2], made[3]


def _is_ours(tensor: Tensor) -> bool:
    return tensor.is_cpu or (tensor.is_cuda and _has_kernels(tensor.get_device()))


@functools.lru_cache(maxsize=None)
def _has_kernels(ordinal: int) -> bool:
    """Whether this library runs on a GPU that PyTorch runs on."""
    try:
        _native.gpu(ordinal)
    except RuntimeError as error:
        warnings.warn(
            f"qkv_rope: PyTorch's operations are used on cuda:{ordinal}: {error}", RuntimeWarning, stacklevel=2
        )
        return False
    return True


_backward_op = torch.library.custom_op(
    "qkv_rope::backward",
    _backward,
    mutates_args=(),
    schema=(
        "(Tensor grad_query, Tensor grad_key, Tensor grad_value, Tensor hidden_states, Tensor q_weight, "
        "Tensor k_weight, Tensor v_weight, Tensor cos, Tensor sin, bool[] needs, str style, str? precision) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    ),
)


@_backward_op.register_fake
def _backward_fake(
    grad_query: Tensor,
    grad_key: Tensor,
    grad_value: Tensor,
    hidden_states: Tensor,
    q_weight: Tensor,
    k_weight: Tensor,
    v_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    needs: list[bool],
    style: str,
    precision: Optional[str],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of = (hidden_states, q_weight, k_weight, v_weight)
    made = [hidden_states.new_empty(like.shape if need else (0,)) for like, need in zip(of, needs)]
    return made[0], made[1], made[2], made[3]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    hidden_states, q_weight, k_weight, v_weight, cos, sin, _, _, style, precision = inputs
    ctx.save_for_backward(hidden_states, q_weight, k_weight, v_weight, cos, sin)
    ctx.style, ctx.precision = style, precision


def _differentiate(ctx: Any, grad_query: Tensor, grad_key: Tensor, grad_value: Tensor) -> tuple[Optional[Tensor], ...]:
    needs = list(ctx.needs_input_grad)
    if needs[4] or needs[5]:
        raise RuntimeError("qkv_rope: cos or sin require grad, but no gradient of the rotary tables is computed")
    gradients = torch.ops.qkv_rope.backward(
        grad_query, grad_key, grad_value, *ctx.saved_tensors, needs[:4], ctx.style, ctx.precision
    )
    wanted = [gradient if need else None for gradient, need in zip(gradients, needs)]
    return (*wanted, *(None for _ in needs[4:]))


def _refuse_second(ctx: Any, *grads: Tensor) -> NoReturn:
    raise RuntimeError("qkv_rope: the gradient can be differentiated once only; use PyTorch's own operations for more")


_forward_op.register_autograd(_differentiate, setup_context=_save)
_backward_op.register_autograd(_refuse_second)
for _device in ("cpu", "cuda"):
    _forward_op.register_autocast(_device, torch.float32)

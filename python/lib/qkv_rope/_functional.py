"""The functional form: gradients in, gradients out."""

from __future__ import annotations

import sys
from typing import Any, Iterable, Mapping, NamedTuple, Optional, Sequence, Union

from . import _native


class Gradients(NamedTuple):
    """The four outputs; None where one was not wanted."""

    grad_hidden_states: Any
    """[B, S, E]"""
    grad_q_weight: Any
    """[H*D, E]"""
    grad_k_weight: Any
    """[K*D, E]"""
    grad_v_weight: Any
    """[K*D, E]"""


_NAMES = Gradients._fields
_NOTHING = (None, None, None, None)
_OVERWRITE_ALL = (1, 1, 1, 1)
PRECISIONS = ("ieee", "split", "fast")
_STYLES = {"half-split": False, "interleaved": True}


def backward(
    grad_query: Any,
    grad_key: Any,
    grad_value: Any,
    hidden_states: Any,
    q_weight: Any,
    k_weight: Any,
    v_weight: Any,
    cos: Any,
    sin: Any,
    *,
    needs: Optional[Iterable[str]] = None,
    out: Union[Sequence[Any], Mapping[str, Any], None] = None,
    accumulate: Union[bool, Iterable[str]] = False,
    style: str = "half-split",
    threads: Optional[int] = None,
    precision: Optional[str] = None,
) -> Gradients:
    """Gradients of the hidden states and of the three weights, given those of query, key and value.

    Tensors are float32, all on the CPU or all on one NVIDIA GPU: of PyTorch, NumPy (anything with
    ``__array_interface__``), CuPy, JAX or any other library with DLPack. They are read in place: any strides on leading
    dimensions, 0 included. One whose last dimension is not contiguous is copied first. Results are tensors of the
    library that ``grad_query`` belongs to. Nobody may write the tensors during the call.

    On a GPU the call is put on the current stream of PyTorch or CuPy and returns at once; the workspace comes from
    their allocators, and it can be captured in a CUDA graph. With other libraries it runs on the default stream and
    has finished when it returns.

    Shapes:
        grad_query: [B, H, S, D]
        grad_key, grad_value: [B, K, S, D]
        hidden_states: [B, S, E]; may be None when no weight gradient is wanted
        q_weight, k_weight, v_weight: [H*D, E], [K*D, E], [K*D, E]; may be None when grad_hidden_states is not wanted
        cos, sin: [B, S, R], [1, S, R] or [S, R]; any values, halves may differ

    Args:
        needs: names of the wanted outputs (``Gradients._fields``); all by default. The others cost nothing.
        out: tensors to write into, as four (None where one shall be made) or by name.
        accumulate: add to the tensors in ``out`` with one float32 addition per element: True for all, or names.
        style: which elements are rotated together: ``"half-split"`` (i, i + R/2) or ``"interleaved"`` (2i, 2i + 1).
        threads: as many as ``torch.get_num_threads()`` for PyTorch, one per core for NumPy, by default. Problems too
            small to share out run on one. Results do not depend on it, bit for bit.
        precision: ``"ieee"``, float32 throughout, is the only one on CPUs. On GPUs ``"split"`` is as exact (normwise
            error at most 2e-6), and ``"fast"`` is as TF32 (at most 4e-4) and several times as fast. The default is
            ``"split"``, or ``"fast"`` for PyTorch tensors when PyTorch itself may use TF32 in matrix products
            (``torch.set_float32_matmul_precision("high")`` or ``torch.backends.cuda.matmul.allow_tf32``).

    Raises:
        TypeError, ValueError: what is wrong, naming the argument. Nothing was written.
        RuntimeError: memory, threads or the GPU gave out; or there is no GPU or driver.

    Autograd does not see this call; ``qkv_rope.qkv_rope`` is the form with autograd.
    """
    if precision is None:
        precision = default_precision(grad_query)
    interleaved = _STYLES.get(style)
    if interleaved is None:
        raise ValueError(f"style: found {style!r}, expected 'half-split' or 'interleaved'")
    count = 0
    if threads is not None:
        count = _thread_count(threads)
    outputs = _NOTHING if out is None else _four_outputs(out)
    if needs is None and accumulate is False:
        modes = _OVERWRITE_ALL
    else:
        modes = _modes(needs, accumulate)
    inputs = (grad_query, grad_key, grad_value, hidden_states, q_weight, k_weight, v_weight, cos, sin)
    found = _native.backward(inputs, outputs, modes, interleaved, precision, count)
    if out is not None:
        _tell_autograd(outputs, modes)
    return Gradients._make(found)


def default_precision(like: Any) -> str:
    """The precision for tensors like this one, as ``backward`` documents it."""
    if not getattr(like, "is_cuda", False):
        return "default"
    torch = sys.modules["torch"]
    # Since PyTorch 2.9 the setting has a name, and the older questions fail once it was set by that name.
    setting = getattr(torch.backends.cuda.matmul, "fp32_precision", None)
    if setting is None:
        allowed = torch.get_float32_matmul_precision() != "highest"
    else:
        allowed = setting in ("tf32", "bf16")
    return "fast" if allowed else "split"


def _thread_count(threads: int) -> int:
    if isinstance(threads, bool) or not hasattr(threads, "__index__"):
        raise TypeError(f"threads: found {threads!r}, expected an integer")
    count = threads.__index__()
    if not 1 <= count <= 1024:
        raise ValueError(f"threads: found {count}, expected 1 to 1024")
    return count


def _four_outputs(out: Union[Sequence[Any], Mapping[str, Any]]) -> tuple[Any, ...]:
    if isinstance(out, Mapping):
        _check_names("out", out)
        outputs = tuple(out.get(name) for name in _NAMES)
    elif isinstance(out, (tuple, list)):
        outputs = tuple(out)
        if len(outputs) != 4:
            raise ValueError(f"out: found {len(outputs)} tensors, expected 4 (None where one shall be made)")
    else:
        raise TypeError(f"out: found {type(out).__name__}, expected four tensors or a mapping by name")
    for name, tensor in zip(_NAMES, outputs):
        if getattr(tensor, "requires_grad", False):
            raise ValueError(f"{name}: found an output that requires grad; pass a detached tensor")
    return outputs


def _check_names(argument: str, names: Iterable[str]) -> set[str]:
    if isinstance(names, str):
        raise TypeError(f"{argument}: found the string {names!r}, expected several names")
    found = set(names)
    unknown = found.difference(_NAMES)
    if unknown:
        raise ValueError(f"{argument}: found {sorted(map(str, unknown))}, expected names out of {list(_NAMES)}")
    return found


def _modes(needs: Optional[Iterable[str]], accumulate: Union[bool, Iterable[str]]) -> tuple[int, int, int, int]:
    """0 not wanted, 1 overwrite, 2 accumulate."""
    wanted = set(_NAMES) if needs is None else _check_names("needs", needs)
    if accumulate is True:
        added = wanted
    elif accumulate is False:
        added = set()
    else:
        added = _check_names("accumulate", accumulate)
        if not added <= wanted:
            raise ValueError(f"accumulate: found {sorted(added - wanted)}, which needs leaves out")
    hidden, query, key, value = ((name in wanted) + (name in added) for name in _NAMES)
    return hidden, query, key, value


def _tell_autograd(outputs: tuple[Any, ...], modes: tuple[int, int, int, int]) -> None:
    """PyTorch must know that saved tensors changed: it counts versions."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for tensor, mode in zip(outputs, modes):
        if mode and isinstance(tensor, torch.Tensor):
            torch.autograd.graph.increment_version(tensor)

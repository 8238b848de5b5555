"""Backward pass of multi-head QKV projection with rotary position embedding (RoPE), as one call.

``backward`` works on tensors of NumPy, PyTorch, CuPy, JAX and other libraries with DLPack, on the CPU and on NVIDIA
GPUs, and needs none of them installed beforehand. ``qkv_rope`` is the whole layer for PyTorch with autograd,
``patch_llama`` puts it into a Hugging Face Llama model; both import PyTorch at first use. ``gpu`` says which GPU there
is, or why there is none.

Shapes: B batch, S sequence, E hidden size, H query heads, K key/value heads, D head size, R rotary size (R <= D).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._functional import Gradients, backward
from ._native import __version__, cpu, gpu

if TYPE_CHECKING:
    from ._llama import patch_llama
    from ._torch import qkv_rope

__all__ = ["Gradients", "__version__", "backward", "cpu", "gpu", "patch_llama", "qkv_rope"]


# PyTorch is imported when it is asked for, not with the package.
_LATER = {"qkv_rope": "_torch", "patch_llama": "_llama"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = found
    return found

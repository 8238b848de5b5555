"""Hugging Face Llama models with this library's backward pass."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any, Callable, Optional

import torch

from ._functional import PRECISIONS
from ._torch import qkv_rope

# What the layer's own forward has called its key-value cache over the versions.
_CACHE_NAMES = ("cache", "past_key_values", "past_key_value")


def patch_llama(model: Any, precision: Optional[str] = None) -> Callable[[], None]:
    """Makes every attention layer of a Llama model of ``transformers`` compute its QKV projection with ``qkv_rope``.

    Layers are those whose class is named LlamaAttention. Parameters stay where they are: optimizers, state dicts and
    checkpoints do not change. Without gradients (generation) the layers run as before. Layers whose projections have
    biases or hooks, or are not plain ``torch.nn.Linear`` (quantized or adapted ones), are refused, because the
    projections are no longer called. ``precision`` is as in ``qkv_rope``.

    Returns:
        A function that undoes it.

    Raises:
        ValueError: no such layer, one that cannot be patched, or an unknown precision. Nothing was changed.
    """
    layers = [module for module in model.modules() if type(module).__name__ == "LlamaAttention"]
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision: found {precision!r}, expected one of {list(PRECISIONS)}")
    if not layers:
        raise ValueError(f"model: found no LlamaAttention layer in {type(model).__name__}")
    for layer in layers:
        _check(layer)
    for layer in layers:
        layer.__dict__["_qkv_rope_precision"] = precision
        layer.forward = types.MethodType(_forward, layer)

    def undo() -> None:
        for layer in layers:
            layer.__dict__.pop("forward", None)
            layer.__dict__.pop("_qkv_rope_precision", None)

    return undo


def _check(layer: Any) -> None:
    if "forward" in layer.__dict__:
        raise ValueError("model: found an attention layer whose forward is already replaced")
    parameters = inspect.signature(type(layer).forward).parameters
    if "position_embeddings" not in parameters or not hasattr(_interfaces(layer), "get_interface"):
        raise ValueError("model: this version of transformers has other attention layers; version 5 is supported")
    for name in ("q_proj", "k_proj", "v_proj"):
        projection = getattr(layer, name, None)
        if type(projection) is not torch.nn.Linear:
            raise ValueError(f"model: found {name} of type {type(projection).__name__}, expected torch.nn.Linear")
        if projection.bias is not None:
            raise ValueError(f"model: found a bias in {name}; only projections without one are supported")
        if projection._forward_hooks or projection._forward_pre_hooks or projection._backward_hooks:
            raise ValueError(f"model: found hooks on {name}, which would no longer run")


def _interfaces(layer: Any) -> Any:
    """The attention functions of the module that the layer's class is from."""
    return getattr(sys.modules[type(layer).__module__], "ALL_ATTENTION_FUNCTIONS", None)


def _forward(
    self: Any,
    hidden_states: torch.Tensor,
    position_embeddings: Optional[tuple[torch.Tensor, torch.Tensor]] = None,
    attention_mask: Optional[torch.Tensor] = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, Any]:
    """The layer's own forward, with projection and rotation in one operator."""
    if not torch.is_grad_enabled() or position_embeddings is None:
        own: Callable[..., tuple[torch.Tensor, Any]] = type(self).forward
        return own(self, hidden_states, position_embeddings, attention_mask, **kwargs)
    caches = [kwargs.pop(name) for name in _CACHE_NAMES if name in kwargs]
    weights = (self.q_proj.weight, self.k_proj.weight, self.v_proj.weight)
    config = self.config
    heads = (config.num_attention_heads, config.num_key_value_heads)
    query, key, value = qkv_rope(
        hidden_states, *weights, *position_embeddings, *heads, precision=self._qkv_rope_precision
    )
    for cache in caches:
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
    eager = sys.modules[type(self).__module__].eager_attention_forward
    attend = _interfaces(self).get_interface(config._attn_implementation, eager)
    dropout = self.attention_dropout if self.training else 0.0
    attended, probabilities = attend(
        self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
    )
    return self.o_proj(attended.reshape(*hidden_states.shape[:-1], -1).contiguous()), probabilities

"""patch_llama on a tiny random model."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: python/ci.sh --torch runs these")
transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: python/ci.sh --torch runs these"
)

import qkv_rope  # noqa: E402
from qkv_rope import _llama  # noqa: E402


def tiny(**changes):
    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, **changes))


def step(model):
    tokens = torch.arange(22).reshape(2, 11) % 64
    model.zero_grad()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return loss.item(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("use_cache", [False, True])
def test_the_same_training_step(attention, use_cache, monkeypatch):
    model = tiny(attn_implementation=attention, use_cache=use_cache)
    before_loss, before = step(model)
    calls = []
    operator = _llama.qkv_rope
    monkeypatch.setattr(_llama, "qkv_rope", lambda *x, **y: calls.append(1) or operator(*x, **y))
    undo = qkv_rope.patch_llama(model)
    patched_loss, patched = step(model)
    assert len(calls) == 2, "one call for each layer"
    assert patched_loss == pytest.approx(before_loss, rel=1e-5)
    for name, gradient in before.items():
        torch.testing.assert_close(patched[name], gradient, rtol=1e-4, atol=1e-6, msg=name)
    undo()
    after_loss, after = step(model)
    assert len(calls) == 2 and after_loss == before_loss
    assert all(torch.equal(after[name], gradient) for name, gradient in before.items())


def test_generation_is_unchanged():
    model = tiny()
    prompt = torch.arange(5)[None]
    plain = model.generate(prompt, max_new_tokens=6, do_sample=False)
    qkv_rope.patch_llama(model)
    assert torch.equal(model.generate(prompt, max_new_tokens=6, do_sample=False), plain)


def test_what_cannot_be_patched_is_refused():
    with pytest.raises(ValueError, match="model: found no LlamaAttention layer in Linear"):
        qkv_rope.patch_llama(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="model: found a bias in q_proj"):
        qkv_rope.patch_llama(tiny(attention_bias=True))
    with pytest.raises(ValueError, match="precision: found 'tf32'"):
        qkv_rope.patch_llama(tiny(), precision="tf32")
    model = tiny()
    undo = qkv_rope.patch_llama(model)
    with pytest.raises(ValueError, match="already replaced"):
        qkv_rope.patch_llama(model)
    undo()
    qkv_rope.patch_llama(model)()

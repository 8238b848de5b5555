"""A Llama-style model in one page whose QKV projection can be PyTorch's own or ``qkv_rope``: what the examples train."""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

Project = Callable[..., tuple[Tensor, Tensor, Tensor]]


def eager(
    hidden: Tensor, wq: Tensor, wk: Tensor, wv: Tensor, cos: Tensor, sin: Tensor, heads: int, kv_heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as Hugging Face Llama computes them."""

    def split(weight: Tensor, count: int) -> Tensor:
        return functional.linear(hidden, weight).unflatten(-1, (count, -1)).transpose(1, 2)

    def turn(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return x * cos[:, None] + torch.cat((-x[..., half:], x[..., :half]), -1) * sin[:, None]

    return turn(split(wq, heads)), turn(split(wk, kv_heads)), split(wv, kv_heads)


def tables(seq: int, head_dim: int, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """cos and sin, [1, S, D]."""
    frequencies = 10000 ** (-torch.arange(0, head_dim, 2, device=device, dtype=torch.float64) / head_dim)
    angles = torch.arange(seq, device=device, dtype=torch.float64)[:, None] * torch.cat((frequencies, frequencies))
    return angles.cos().float()[None], angles.sin().float()[None]


class Block(nn.Module):
    """Attention and a gated MLP, each with its norm and its residual."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, head_dim: int, inner: int, project: Project) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.project = heads, kv_heads, project
        self.q = nn.Linear(hidden, heads * head_dim, bias=False)
        self.k = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.v = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.o = nn.Linear(heads * head_dim, hidden, bias=False)
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(hidden) for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        weights = (self.q.weight, self.k.weight, self.v.weight)
        query, key, value = self.project(self.norms[0](x), *weights, cos, sin, self.heads, self.kv_heads)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        x = x + self.o(attended.transpose(1, 2).flatten(2))
        normed = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    """Token ids [B, S] to logits [B, S, vocabulary]."""

    def __init__(
        self,
        project: Project,
        *,
        vocabulary: int = 256,
        hidden: int = 128,
        layers: int = 2,
        heads: int = 4,
        kv_heads: int = 2,
        head_dim: int = 32,
        inner: int = 256,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, kv_heads, head_dim, inner, project) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        cos, sin = tables(tokens.shape[1], self.head_dim, tokens.device)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def train(
    project: Project, steps: int, device: str = "cpu", batch: int = 8, seq: int = 64, **sizes: int
) -> list[float]:
    """The loss of each step on random sequences that the model learns by heart; everything seeded."""
    torch.manual_seed(0)
    model = Llama(project, **sizes)
    tokens = torch.randint(model.embedding.num_embeddings, (4, batch, seq + 1))
    model, tokens = model.to(device), tokens.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        found = tokens[step % len(tokens)]
        loss = functional.cross_entropy(model(found[:, :-1]).flatten(0, 1), found[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).double().tolist()

"""Random problems, and what they must give in float64."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Problem:
    batch: int
    seq: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary: int
    style: str

    @staticmethod
    def random(rng: np.random.Generator) -> "Problem":
        kv_heads = int(rng.integers(1, 4))
        head_dim = 2 * int(rng.integers(1, 13))
        rotary = head_dim if rng.random() < 0.5 else 2 * int(rng.integers(0, head_dim // 2 + 1))
        return Problem(
            batch=int(rng.integers(0, 4)),
            seq=int(rng.integers(1, 40)),
            hidden=int(rng.integers(1, 80)),
            heads=kv_heads * int(rng.integers(1, 4)),
            kv_heads=kv_heads,
            head_dim=head_dim,
            rotary=rotary,
            style=str(rng.choice(["half-split", "interleaved"])),
        )

    def inputs(self, rng: np.random.Generator) -> list[np.ndarray]:
        rows, kv_rows = self.heads * self.head_dim, self.kv_heads * self.head_dim
        shapes = [
            (self.batch, self.heads, self.seq, self.head_dim),
            (self.batch, self.kv_heads, self.seq, self.head_dim),
            (self.batch, self.kv_heads, self.seq, self.head_dim),
            (self.batch, self.seq, self.hidden),
            (rows, self.hidden),
            (kv_rows, self.hidden),
            (kv_rows, self.hidden),
            (self.batch, self.seq, self.rotary),
            (self.batch, self.seq, self.rotary),
        ]
        return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def unrotated(grad: np.ndarray, cos: np.ndarray, sin: np.ndarray, style: str) -> np.ndarray:
    """The contract's formulas, element by element of a head, in float64."""
    rotary = cos.shape[-1]
    result = grad.astype(np.float64)
    cos, sin = (table.astype(np.float64)[:, None] for table in (cos, sin))
    for pair in range(rotary // 2):
        first, second = (pair, pair + rotary // 2) if style == "half-split" else (2 * pair, 2 * pair + 1)
        a, b = grad[..., first].astype(np.float64), grad[..., second].astype(np.float64)
        result[..., first] = a * cos[..., first] + b * sin[..., second]
        result[..., second] = b * cos[..., second] - a * sin[..., first]
    return result


def expected(inputs: list[np.ndarray], style: str) -> list[np.ndarray]:
    """The four gradients in float64."""
    grads, hidden, weights, (cos, sin) = inputs[:3], inputs[3], inputs[4:7], inputs[7:]
    turned = [unrotated(grads[0], cos, sin, style), unrotated(grads[1], cos, sin, style), grads[2].astype(np.float64)]
    rows = [grad.transpose(0, 2, 1, 3).reshape(*hidden.shape[:2], grad.shape[1] * grad.shape[3]) for grad in turned]
    tokens = hidden.astype(np.float64).reshape(-1, hidden.shape[-1])
    grad_hidden = sum(row @ weight.astype(np.float64) for row, weight in zip(rows, weights))
    return [grad_hidden] + [row.reshape(len(tokens), row.shape[-1]).T @ tokens for row in rows]


def assert_close(found, wanted, names=None) -> None:
    """Normwise, as the contract allows it."""
    for index, (one, other) in enumerate(zip(found, wanted)):
        one, other = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
        assert one.shape == other.shape, index
        assert np.linalg.norm(one - other) <= 2e-6 * np.linalg.norm(other), (index, names)

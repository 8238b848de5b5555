"""Trains a tiny Llama-style model on random data with and without qkv_rope, and draws both loss curves.

    python python/examples/train.py [--steps 200] [--device cpu] [--svg FILE] [--json]

On a GPU it also compares ``fast`` with what PyTorch's TF32 does to the same training. Exit code 1 when the curves part.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from pathlib import Path

import torch
from llama import eager, train

import qkv_rope

ALLOWED = 1e-5
"""Relative difference of the losses from PyTorch's float32 that `ieee` and `split` may have."""


def difference(losses: list[float], reference: list[float]) -> float:
    """Largest relative difference of any step."""
    return max(abs(one - other) / abs(other) for one, other in zip(losses, reference))


def curves(steps: int, device: str, **sizes: int) -> dict[str, list[float]]:
    run = functools.partial(train, steps=steps, device=device, **sizes)
    if device == "cpu":
        return {"PyTorch, f32": run(eager), "qkv_rope, ieee": run(qkv_rope.qkv_rope)}
    found = {"PyTorch, f32": run(eager)}
    for precision in ("split", "fast"):
        found[f"qkv_rope, {precision}"] = run(functools.partial(qkv_rope.qkv_rope, precision=precision))
    torch.set_float32_matmul_precision("high")
    found["PyTorch, TF32"] = run(eager)
    torch.set_float32_matmul_precision("highest")
    return found


def judge(found: dict[str, list[float]]) -> dict[str, float]:
    """Largest relative difference of each curve from PyTorch's float32.

    Raises:
        AssertionError: when one is larger than it may be.
    """
    reference = found["PyTorch, f32"]
    differences = {name: difference(losses, reference) for name, losses in found.items() if losses is not reference}
    for name, largest in differences.items():
        exact = name.endswith(("ieee", "split"))
        allowed = ALLOWED if exact else max(ALLOWED, 2 * differences.get("PyTorch, TF32", math.inf))
        assert largest <= allowed, (
            f"{name}: losses differ from PyTorch's by {largest:.1e}, expected at most {allowed:.1e}"
        )
    return differences


COLOURS = ("#c44e52", "#4c72b0", "#dd8452", "#55a868")


def svg(found: dict[str, list[float]], differences: dict[str, float]) -> str:
    """Loss over steps, thick lines first so that those below others show."""
    width, height, left, bottom = 640, 360, 56, 40
    steps = len(next(iter(found.values())))
    top = max(max(losses) for losses in found.values()) * 1.05

    def place(step: float, loss: float) -> str:
        x = left + (width - left - 16) * step / steps
        return f"{x:.1f},{height - bottom - (height - bottom - 16) * loss / top:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index in range(6):
        at = place(0, top * index / 5).split(",")[1]
        parts.append(f'<path d="M{left} {at}H{width - 16}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at}" dy="4" text-anchor="end">{top * index / 5:.1f}</text>')
        step = steps * index / 5
        at = place(step, 0).split(",")[0]
        parts.append(f'<text x="{at}" y="{height - bottom + 18}" text-anchor="middle">{step:.0f}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 6}" text-anchor="middle">step</text>')
    parts.append(
        f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})" text-anchor="middle">loss</text>'
    )
    for index, (name, losses) in enumerate(found.items()):
        points = " ".join(place(step, loss) for step, loss in enumerate(losses))
        stroke, colour = 2 + 3 * (len(found) - 1 - index), COLOURS[index]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{stroke}"/>')
        y = 34 + 22 * index
        parts.append(f'<path d="M{width - 330} {y - 4}h28" stroke="{colour}" stroke-width="{stroke}"/>')
        apart = f": differs by at most {differences[name]:.1e}" if name in differences else ""
        parts.append(f'<text x="{width - 294}" y="{y}">{name}{apart}</text>')
    return "\n".join([*parts, "</svg>", ""])


def write(path: Path, text: str) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--json", action="store_true", help="print all losses")
    arguments = parser.parse_args()
    found = curves(arguments.steps, arguments.device)
    try:
        differences = judge(found)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return 1
    if arguments.svg:
        write(arguments.svg, svg(found, differences))
    if arguments.json:
        print(json.dumps({"losses": found, "differences": differences}))
    else:
        first, last = (found["PyTorch, f32"][index] for index in (0, -1))
        print(f"{arguments.steps} steps on {arguments.device}, loss {first:.3f} to {last:.3f}")
        for name, largest in differences.items():
            print(f"{name}: losses within {largest:.1e} of PyTorch's f32")
    return 0


if __name__ == "__main__":
    sys.exit(main())

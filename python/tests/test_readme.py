"""The README's snippet runs, and its GPU figures are those of the committed record."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "python" / "README.md").read_text()


def test_the_snippet_runs():
    block = re.search(r"```python\n(import numpy.*?)```", README, re.DOTALL).group(1)
    found = {}
    exec(block, found)
    assert found["grads"].grad_hidden_states.shape == (2, 64, 256)


def rows(record):
    parts = record["runs"][-1]["parts"]
    names = ("eager_f32", "ours_split", "eager_tf32", "ours_fast_tf32")
    for key, values in parts["layers"].items():
        if key.startswith("T ="):
            yield " | ".join(f"{values[name]:.0f} µs" for name in names)
    for key, values in parts["memory"].items():
        if key.startswith("backward"):
            yield " | ".join(f"{values[name] / 1e6:.0f} MB" for name in names)
    yield " | ".join(f"{parts['steps']['median_us'][name] / 1e3:.1f} ms" for name in names)
    yield " | ".join(f"{parts['steps']['peak_bytes_of_a_step'][name] / 1e6:.0f} MB" for name in names)
    apart = parts["training"]["differences"]
    yield " | ".join(f"{apart[name]:.1e}" for name in ("qkv_rope, split", "PyTorch, TF32", "qkv_rope, fast"))
    errors = parts["equality"]["largest_normwise_error"]
    yield "normwise " + " and ".join(f"{errors[name]:.1e}".replace("e-0", "e-") for name in ("split", "fast"))
    yield f"in {len(parts['equality']['fast_with_cancelling_sums'])} of them"
    host = parts["layers"]["host time at T = 1, median us"]
    yield f"{host['qkv_rope.backward']:.0f} µs for a call at T = 1 there, {host['qkv_rope.backward on the CPU']:.0f} µs on its CPU"


def test_the_gpu_figures_are_those_of_the_record():
    record = json.loads((ROOT / "docs" / "notes" / "2026-12-01-gpu-training-record.json").read_text())
    missing = [row for row in rows(record) if row not in README]
    assert not missing, missing

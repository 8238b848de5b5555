"""Proves and times the Python package on this machine's NVIDIA GPU, and writes one JSON, and the loss curves as an SVG
beside it.

    python bench/gpu/training OUT.json [--commit ID] [--c-example PROGRAM] [--skip PART,...] [--quick]

Needs the wheel (`pip install ./python`), PyTorch with CUDA and NumPy; uses CuPy, JAX and transformers where they are.
Each part's failure is recorded beside the others' results. Exit code 1 when one failed, 2 when there is no GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
import traceback
from pathlib import Path

import others
import right
import speed
import torch
from cases import OPTIONS

import qkv_rope

import train  # isort: skip  # found through cases

PARTS = (
    *(right.equality, right.operator, right.bits, right.streams, right.graphs, right.many_shapes, right.forked),
    *(speed.memory, speed.layers, speed.steps, speed.training),
    *(others.other_libraries, others.hugging_face, others.compiled, others.distributed, others.c_example),
)


def facts(commit: str) -> dict:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,temperature.gpu", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit,
        "gpu": qkv_rope.gpu(0),
        "nvidia_smi": driver,
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "qkv_rope": qkv_rope.__version__,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Proves and times the Python package on an NVIDIA GPU.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--c-example")
    parser.add_argument("--skip", default="", help="parts to leave out, separated by commas")
    parser.add_argument("--quick", action="store_true", help="fewer samples and problems")
    arguments = parser.parse_args()
    try:
        qkv_rope.gpu(0)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    OPTIONS.quick, OPTIONS.drawing = arguments.quick, arguments.out.with_suffix(".svg")
    OPTIONS.c_example = arguments.c_example
    left_out = set(arguments.skip.split(",")) | (set() if arguments.c_example else {"c_example"})
    parts = [part for part in PARTS if part.__name__ not in left_out]
    record = {"facts": facts(arguments.commit), "parts": {}}
    failed = []
    for part in parts:
        begin = time.perf_counter()
        try:
            result = part()
        except Exception as error:
            failed.append(part.__name__)
            result = {"failed": f"{type(error).__name__}: {error}"}
            traceback.print_exc()
        record["parts"][part.__name__] = {**result, "seconds": round(time.perf_counter() - begin, 2)}
        shown = {key: value for key, value in result.items() if key not in ("losses", "samples_us")}
        print(f"{part.__name__}: {json.dumps(shown)}", flush=True)
        # Whole after every part: a later one may be stopped by a limit of the machine.
        train.write(arguments.out, json.dumps(record, indent=1) + "\n")
    print("failed: " + ", ".join(failed) if failed else "all parts passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

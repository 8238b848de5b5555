"""Holds the evaluator's times against a plain loop with CUDA events, written apart from it.

    python crosscheck.py RUNS [--library libqkv_rope.so] [--cases s128b2,...] [--json OUT]

RUNS is a folder with bundles of `kernelproof eval`. Each case of a bundle of cuda-fast or cuda-split is run again through the
C interface (crates/capi), and each case of a bundle of a solution by the solution itself, in this process: 10 calls,
then 50 between two events each, after twice the second-level cache was zeroed, often enough that the device is busy while
Python launches the call. The medians must be within 4 µs or 3 %.
Exit code 1 when one is not.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import sys

import torch

LIMIT_NS, LIMIT_SHARE = 4000, 0.03
WARM_UPS, CALLS, FILLS = 10, 50, 24
GPU = torch.device("cuda", 0)
MAX_RANK, ABI_VERSION, OVERWRITE, HALF_SPLIT = 4, 1, 1, 0
PRECISIONS = {"split": 1, "fast": 2}


def tensors(dims):
    """Inputs as the benchmark draws them, and outputs."""
    b, s, e, h, k, d, r = (dims[letter] for letter in "BSEHKDR")
    normal = lambda *shape: torch.randn(*shape, device=GPU)
    angle = lambda: normal(b, s, r).clamp(-torch.pi, torch.pi)
    weight = lambda heads: normal(heads * d, e) / e**0.5
    inputs = (normal(b, h, s, d), normal(b, k, s, d), normal(b, k, s, d), normal(b, s, e), weight(h), weight(k), weight(k),
              angle().cos(), angle().sin())
    outputs = [torch.empty_like(inputs[index]) for index in (3, 4, 5, 6)]
    return inputs, outputs


def medians(call, cold):
    """Median time of a call in ns, each between two events, with cold caches."""
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(WARM_UPS + CALLS)]
    for before, after in events:
        torch.cuda.synchronize()
        for _ in range(FILLS):
            cold.zero_()
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) * 1e6 for before, after in events[WARM_UPS:])


class View(ctypes.Structure):
    """qkv_rope_tensor and qkv_rope_output: `last` is reserved in the one and the write mode in the other."""
    _fields_ = [("data", ctypes.c_void_p), ("rank", ctypes.c_uint32), ("last", ctypes.c_int32),
                ("shape", ctypes.c_uint64 * MAX_RANK), ("strides", ctypes.c_int64 * MAX_RANK)]


class Problem(ctypes.Structure):
    _fields_ = [("abi_version", ctypes.c_uint32), ("pairing", ctypes.c_int32), ("precision", ctypes.c_int32),
                ("outputs", ctypes.c_int32 * 4), ("reserved", ctypes.c_int32), ("dims", ctypes.c_uint64 * 7)]


def view(tensor, last):
    pad = lambda values: list(values) + [0] * (MAX_RANK - tensor.dim())
    rank, pointer = tensor.dim(), tensor.data_ptr()
    return View(pointer, rank, last, (ctypes.c_uint64 * MAX_RANK)(*pad(tensor.shape)),
                (ctypes.c_int64 * MAX_RANK)(*pad(tensor.stride())))


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.qkv_rope_last_error.restype = ctypes.c_char_p

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.library.qkv_rope_last_error().decode())

    def prepare(self, dims, precision, inputs, outputs):
        """A call of no arguments."""
        library = self.library
        sizes = (ctypes.c_uint64 * 7)(*(dims[letter] for letter in "BSEHKDR"))
        problem = Problem(ABI_VERSION, HALF_SPLIT, PRECISIONS[precision], (ctypes.c_int32 * 4)(*[OVERWRITE] * 4), 0, sizes)
        session = ctypes.c_void_p()
        self.check(library.qkv_rope_cuda_session_create(ctypes.byref(problem), 0, ctypes.byref(session)))
        room = ctypes.c_uint64()
        self.check(library.qkv_rope_cuda_workspace_bytes(session, ctypes.byref(room)))
        workspace = torch.empty(max(room.value, 1), dtype=torch.uint8, device=GPU)
        given = (View * len(inputs))(*(view(tensor, 0) for tensor in inputs))
        wanted = (View * len(outputs))(*(view(tensor, OVERWRITE) for tensor in outputs))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        place, room = ctypes.c_void_p(workspace.data_ptr()), ctypes.c_uint64(room.value)

        def call():
            self.check(library.qkv_rope_cuda_backward(session, given, wanted, place, room, stream))
        call.kept = workspace, inputs, outputs
        return call


def solution(folder):
    """The solution's function, from the bundle."""
    text = json.loads((folder / "solution.json").read_text())
    file, name = text["spec"]["entry_point"].split("::")
    space = {"__name__": "solution"}
    source, = [source["content"] for source in text["sources"] if source["path"] == file]
    path = pathlib.Path(folder.name + "-" + file).absolute()
    path.write_text(source)  # Triton reads the sources of its kernels.
    exec(compile(source, str(path), "exec"), space)
    return space[name]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("--library")
    parser.add_argument("--cases")
    parser.add_argument("--json")
    args = parser.parse_args()
    wanted = args.cases.split(",") if args.cases else None
    cold = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device=GPU)
    library = Library(args.library) if args.library else None
    rows, skipped = [], []
    for folder in sorted(args.runs.iterdir()):
        evaluation = json.loads((folder / "run.json").read_text())["spec"]["evaluation"]
        name, precision = evaluation["implementation"]["name"], evaluation["implementation"]["precision"]
        ours = name in ("cuda-fast", "cuda-split")
        if evaluation["implementation"]["device"] != "cuda" or (ours and not library):
            skipped.append(name)
            continue
        torch.backends.cuda.matmul.allow_tf32 = False
        run = None if ours else solution(folder)
        for case in evaluation["cases"]:
            if case["status"] != "passed" or (wanted and case["name"] not in wanted):
                continue
            inputs, outputs = tensors(case["problem"]["dims"])
            if ours:
                call = library.prepare(case["problem"]["dims"], precision, inputs, outputs)
            else:
                call = lambda: run(*inputs, *outputs)
            with torch.no_grad():
                here_ns = medians(call, cold)
            there_ns = statistics.median(case["samples_ns"])
            apart_ns = here_ns - there_ns
            agrees = abs(apart_ns) < max(LIMIT_NS, LIMIT_SHARE * there_ns)
            rows.append({"implementation": name, "case": case["name"], "evaluator_ns": there_ns, "events_ns": here_ns,
                         "agrees": agrees})
            print(f"{name:24} {case['name']:10} evaluator {there_ns / 1e3:9.1f}  events {here_ns / 1e3:9.1f}  "
                  f"apart {apart_ns / 1e3:6.1f} us, {100 * apart_ns / there_ns:5.1f} %{'' if agrees else '  TOO FAR'}", flush=True)
    agreeing = sum(row["agrees"] for row in rows)
    print(f"{agreeing} of {len(rows)} within {LIMIT_NS / 1e3:.0f} us or {100 * LIMIT_SHARE:.0f} %; not run: {skipped}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"rows": rows, "not_run": skipped}, indent=1) + "\n")
    sys.exit(0 if rows and agreeing == len(rows) else 1)


main()

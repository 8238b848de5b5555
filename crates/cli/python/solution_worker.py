"""Runs a solution in the public format of SOL-ExecBench for `kernelproof eval`.

    {"do": "hello", "threads": 2, "memory_bytes": 1000}   -> {"torch": "2.15.0", "python": "3.11.2", "threads": 2}
    {"do": "load", "folder": "...", "entry": "kernel.py::run", "destination_passing": true, "compile": {...}} -> {}
    {"do": "case", "path": "...", "bytes": 123, "sizes": {...}} -> {}
    {"do": "at", "starts": [13 byte offsets]}             -> {}
    {"do": "call"}                                        -> {}
    {"do": "nothing"}                                     -> {}
    {"do": "end"}                                         -> {"replaced": ["time.time"]}

Tensors lie in memory that the parent shares. The parent fills it, keeps the time and judges; it stops this process with
SIGSTOP whenever it is not its turn. Nothing here can be trusted, because the solution runs in the same interpreter, and
nothing here needs to be: what this process says has no influence on a time or a verdict, except that it is done.
"""

import gc
import importlib.util
import json
import mmap
import os
import platform
import resource
import sys
import time

from kernelproof_worker import INPUTS, OUTPUTS, Problem, serve, shapes

# No file that a solution writes needs to be larger; a log that grows without end would fill the disk.
LARGEST_FILE_BYTES = 1 << 30
OUT_OF_MEMORY = ("can't allocate memory", "cannot allocate memory", "bad_alloc", "not enough memory")

# What PyTorch says when this machine lacks a tool for compiling; that is no fault of the solution.
MISSING = ("Ninja is required", "CUDA_HOME environment variable is not set", "C++ compiler not found")


def is_out_of_memory(error):
    return isinstance(error, MemoryError) or any(text in str(error).lower() for text in OUT_OF_MEMORY)


def data_bytes():
    """Private writable memory that this process has mapped."""
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


class Worker:
    def __init__(self):
        self.torch = None
        self.run = None
        self.destination_passing = True
        self.memory = None
        self.shapes = {}
        self.inputs = self.outputs = ()
        self.genuine = []

    def hello(self, request):
        try:
            import torch
        except ImportError as error:
            return {"error": "no torch", "detail": str(error), "python": platform.python_version()}
        torch.set_num_threads(request["threads"])
        torch.set_grad_enabled(False)
        self.torch = torch
        limit = data_bytes() + request["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE_BYTES, LARGEST_FILE_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        watched = [
            (time, ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time")),
            (torch.Tensor, ("copy_", "clone", "data_ptr", "reshape")),
            (torch, ("frombuffer", "allclose", "equal", "isnan", "isfinite")),
            (torch.cuda, ("Event", "synchronize")),
            (os, ("read", "write")),
            (json, ("loads", "dumps")),
            (sys.modules["kernelproof_worker"], ("serve",)),
        ]
        self.genuine = [(owner, name, getattr(owner, name)) for owner, names in watched for name in names]
        return {"torch": torch.__version__, "python": platform.python_version(), "threads": torch.get_num_threads()}

    def load(self, request):
        file, name = request["entry"].split("::")
        folder = request["folder"]
        self.destination_passing = request["destination_passing"]
        try:
            module = self.compiled(folder, request["compile"]) if request["compile"] else self.imported(folder, file)
            self.run = getattr(module, name)
        except BaseException as error:
            missing = any(tool in str(error) for tool in MISSING)
            kind = "memory" if is_out_of_memory(error) else "missing" if missing else "compile"
            raise Problem(kind, f"{type(error).__name__}: {error}"[-4000:]) from error
        return {}

    def imported(self, folder, file):
        sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location("solution", os.path.join(folder, file))
        module = importlib.util.module_from_spec(spec)
        sys.modules["solution"] = module
        spec.loader.exec_module(module)
        return module

    def compiled(self, folder, options):
        from torch.utils import cpp_extension
        build = os.path.join(folder, "kernelproof-build")
        os.makedirs(build)
        return cpp_extension.load(
            name="solution", build_directory=build, verbose=False,
            sources=[os.path.join(folder, source) for source in options["sources"]],
            extra_cflags=options["cflags"], extra_cuda_cflags=options["cuda_cflags"],
            extra_ldflags=options["ld_flags"],
        )

    def case(self, request):
        self.inputs = self.outputs = ()
        self.memory = None
        gc.collect()
        with open(request["path"], "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), request["bytes"])
        self.shapes = shapes(request["sizes"])
        return {}

    def tensor(self, name, start):
        torch, shape = self.torch, self.shapes[name]
        elems = torch.Size(shape).numel()
        if elems == 0:
            return torch.empty(shape)
        return torch.frombuffer(self.memory, dtype=torch.float32, count=elems, offset=start).reshape(shape)

    def at(self, request):
        tensors = [self.tensor(name, start) for name, start in zip(INPUTS + OUTPUTS, request["starts"])]
        self.inputs, self.outputs = tensors[:len(INPUTS)], tensors[len(INPUTS):]
        gc.collect()
        return {}

    def call(self, _):
        try:
            if self.destination_passing:
                self.run(*self.inputs, *self.outputs)
            else:
                self.copy(self.run(*self.inputs))
        except Exception as error:
            if is_out_of_memory(error):
                raise Problem("memory", f"{type(error).__name__}: {error}"[:4000]) from error
            raise
        return {}

    def copy(self, results):
        """Value-returning solutions pay for the copy into the outputs."""
        if not isinstance(results, (tuple, list)) or len(results) != len(self.outputs):
            raise Problem("shape", f"returned {type(results).__name__}, expected a tuple of {len(self.outputs)} tensors")
        for name, output, result in zip(OUTPUTS, self.outputs, results):
            if type(result) is not self.torch.Tensor:
                raise Problem("shape", f"{name}: returned {type(result).__name__}, expected torch.Tensor itself")
            if result.shape != output.shape:
                raise Problem("shape", f"{name}: returned shape {list(result.shape)}, expected {list(output.shape)}")
            if result.dtype != output.dtype:
                raise Problem("dtype", f"{name}: returned {result.dtype}, expected {output.dtype}")
            output.copy_(result)

    def nothing(self, _):
        return {}

    def end(self, _):
        replaced = [f"{owner.__name__}.{name}" for owner, name, was in self.genuine if getattr(owner, name) is not was]
        return {"replaced": replaced}


if __name__ == "__main__":
    worker = Worker()
    serve({name: getattr(worker, name) for name in ("hello", "load", "case", "at", "call", "nothing", "end")})

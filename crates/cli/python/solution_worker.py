"""Runs a solution in the public format of SOL-ExecBench for `kernelproof eval`.

    {"do": "hello", "threads": 2, "memory_bytes": 1000}   -> {"torch": "2.15.0", "python": "3.11.2", "threads": 2}
    {"do": "load", "folder": "...", "entry": "kernel.py::run", "destination_passing": true, "compile": {...}} -> {}
    {"do": "case", "path": "...", "bytes": 123, "sizes": {...}} -> {}
    {"do": "at", "starts": [13 byte offsets]}             -> {}
    {"do": "call"}                                        -> {}
    {"do": "nothing"}                                     -> {}

On a GPU ("device" in "hello") the shared memory is the mirror of a block on the device, and a call is timed there:

    {"do": "hello", ..., "device": 0}                     -> {..., "gpu": {"timer": "cupti", "flush_bytes": 1, "cuda": "13.0"}}
    {"do": "stage", "guard": 1, "poison": 2}   inputs to the device, outputs full of poison in a sea of guards -> {}
    {"do": "keep", "slot": 0}                  keeps the inputs that were staged -> {}
    {"do": "compose", "copies": [[slot, from, to, bytes]], ...}   as stage, from what was kept -> {}
    {"do": "call"}                                        -> {"time_ns": 1, "activities": ["..."], "late": false}
    {"do": "fetch", "bytes": [0, 1000]}        a part of the block, as it was when the call's stream had ended, to shared memory -> {}
    {"do": "settle"}                           the block as it is now, to shared memory -> {}

    {"do": "end"}                                         -> {"replaced": ["time.time"]}

Tensors lie in memory that the parent shares. The parent fills it, keeps the time and judges; it stops this process with
SIGSTOP whenever it is not its turn. Nothing here can be trusted, because the solution runs in the same interpreter, and
nothing here needs to be on a CPU: what this process says has no influence on a time or a verdict, except that it is done.
On a GPU it says the time, through functions that were looked up before the solution was loaded.
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
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "not enough memory")

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
        self.device = self.clock = None
        self.block = self.snapshot = self.cold = self.host = None
        self.kept, self.outputs_from, self.pinned = {}, 0, False

    def hello(self, request):
        try:
            import torch
        except ImportError as error:
            return {"error": "no torch", "detail": str(error), "python": platform.python_version()}
        torch.set_num_threads(request["threads"])
        torch.set_grad_enabled(False)
        self.torch = torch
        gpu = self.open(request["device"]) if request.get("device") is not None else None
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
        answer = {"torch": torch.__version__, "python": platform.python_version(), "threads": torch.get_num_threads()}
        return {**answer, "gpu": gpu} if gpu else answer

    def open(self, ordinal):
        """The GPU, with everything made that its first use makes."""
        torch = self.torch
        if not torch.cuda.is_available():
            raise Problem("missing", "this PyTorch sees no NVIDIA GPU")
        torch.cuda.set_device(ordinal)
        self.device = torch.device("cuda", ordinal)
        square = torch.ones(64, 64, device=self.device)
        (square @ square).sum().item()
        self.cold = torch.zeros(2 * torch.cuda.get_device_properties(ordinal).L2_cache_size, dtype=torch.uint8,
                                device=self.device)
        from gpu_clock import FILLS, Clock
        self.clock = Clock(self.cold.numel())
        gpu = {"timer": self.clock.name, "flush_bytes": FILLS * self.cold.numel(), "cuda": torch.version.cuda}
        try:
            import triton
            gpu["triton"] = triton.__version__
        except ImportError:
            pass
        return gpu

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
        if self.host is not None and self.pinned:
            self.clock.driver.unregister(self.host.data_ptr())
        self.memory = self.block = self.snapshot = self.host = None
        self.kept = {}
        gc.collect()
        # What is there stays there; looking through all of PyTorch after every call would take a tenth of a second.
        gc.freeze()
        with open(request["path"], "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), request["bytes"])
        self.shapes = shapes(request["sizes"])
        if self.device is not None:
            self.outputs_from = request["outputs_from"]
            self.mirror()
        return {}

    def mirror(self):
        torch = self.torch
        self.host = torch.frombuffer(self.memory, dtype=torch.float32)
        self.block = torch.zeros(self.host.shape, dtype=torch.float32, device=self.device)
        self.snapshot = torch.zeros_like(self.block)
        try:
            self.clock.driver.register(self.host.data_ptr(), self.host.nbytes, 0)
            self.pinned = True
        except Exception:  # Slower copies, nothing else.
            self.pinned = False

    def stream(self):
        return self.torch.cuda.current_stream(self.device).cuda_stream

    def stage(self, request):
        driver, stream, start = self.clock.driver, self.stream(), self.block.data_ptr()
        driver.upload(start, self.host.data_ptr(), self.outputs_from, stream)
        return self.poison(request)

    def keep(self, request):
        self.kept[request["slot"]] = self.block[:self.outputs_from // 4].clone()
        return {}

    def compose(self, request):
        driver, stream, start = self.clock.driver, self.stream(), self.block.data_ptr()
        kept = {slot: block.data_ptr() for slot, block in self.kept.items()}
        for slot, source, target, amount in request["copies"]:
            driver.copy(start + target, kept[slot] + source, amount, stream)
        return self.poison(request)

    def poison(self, request):
        driver, stream, start = self.clock.driver, self.stream(), self.block.data_ptr()
        driver.fill_words(start + self.outputs_from, request["guard"], (self.block.nbytes - self.outputs_from) // 4, stream)
        for output in self.outputs:
            if output.numel():
                driver.fill_words(output.data_ptr(), request["poison"], output.numel(), stream)
        driver.reset_cache()
        driver.synchronize()
        return {}

    def download(self, source, first, end):
        driver, amount = self.clock.driver, min(end, self.host.nbytes) - first
        driver.download(self.host.data_ptr() + first, source.data_ptr() + first, amount, self.stream())
        driver.synchronize()
        return {}

    def fetch(self, request):
        return self.download(self.snapshot, *request["bytes"])

    def settle(self, _):
        self.clock.driver.synchronize()
        return self.download(self.block, 0, self.host.nbytes)

    def tensor(self, name, start):
        torch, shape = self.torch, self.shapes[name]
        elems = torch.Size(shape).numel()
        if elems == 0:
            return torch.empty(shape, device=self.device)
        if self.device is not None:
            first = start // self.block.element_size()
            return self.block[first:first + elems].view(shape)
        return torch.frombuffer(self.memory, dtype=torch.float32, count=elems, offset=start).reshape(shape)

    def at(self, request):
        tensors = [self.tensor(name, start) for name, start in zip(INPUTS + OUTPUTS, request["starts"])]
        self.inputs, self.outputs = tensors[:len(INPUTS)], tensors[len(INPUTS):]
        gc.collect()
        return {}

    def compute(self):
        if self.destination_passing:
            self.run(*self.inputs, *self.outputs)
        else:
            self.copy(self.run(*self.inputs))

    def call(self, _):
        try:
            if self.device is not None:
                return self.timed()
            self.compute()
        except Exception as error:
            if is_out_of_memory(error):
                raise Problem("memory", f"{type(error).__name__}: {error}"[:4000]) from error
            raise
        return {}

    def timed(self):
        places = self.cold.data_ptr(), self.block.data_ptr(), self.snapshot.data_ptr(), self.block.nbytes
        time_ns, activities, late = self.clock.time(self.stream(), *places, self.compute)
        return {"time_ns": time_ns, "activities": activities, "late": late}

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
        if self.clock and self.clock.driver.persisting_bytes() != self.clock.persisting_bytes:
            replaced.append("the part of the second-level cache that is set aside")
        return {"replaced": replaced}


if __name__ == "__main__":
    worker = Worker()
    serve({name: getattr(worker, name) for name in (
        "hello", "load", "case", "at", "stage", "keep", "compose", "call", "fetch", "settle", "nothing", "end")})

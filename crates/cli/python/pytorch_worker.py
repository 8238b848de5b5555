"""PyTorch's side of `kernelproof bench --against pytorch`: the operation in eager f32, timed on request.

    {"do": "hello", "threads": 2}                         -> {"torch": "2.15.0", "python": "3.11.2", "threads": 2}
    {"do": "load", "sizes": {...}, "style": "half-split",
     "sets": [{"path": "...", "elems": 123}]}             -> {}
    {"do": "run", "set": 0}                               -> {"ns": 1234567}
    {"do": "save", "path": "..."}                         -> {}

A file of a set holds the nine inputs one after the other as little-endian f32, in the order of `INPUTS`; `save` writes
the four outputs of the last run in the same way.
"""

import gc
import platform
import time

from kernelproof_worker import INPUTS, serve, shapes


def unrotate_half_split(torch, g, cos, sin):
    half = g.shape[-1] // 2
    gs = g * sin
    return g * cos + torch.cat((gs[..., half:], -gs[..., :half]), dim=-1)


def unrotate_interleaved(torch, g, cos, sin):
    gs = g * sin
    return g * cos + torch.stack((gs[..., 1::2], -gs[..., ::2]), dim=-1).flatten(-2)


def backward(torch, unrotate, x):
    """The composition that automatic differentiation of a Llama attention layer runs."""
    cos, sin = x["cos"].unsqueeze(1), x["sin"].unsqueeze(1)
    rotary, size = cos.shape[-1], x["grad_query"].shape[-1]

    def merged(g):
        return g.transpose(1, 2).reshape(g.shape[0], g.shape[2], -1)

    def unrotated(g):
        if rotary == size:
            return merged(unrotate(torch, g, cos, sin))
        return merged(torch.cat((unrotate(torch, g[..., :rotary], cos, sin), g[..., rotary:]), dim=-1))

    q, k, v = unrotated(x["grad_query"]), unrotated(x["grad_key"]), merged(x["grad_value"])
    grad_hidden = q @ x["q_weight"] + k @ x["k_weight"] + v @ x["v_weight"]
    hidden = x["hidden_states"].reshape(-1, x["hidden_states"].shape[-1])
    grad_weights = [u.reshape(-1, u.shape[-1]).T @ hidden for u in (q, k, v)]
    return [grad_hidden, *grad_weights]


class Worker:
    def __init__(self):
        self.torch = None
        self.sets = []
        self.outputs = None
        self.unrotate = unrotate_half_split

    def hello(self, request):
        try:
            import torch
        except ImportError as error:
            return {"error": "no torch", "detail": str(error), "python": platform.python_version()}
        torch.set_num_threads(request["threads"])
        torch.set_grad_enabled(False)
        self.torch = torch
        return {"torch": torch.__version__, "python": platform.python_version(), "threads": torch.get_num_threads()}

    def load(self, request):
        sizes = request["sizes"]
        self.unrotate = unrotate_interleaved if request["style"] == "interleaved" else unrotate_half_split
        self.outputs = None
        self.sets = []
        gc.collect()
        self.sets = [self.read(entry, sizes) for entry in request["sets"]]
        return {}

    def read(self, entry, sizes):
        flat = self.torch.from_file(entry["path"], shared=False, size=entry["elems"], dtype=self.torch.float32)
        tensors, start, shape_of = {}, 0, shapes(sizes)
        for name in INPUTS:
            shape = shape_of[name]
            elems = self.torch.Size(shape).numel()
            # A copy: ordinary memory, as a training step would have.
            tensors[name] = flat[start:start + elems].reshape(shape).clone()
            start += elems
        return tensors

    def run(self, request):
        tensors = self.sets[request["set"]]
        self.outputs = None
        start = time.perf_counter_ns()
        self.outputs = backward(self.torch, self.unrotate, tensors)
        return {"ns": time.perf_counter_ns() - start}

    def save(self, request):
        flat = self.torch.cat([output.reshape(-1) for output in self.outputs])
        if flat.numel() == 0:
            open(request["path"], "wb").close()
            return {}
        target = self.torch.from_file(request["path"], shared=True, size=flat.numel(), dtype=self.torch.float32)
        target.copy_(flat)
        return {}


if __name__ == "__main__":
    worker = Worker()
    serve({"hello": worker.hello, "load": worker.load, "run": worker.run, "save": worker.save})

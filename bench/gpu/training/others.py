"""Other libraries and languages: CuPy, JAX, transformers, torch.compile, NCCL, C."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import torch
from cases import OPTIONS, PYTHON, Problem, apart, tensors

import qkv_rope


def other_libraries() -> dict:
    """CuPy and JAX by DLPack."""
    problem = Problem(2, 40, 64, 4, 2, 16, 16, "half-split")
    inputs = tensors(problem, 8)
    wanted = qkv_rope.backward(*inputs)
    found = {}
    try:
        import cupy

        with cupy.cuda.Stream(non_blocking=True):
            arrays = [cupy.asarray(tensor.cpu().numpy()) for tensor in inputs]
            results = qkv_rope.backward(*arrays)
            assert all(isinstance(result, cupy.ndarray) for result in results)
            found["cupy"] = all(np.array_equal(one.get(), other.cpu().numpy()) for one, other in zip(results, wanted))
    except ImportError as error:
        found["cupy"] = f"not there: {error}"
    try:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax

        if jax.default_backend() == "gpu":
            arrays = [jax.numpy.asarray(tensor.cpu().numpy()) for tensor in inputs]
            results = qkv_rope.backward(*arrays)
            assert all(isinstance(result, jax.Array) for result in results)
            found["jax"] = all(np.array_equal(np.asarray(a), b.cpu().numpy()) for a, b in zip(results, wanted))
        else:
            found["jax"] = f"not there: {jax.default_backend()} only"
    except ImportError as error:
        found["jax"] = f"not there: {error}"
    assert False not in found.values(), found
    return found


def hugging_face() -> dict:
    """patch_llama: gradients of a tiny Llama beside those of the unpatched one."""
    import transformers

    torch.manual_seed(0)
    sizes = dict(vocab_size=64, hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **sizes)).to(OPTIONS.device)
    tokens = torch.arange(22, device=OPTIONS.device).reshape(2, 11)

    def gradients():
        model.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    before = gradients()
    undo = qkv_rope.patch_llama(model)
    largest = max(map(apart, gradients(), before))
    undo()
    assert largest <= 1e-5, largest
    return {"transformers": transformers.__version__, "largest_normwise_difference": largest}


def compiled() -> dict:
    """torch.compile with its default backend, whole graph, two lengths."""
    step = lambda *x: sum(output.square().sum() for output in qkv_rope.qkv_rope(*x, 4, 2))
    whole = torch.compile(step, fullgraph=True, dynamic=True)
    largest = 0.0
    for seq in (64,) if OPTIONS.quick else (64, 96):
        inputs = tensors(Problem(2, seq, 64, 4, 2, 16, 16, "half-split"), 9)[3:]
        gradients = []
        for function in (whole, step):
            leaves = [leaf.clone().requires_grad_() for leaf in inputs[:4]]
            gradients.append(torch.autograd.grad(function(*leaves, *inputs[4:]), leaves))
        largest = max([largest, *map(apart, *gradients)])
    assert largest <= 1e-5, largest
    return {"largest_normwise_difference": largest}


def distributed() -> dict:
    """The distributed example on NCCL, with as many processes as there are GPUs."""
    program = PYTHON / "examples" / "distributed.py"
    command = [sys.executable, str(program), "--backend", "nccl", "--processes", str(torch.cuda.device_count())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    return {"said": done.stdout.strip().splitlines()}


def c_example() -> dict:
    """The C example with the driver's pointers."""
    done = subprocess.run([OPTIONS.c_example], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "GPU" in done.stdout, (done.returncode, done.stdout, done.stderr)
    return {"said": done.stdout.strip().splitlines()}

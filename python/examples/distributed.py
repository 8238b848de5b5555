"""Data parallel (DDP) and tensor parallel training steps, checked against one process that does it all.

    python python/examples/distributed.py [--processes 2] [--backend gloo]
    python python/examples/distributed.py --backend nccl        # one process for each GPU
    torchrun --nproc-per-node 2 python/examples/distributed.py  # the same, started by PyTorch

Tensor parallel is Megatron's column-parallel projection: each rank has its own heads, the hidden states are
everybody's, and their gradient is summed over ranks. qkv_rope needs nothing for it: a rank calls it with its heads.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys

import torch
import torch.distributed as dist
from llama import eager, tables
from torch import Tensor, nn

import qkv_rope

BATCH, SEQ, HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 4, 33, 64, 8, 4, 16
ALLOWED = 1e-5
"""Normwise difference from one process; sums over ranks are rounded in another order."""


def everything(device: torch.device) -> tuple[Tensor, list[Tensor], tuple[Tensor, Tensor]]:
    """Hidden states, the three weights and the rotary tables, the same on every rank."""
    generator = torch.Generator().manual_seed(0)
    normal = lambda *shape: torch.randn(*shape, generator=generator).to(device)
    weights = [normal(count * HEAD_DIM, HIDDEN) for count in (HEADS, KV_HEADS, KV_HEADS)]
    return normal(BATCH, SEQ, HIDDEN), weights, tables(SEQ, HEAD_DIM, device)


def loss_of(outputs: tuple[Tensor, ...]) -> Tensor:
    return sum(output.square().mean(dim=(1, 2, 3)).sum() * output.shape[1] for output in outputs)


def alone(device: torch.device) -> list[Tensor]:
    """The four gradients that one process computes with PyTorch's own operations."""
    hidden, weights, rotary = everything(device)
    leaves = [hidden, *weights]
    for leaf in leaves:
        leaf.requires_grad_()
    loss_of(eager(hidden, *weights, *rotary, HEADS, KV_HEADS)).backward()
    return [leaf.grad for leaf in leaves]


class SumGradients(torch.autograd.Function):
    """Forward: the same on every rank. Backward: the sum over ranks."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        dist.all_reduce(grad)
        return grad


def tensor_parallel(device: torch.device) -> list[Tensor]:
    """This rank's share: the whole gradient of the hidden states, and the rows of the weights that are its own."""
    rank, world = dist.get_rank(), dist.get_world_size()
    hidden, weights, rotary = everything(device)
    hidden.requires_grad_()
    own = [weight.chunk(world)[rank].clone().requires_grad_() for weight in weights]
    outputs = qkv_rope.qkv_rope(SumGradients.apply(hidden), *own, *rotary, HEADS // world, KV_HEADS // world)
    loss_of(outputs).backward()
    return [hidden.grad, *(weight.grad for weight in own)]


class Layer(nn.Module):
    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(weights)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return loss_of(qkv_rope.qkv_rope(hidden, *self.weights, cos, sin, HEADS, KV_HEADS))


def data_parallel(device: torch.device) -> list[Tensor]:
    """The gradients of the weights from this rank's sequences, averaged by DDP."""
    rank, world = dist.get_rank(), dist.get_world_size()
    hidden, weights, rotary = everything(device)
    model = nn.parallel.DistributedDataParallel(Layer(weights), device_ids=[device] if device.type == "cuda" else None)
    (model(hidden.chunk(world)[rank], *rotary) * world).backward()
    return [weight.grad for weight in model.module.weights]


def apart(found: list[Tensor], wanted: list[Tensor]) -> float:
    return max(((one - other).norm() / other.norm()).item() for one, other in zip(found, wanted))


def check(backend: str) -> None:
    """What each rank runs.

    Raises:
        AssertionError: when a gradient is not that of one process.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    if backend == "nccl":
        torch.cuda.set_device(rank % torch.cuda.device_count())
        device = torch.device("cuda", torch.cuda.current_device())
    else:
        device = torch.device("cpu")
    wanted = alone(device)
    own = [wanted[0], *(gradient.chunk(world)[rank] for gradient in wanted[1:])]
    for name, found, expected in (
        ("tensor parallel", tensor_parallel(device), own),
        ("data parallel", data_parallel(device), wanted[1:]),
    ):
        worst = apart(found, expected)
        assert worst <= ALLOWED, f"{name}, rank {rank}: gradients differ by {worst:.1e}, expected at most {ALLOWED}"
        if rank == 0:
            print(f"{name}: {world} processes on {device.type} ({backend}), gradients within {worst:.1e}", flush=True)


def run(rank: int, processes: int, backend: str, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(processes))
    work(backend)


def work(backend: str) -> None:
    dist.init_process_group(backend)
    try:
        check(backend)
        dist.barrier()
    finally:
        dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, help="2, or the number of GPUs with nccl, by default")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    arguments = parser.parse_args()
    if "RANK" in os.environ:
        work(arguments.backend)
        return 0
    default = torch.cuda.device_count() if arguments.backend == "nccl" else 2
    processes = arguments.processes or default
    if processes < 1 or KV_HEADS % processes:
        print(f"--processes: found {processes}, expected a divisor of {KV_HEADS}", file=sys.stderr)
        return 2
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    torch.multiprocessing.spawn(run, (processes, arguments.backend, port), nprocs=processes)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a user would run instead, on one NVIDIA GPU with PyTorch and Triton: times of the sixteen suite cases.

Rivals: `eager_f32` and `eager_tf32` (plain PyTorch), `compile_tf32` (torch.compile), `composition` (one Triton kernel that
un-rotates all heads and rounds to fp16, one that rounds X and W, two cuBLAS products with f32 output, one CUDA graph) and
`gemms_fp16` (its two products alone). Every rival is checked against f64 first. One JSON object a line: case, rival, median and
samples in ns. Cold L2: twice its size is zeroed before each call; times are between CUDA events around the call.

Usage: python3 compose.py [--samples 50] [--rivals composition,eager_f32,...]
"""

import argparse
import json
import statistics

import torch
import triton
import triton.language as tl

HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 24, 4, 96, 1536
ROWS = (HEADS + 2 * KV_HEADS) * HEAD_DIM
CASES = [(128, 2), (128, 16), (128, 32), (128, 64), (256, 4), (256, 8), (293, 2), (512, 8), (541, 4), (1024, 2), (1024, 4),
         (1321, 2), (2048, 1), (2048, 4), (4096, 1), (8192, 1)]
DEVICE = "cuda"


@triton.jit
def unrotate(gq, gk, gv, cos, sin, out, seq, H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr):
    """GROUP heads of one token: U[t, head, :] in fp16."""
    token = tl.program_id(0)
    batch, pos = token // seq, token % seq
    half: tl.constexpr = D // 2
    lane = tl.arange(0, 64)
    inside = lane < half
    table = token * D + lane
    c_low, c_high = tl.load(cos + table, mask=inside), tl.load(cos + table + half, mask=inside)
    s_low, s_high = tl.load(sin + table, mask=inside), tl.load(sin + table + half, mask=inside)
    for index in tl.static_range(GROUP):
        head = tl.program_id(1) * GROUP + index
        if head < H + K:
            if head < H:
                base = gq + ((batch * H + head) * seq + pos) * D
            else:
                base = gk + ((batch * K + head - H) * seq + pos) * D
            low, high = tl.load(base + lane, mask=inside), tl.load(base + half + lane, mask=inside)
            u_low = low * c_low + high * s_high
            u_high = high * c_high - low * s_low
        else:
            base = gv + ((batch * K + head - H - K) * seq + pos) * D
            u_low, u_high = tl.load(base + lane, mask=inside), tl.load(base + half + lane, mask=inside)
        row = out + token * ((H + 2 * K) * D) + head * D
        tl.store(row + lane, u_low.to(tl.float16), mask=inside)
        tl.store(row + half + lane, u_high.to(tl.float16), mask=inside)


@triton.jit
def round_both(x, x16, x_elems, w, w16, w_elems, x_blocks, BLOCK: tl.constexpr):
    """X and W to fp16 in one launch."""
    block = tl.program_id(0)
    if block < x_blocks:
        at = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(x16 + at, tl.load(x + at, mask=at < x_elems).to(tl.float16), mask=at < x_elems)
    else:
        at = (block - x_blocks) * BLOCK + tl.arange(0, BLOCK)
        tl.store(w16 + at, tl.load(w + at, mask=at < w_elems).to(tl.float16), mask=at < w_elems)


def unrotate_torch(grad, cos, sin):
    half = grad.shape[-1] // 2
    scaled = grad * sin.unsqueeze(1)
    return grad * cos.unsqueeze(1) + torch.cat((scaled[..., half:], -scaled[..., :half]), dim=-1)


def eager(gq, gk, gv, x, wq, wk, wv, cos, sin):
    batch, _, seq, _ = gq.shape
    flat = lambda grad: grad.transpose(1, 2).reshape(batch * seq, -1)
    uq, uk, uv = flat(unrotate_torch(gq, cos, sin)), flat(unrotate_torch(gk, cos, sin)), flat(gv)
    rows = x.reshape(batch * seq, -1)
    return uq @ wq + uk @ wk + uv @ wv, uq.T @ rows, uk.T @ rows, uv.T @ rows


class Composition:
    def __init__(self, gq, gk, gv, x, wq, wk, wv, cos, sin):
        self.args = (gq, gk, gv, cos, sin)
        self.seq, self.tokens = gq.shape[2], gq.shape[0] * gq.shape[2]
        self.x, self.w = x, torch.cat((wq, wk, wv))
        half = lambda *shape: torch.empty(shape, device=DEVICE, dtype=torch.float16)
        self.u16, self.x16, self.w16 = half(self.tokens, ROWS), half(self.tokens, HIDDEN), half(ROWS, HIDDEN)

    def prepare(self):
        group = 4
        unrotate[(self.tokens, (HEADS + 2 * KV_HEADS) // group)](*self.args, self.u16, self.seq, HEADS, KV_HEADS, HEAD_DIM, group)
        block = 4096
        x_blocks, w_blocks = triton.cdiv(self.x.numel(), block), triton.cdiv(self.w.numel(), block)
        round_both[(x_blocks + w_blocks,)](self.x, self.x16, self.x.numel(), self.w, self.w16, self.w.numel(), x_blocks, block)

    def products(self):
        return torch.mm(self.u16, self.w16, out_dtype=torch.float32), torch.mm(self.u16.T, self.x16, out_dtype=torch.float32)

    def __call__(self):
        self.prepare()
        return self.products()


def spans(call, samples, graph):
    """Times of `samples` calls in ns."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    run = call
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            call()
        run = captured.replay
    flush = torch.empty(2 * torch.cuda.get_device_properties(0).L2_cache_size, dtype=torch.int8, device=DEVICE)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples + 10)]
    for before, after in events:
        flush.zero_()
        before.record()
        run()
        after.record()
    torch.cuda.synchronize()
    return [round(before.elapsed_time(after) * 1e6) for before, after in events[10:]]


def worst_error(found, expected):
    return max(((f.double() - e).norm() / e.norm()).item() for f, e in zip(found, expected))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--rivals", default="composition,gemms_fp16,eager_f32,eager_tf32,compile_tf32")
    args = parser.parse_args()
    wanted = args.rivals.split(",")
    torch.manual_seed(200)
    compiled = torch.compile(eager)
    for seq, batch in CASES:
        randn = lambda *shape: torch.randn(*shape, device=DEVICE)
        angle = lambda: randn(batch, seq, HEAD_DIM).clamp(-torch.pi, torch.pi)
        weight = lambda heads: randn(heads * HEAD_DIM, HIDDEN) / HIDDEN**0.5
        inputs = (randn(batch, HEADS, seq, HEAD_DIM), randn(batch, KV_HEADS, seq, HEAD_DIM), randn(batch, KV_HEADS, seq, HEAD_DIM),
                  randn(batch, seq, HIDDEN), weight(HEADS), weight(KV_HEADS), weight(KV_HEADS), angle().cos(), angle().sin())
        expected = eager(*[tensor.double() for tensor in inputs])
        composition = Composition(*inputs)

        def tf32(on):
            torch.backends.cuda.matmul.allow_tf32 = on

        def composed():
            hidden, weights = composition()
            return (hidden, *weights.split([HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]))

        rivals = {"composition": (composed, composition, True, True), "gemms_fp16": (composed, composition.products, True, True),
                  "eager_f32": (lambda: eager(*inputs), lambda: eager(*inputs), False, True),
                  "eager_tf32": (lambda: eager(*inputs), lambda: eager(*inputs), True, True),
                  "compile_tf32": (lambda: compiled(*inputs), lambda: compiled(*inputs), True, False)}
        for rival in wanted:
            result, call, allow, graph = rivals[rival]
            tf32(allow)
            error = worst_error(result(), expected)
            samples = spans(call, args.samples, graph)
            print(json.dumps({"case": f"s{seq}b{batch}", "tokens": seq * batch, "rival": rival, "normwise": error,
                              "median_ns": statistics.median_low(samples), "samples_ns": samples}), flush=True)
        del inputs, expected, composition


if __name__ == "__main__":
    main()

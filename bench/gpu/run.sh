#!/usr/bin/env bash
# Times and proves the GPU backend on this machine's GPU, beside what PyTorch users would run, and writes one JSON.
#
# Usage: bench/gpu/run.sh GPU_PROOF OUT_DIR [COMMIT] [INSTRUMENTED]
#   GPU_PROOF     the program, built anywhere with `cargo build --release -p qkv-rope-cuda --example gpu_proof`
#   INSTRUMENTED  the same with kernels of `cargo xtask kernels --arch sm_90 --instrument` for memcheck (default: GPU_PROOF)
# Needs the NVIDIA driver; compute-sanitizer, and Python with PyTorch and Triton for the rivals. It builds nothing.
set -uo pipefail
proof=$(realpath "$1"); out=$2; commit=${3:-unknown}; instrumented=$(realpath "${4:-$1}")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
state() { nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader; }

state > "$out/before.txt"
# Ours and theirs in turns: cuBLAS itself drifts by a tenth with heat.
for round in 1 2 3; do
  python3 "$here/../peers/compose.py" --samples 20 --rivals composition,gemms_fp16 > "$out/peers$round.jsonl"
  "$proof" time 50 > "$out/time$round.jsonl"
  state >> "$out/during.txt"
done
python3 "$here/../peers/compose.py" --samples 10 --rivals eager_f32,eager_tf32 > "$out/peers_eager.jsonl"
"$proof" bits 100 > "$out/bits.jsonl"; echo "bits: $?"
"$proof" check 320 > "$out/check.jsonl"; echo "check: $?"
compute-sanitizer --tool memcheck --print-limit 5000 "$instrumented" small > "$out/memcheck.txt" 2>&1; echo "memcheck: $?"
compute-sanitizer --tool racecheck --print-limit 5000 "$proof" small > "$out/racecheck.txt" 2>&1; echo "racecheck: $?"
python3 "$here/summary.py" "$out" "$commit" | tee "$out/summary.txt"

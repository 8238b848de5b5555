#!/usr/bin/env bash
# Proves and times the GPU backend on this machine's GPU, beside what PyTorch users would run, and writes one JSON.
#
# Usage: bench/gpu/run.sh GPU_PROOF OUT_DIR [COMMIT]
#   GPU_PROOF  the program, built anywhere with `cargo build --release -p qkv-rope-cuda --example gpu_proof`
# Needs the NVIDIA driver; compute-sanitizer, and Python with PyTorch and Triton for the rivals. It builds nothing.
set -uo pipefail
proof=$(realpath "$1"); out=$2; commit=${3:-unknown}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
state() { nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader; }

state > "$out/before.txt"
"$proof" check 320 > "$out/check.jsonl"; echo "check: $?"
"$proof" bits 100 > "$out/bits.jsonl"; echo "bits: $?"
for tool in memcheck racecheck; do
  compute-sanitizer --tool "$tool" --print-limit 5000 "$proof" small > "$out/$tool.txt" 2>&1; echo "$tool: $?"
done
# Ours and theirs in turns: cuBLAS itself drifts by a tenth with heat.
for round in 1 2 3; do
  python3 "$here/../peers/compose.py" --samples 30 --rivals composition,gemms_fp16 > "$out/peers$round.jsonl"
  "$proof" time 50 > "$out/time$round.jsonl"
  state >> "$out/during.txt"
done
python3 "$here/../peers/compose.py" --samples 15 --rivals eager_f32,eager_tf32 > "$out/peers_eager.jsonl"
python3 "$here/summary.py" "$out" "$commit" | tee "$out/summary.txt"

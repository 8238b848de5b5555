#!/usr/bin/env bash
# Judges and times ours and the rivals on this machine's GPU by the evaluator's protocol, and holds its times against an
# independent loop. Builds nothing.
#
# Usage: bench/gpu/evaluate.sh KERNELPROOF OUT_DIR
#   KERNELPROOF  the program, built anywhere with `cargo build --release -p kernelproof`
# Environment:
#   PYTHON   with PyTorch and Triton [python3]
#   LIBRARY  libqkv_rope.so with its functions for GPUs, for the cross-check of ours [left out]
#   RIVALS   full, quick (a few calls, never ranks) or none [full]
#   CASES    cases, separated by spaces, instead of the whole suite: never ranks
#   LIMIT    seconds that one step may take [900]
# Writes bundles into OUT_DIR/runs, which `kernelproof verify OUT_DIR/runs/*` checks, and JSON files beside them.
set -uo pipefail
program=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd); solutions=$here/../../solutions
python=${PYTHON:-python3}; rivals=${RIVALS:-full}; limit=${LIMIT:-900}
suite=(--all); [ -n "${CASES:-}" ] && { suite=(); for case in $CASES; do suite+=(--case "$case"); done; }
failed=0
step() {
  local name=$1 start=$SECONDS; shift
  timeout -k 5 "$limit" "$@" > "$out/$name.txt" 2>&1; local code=$?
  [ $code -eq 0 ] || failed=1
  printf '%s: exit code %s, %s s\n' "$name" "$code" "$((SECONDS - start))"; tail -n "${LINES_SHOWN:-14}" "$out/$name.txt"
}
mkdir -p "$out/runs"
step self-test "$program" eval --self-test --device cuda --python "$python" --json "$out/self-test.json"
step cuda-fast "$program" eval --impl cuda-fast "${suite[@]}" -o "$out/runs"
step cuda-split "$program" eval --impl cuda-split "${suite[@]}" -o "$out/runs"
if [ "$rivals" != none ]; then
  thorough=(); [ "$rivals" = quick ] && thorough=(--quick)
  rival() { step "$1-$2" "$program" eval --solution "$solutions/$1.json" --device cuda --precision "$2" --python "$python" \
    "${suite[@]}" "${thorough[@]}" --call-limit 300 -o "$out/runs"; }
  rival triton-cublas-fp16 fast
  rival pytorch-eager split
  rival pytorch-eager-tf32 fast
  rival pytorch-compiled-tf32 fast
fi
step bench "$program" bench "${suite[@]}" --device cuda --samples 20 --warmup 5 --json "$out/bench.json"
(cd "$out" && step crosscheck "$python" "$here/crosscheck.py" runs --json crosscheck.json ${LIBRARY:+--library "$LIBRARY"})
step verify "$program" verify "$out"/runs/*
exit $failed

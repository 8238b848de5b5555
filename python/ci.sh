#!/usr/bin/env bash
# Builds the wheel, installs it into an empty virtual environment and runs the tests.
#   python/ci.sh            with NumPy: the tests of PyTorch are skipped
#   python/ci.sh --torch    with PyTorch, transformers and mypy, which are downloaded (PyTorch: 0.2 to 3 GB)
# PYTHON names the interpreter. The environment is removed afterwards.
set -euo pipefail
cd "$(dirname "$0")"
packages=(numpy pytest)
case "${1:-}" in
    "") ;;
    --torch) packages+=(torch transformers mypy) ;;
    *) echo "usage: ci.sh [--torch]" >&2; exit 2 ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install --quiet --disable-pip-version-check "maturin>=1.9,<2"
"$folder/venv/bin/maturin" build --release --locked --quiet -i "$python" -o "$folder"
"$python" -m pip install --quiet --disable-pip-version-check "$folder"/qkv_rope-*.whl
# Neither NumPy nor PyTorch is there yet.
(cd "$folder" && "$python" -c 'import qkv_rope; print("qkv_rope", qkv_rope.__version__, "on", qkv_rope.cpu())')
"$python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"
"$python" -m pytest -q -rs -p no:cacheprovider tests

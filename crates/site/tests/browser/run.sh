#!/usr/bin/env bash
# The site in a real browser. Needs node >= 20 with npm, and Debian's chromium; as root it installs what is missing.
set -euo pipefail
cd "$(dirname "$0")"

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
if ((${#missing[@]})); then
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        echo "skipped: needs ${missing[*]}, and only root of a Debian system installs packages"
        exit 0
    fi
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
npm ci --ignore-scripts --no-audit --no-fund --silent
KERNELPROOF_BIN=${KERNELPROOF_BIN:-$(cd ../../../.. && cargo metadata --format-version 1 --no-deps --locked |
    node -e 'process.stdout.write(JSON.parse(require("fs").readFileSync(0)).target_directory)')/release/kernelproof}
export KERNELPROOF_BIN
node --test

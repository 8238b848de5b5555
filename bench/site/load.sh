#!/usr/bin/env bash
# The site under load, over loopback only: 10 000 made-up runs, one client for the time of a page, sixteen for the rate.
# Needs wrk (Debian: apt-get install wrk), curl and python3. Takes about two minutes; SECONDS_MIX, SECONDS_SEARCH and SECONDS_RATE shorten it.
set -euo pipefail
binary=${KERNELPROOF_BIN:-target/release/kernelproof}
runs=${RUNS:-10000}
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
server=
trap '[[ -z $server ]] || kill -INT "$server" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

"$binary" index generate --runs "$runs" --db "$folder/index.sqlite"
"$binary" serve --db "$folder/index.sqlite" --no-import --listen 127.0.0.1:0 >"$folder/address" &
server=$!
began=$SECONDS
until [[ -s $folder/address ]]; do sleep 0.1; kill -0 "$server"; done
site=$(head -1 "$folder/address")
echo "== $site answers $((SECONDS - began)) s after it was started"

curl -s "$site/search.json" | python3 -c '
import json, random, sys
hits = json.load(sys.stdin)["hits"]
random.Random(1).shuffle(hits)
by = lambda kind: [hit["href"] for hit in hits if hit["kind"] == kind]
pages = by("run")[:1500] + by("implementation")[:150] + by("device") + by("operation")
runs = [href.split("/")[-1] for href in by("run")]
pages += [f"/compare/{a}..{b}" for a, b in zip(runs[:300], runs[300:600])]
random.shuffle(pages)
open(sys.argv[1] + "/pages", "w").write("\n".join(pages) + "\n")
words = ["rope", "example", "cpu", "gpu", "2026", "qkv rope", "nothing like it", "a", "avx512", "fast"]
open(sys.argv[1] + "/searches", "w").write("\n".join("/search?q=" + w.replace(" ", "+") for w in words) + "\n")
open(sys.argv[1] + "/operation", "w").write(by("operation")[0])
' "$folder"
operation=$(cat "$folder/operation")

first() { curl -s -o /dev/null -w '%{time_total} s, %{size_download} bytes' -H 'accept-encoding: gzip' "$1"; }
echo "== the operation page for the first time, and again: $(first "$site$operation"); $(first "$site$operation")"
echo "== the first page: $(first "$site/")"
pages=$(wc -l <"$folder/pages")
echo '== one client, each page for the first time'
python3 "$here/first.py" "$site" "$folder/pages"
echo "== one client, the same $pages pages in turn"
ADDRESSES=$folder/pages wrk -t1 -c1 -d${SECONDS_MIX:-15}s --latency -s "$here/mix.lua" "$site" | grep -E 'Latency|%|requests|Non-2xx|Socket' || true
echo '== one client, searches'
ADDRESSES=$folder/searches wrk -t1 -c1 -d${SECONDS_SEARCH:-5}s --latency -s "$here/mix.lua" "$site" | grep -E 'Latency|%|requests|Non-2xx|Socket' || true
echo '== sixteen clients, the operation page, 30 s'
wrk -t1 -c16 -d${SECONDS_RATE:-30}s --latency -H 'accept-encoding: gzip' "$site$operation" | grep -E 'Latency|%|requests|Requests/sec|Non-2xx|Socket' || true
ps -o rss= -p "$server" | awk '{ printf "== resident memory of the server: %.0f MB\n", $1 / 1024 }'

"""Gathers what run.sh left in a folder into one JSON, and prints a table. Usage: python3 summary.py DIR COMMIT"""

import collections
import datetime
import json
import math
import pathlib
import re
import statistics
import sys


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def sites(text):
    """Sanitizer messages by kind and place in the code."""
    found = collections.Counter()
    kind = None
    for line in text.splitlines():
        if match := re.search(r"(Invalid .*|Race reported between .*)", line):
            kind = match.group(1)
        elif (match := re.search(r"(?:at|access at) (\w+\+0x[0-9a-f]+)", line)) and kind:
            found[f"{kind} at {match.group(1)}"] += 1
            kind = None
    return dict(found)


def main(folder, commit):
    checks = [line for line in lines(folder / "check.jsonl") if "check" in line]
    failed = [line for line in checks if line["failures"]]
    bits = lines(folder / "bits.jsonl")
    ours, theirs = collections.defaultdict(list), collections.defaultdict(list)
    choices = {}
    for path in sorted(folder.glob("time*.jsonl")):
        for line in lines(path):
            if "case" in line:
                for how in ("graph", "stream"):
                    ours[line["case"], line["precision"], how].append(line["median_ns"][how])
                choices[line["case"], line["precision"]] = {key: line[key] for key in ("choice", "launches", "workspace_bytes")}
    for path in sorted(folder.glob("peers*.jsonl")):
        for line in lines(path):
            theirs[line["case"], line["rival"]].append(line["median_ns"])
    cases = list(dict.fromkeys(case for case, *_ in ours))
    table = []
    for case in cases:
        row = {"case": case}
        for mode in ("fast", "split"):
            for how in ("graph", "stream"):
                row[f"{mode}_{how}_ns"] = statistics.median(ours[case, mode, how])
            row[f"{mode}_plan"] = choices[case, mode]
        for rival in dict.fromkeys(rival for _, rival in theirs):
            if theirs.get((case, rival)):
                row[f"{rival}_ns"] = statistics.median(theirs[case, rival])
        table.append(row)
    means = {key: geometric_mean([row[key] for row in table]) for key in table[0] if key.endswith("_ns") and all(key in row for row in table)}
    worst = collections.defaultdict(float)
    for line in checks:
        worst[line["problem"]["precision"]] = max(worst[line["problem"]["precision"]], line["normwise"])
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit,
        "machine": {"before": (folder / "before.txt").read_text().strip(), "during": (folder / "during.txt").read_text().splitlines()},
        "protocol": "cold L2 (twice its size zeroed), CUDA events around the call, median of 50 (rivals 20, eager 10), median of three alternating rounds",
        "checks": {"count": len(checks), "failed": failed, "worst_normwise": worst,
                   "positive_bias": [{"tokens": line["problem"]["dims"]["B"] * line["problem"]["dims"]["S"], "precision": line["problem"]["precision"],
                                      "bias": line["bias"]} for line in checks if line["recipe"] == "positive" and line["check"] != "random"]},
        "bits": {"repeats": [line for line in bits if "repeats" in line],
                 "different_layouts": [line for line in bits if line.get("same_bits") is False],
                 "layouts": sum("same_bits" in line for line in bits)},
        "sanitizer": {tool: sites((folder / f"{tool}.txt").read_text()) for tool in ("memcheck", "racecheck") if (folder / f"{tool}.txt").exists()},
        "geometric_mean_ns": means,
        "cases": table,
    }
    (folder / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    for row in table:
        print(row["case"], *(f"{key[:-3]} {row[key] / 1e3:.1f}" for key in row if key.endswith("_ns")))
    print("geometric means, us:", {key[:-3]: round(value / 1e3, 1) for key, value in means.items()})
    print("checks", len(checks), "failed", len(failed), "sanitizer", record["sanitizer"])


main(pathlib.Path(sys.argv[1]), sys.argv[2])

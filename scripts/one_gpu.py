#!/usr/bin/env python3
"""Predicts again every step of one GPU in the first sections of docs/results/predictions.md, next to the
error that the page had then:

    scripts/one_gpu.py                        # today's errors
    scripts/one_gpu.py --before BEFORE.json   # also those of another build: the output of --json

No GPU is needed. CREST names the program (default: build/release/crest)."""
import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from published import CREST, ROOT

PAGE = ROOT / "docs/results/predictions.md"
ROW = re.compile(r"\| `(--model [^`]*)` \| [^|]*\| ([\d.]+) \| ([+-][\d.]+)% \|$")


def rows():
    """(device, flags, measured ms, the error then) of the sections about one H100 or H200"""
    device = None
    for line in PAGE.read_text().split("## All devices")[0].splitlines():
        if line.startswith("## "):
            device = next((d for d in ("h100", "h200") if line.startswith(f"## {d.upper()}")), None)
        if (found := ROW.match(line)) and device:
            yield device, found[1], float(found[2]), float(found[3]) / 100


def predict(row):
    device, flags, measured, then = row
    words = shlex.split(flags)
    command = [CREST, "plan", "--for", "step", "--device", device, *([] if "--precision" in words else ["--precision", "bf16"]), *words,
               "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
    time = json.loads(done.stdout)["time"]
    return {"device": device, "flags": flags, "measured": measured, "then": then, "ms": time["step_ms"],
            "error": time["step_ms"] / measured - 1, "inside": time["step_ms_low"] <= measured <= time["step_ms_high"]}


def summary(errors):
    sizes = [abs(e) for e in errors]
    return (f"{sum(e <= 0.05 for e in sizes)} of {len(sizes)} within 5%, {sum(e <= 0.1 for e in sizes)} within 10%; median "
            f"{100 * statistics.median(sizes):.1f}%, root mean square {100 * math.sqrt(statistics.fmean(e * e for e in sizes)):.1f}%, "
            f"largest {100 * max(sizes):.1f}%")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(predict, rows()))
    if given.json:
        return print(json.dumps(found, indent=1))
    before = {(r["device"], r["flags"]): r["error"] for r in json.loads(open(given.before).read())} if given.before else {}
    if before:
        print("before: " + summary(before.values()))
    print(f"now: {summary(r['error'] for r in found)}; {sum(r['inside'] for r in found)} inside the range\n")
    print("| recipe | measured | first |" + (" before |" if before else "") + " now |")
    print("|---|---|---|" + ("---|" if before else "") + "---|")
    for r in found:
        cells = [f"{100 * e:+.1f}%" for e in (r["then"], *([before[r["device"], r["flags"]]] if before else []), r["error"])]
        print(f"| {r['device'].upper()}: `{r['flags']}` | {r['measured']:g} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares crest plan with every step that Crest measured on two GPUs (scripts/two_gpus.toml) and
prints a table for docs/results/predictions.md:

    scripts/two_gpus.py
    scripts/two_gpus.py --only weights --json

No GPU is needed. CREST names the program (default: build/release/crest)."""
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from published import CREST, given_rows, write_models


def predict(data, models, row):
    flags = [models.get(flag, flag) for flag in shlex.split(row["flags"])]
    command = [CREST, "plan", "--for", "step", *shlex.split(data["flags"]), "--device", row["device"], *flags, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
    time = json.loads(done.stdout)["time"]
    if not time:
        sys.exit(f"{shlex.join(command)}: no prediction")
    return row | {"ms": time["step_ms"], "low": time["step_ms_low"], "high": time["step_ms_high"],
                  "exposed": time["collectives_ms"], "hidden": time["hidden_collectives_ms"],
                  "error": time["step_ms"] / row["measured"] - 1}


def page(rows):
    errors = [abs(r["error"]) for r in rows]
    inside = sum(r["low"] <= r["measured"] <= r["high"] for r in rows)
    text = (f"{sum(e <= 0.05 for e in errors)} of {len(rows)} are within 5%. The median error is "
            f"{100 * statistics.median(errors):.1f}%, the\nlargest {100 * max(errors):.1f}%. {inside} lie inside the range.\n\n")
    text += "| recipe | predicted (range) | exposed, hidden | measured | error |\n|---|---|---|---|---|\n"
    for r in rows:
        text += (f"| {r['device'].upper()}: `{r['flags']}` | {r['ms']:.4g} ({r['low']:.4g} to {r['high']:.4g}) | "
                 f"{r['exposed']:.3g}, {r['hidden']:.3g} | {r['measured']:.4g} | {100 * r['error']:+.1f}% |\n")
    return text


def main():
    given, data, rows = given_rows(__doc__, "two_gpus.toml", ["device", "flags"])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        models = write_models(data, folder)
        rows = list(pool.map(lambda row: predict(data, models, row), rows))
    print(json.dumps(rows, indent=1) if given.json else page(rows), end="")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares crest plan with every step that Crest measured on two GPUs (scripts/two_gpus.toml) and
prints a table for docs/results/predictions.md:

    scripts/two_gpus.py
    scripts/two_gpus.py --only weights --json

No GPU is needed. CREST names the program (default: build/release/crest)."""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
CREST = os.environ.get("CREST", str(ROOT / "build/release/crest"))


def toml_text(table):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def predict(data, folder, row):
    flags = shlex.split(row["flags"])
    model = flags[flags.index("--model") + 1]
    if model in data.get("model", {}):
        path = pathlib.Path(folder) / f"{model}.toml"
        path.write_text(toml_text(data["model"][model]))
        flags[flags.index("--model") + 1] = str(path)
    command = [CREST, "plan", "--for", "step", "--device", row["device"], *flags, "--json"]
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
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", help="rows whose device or flags contain this text")
    arguments.add_argument("--json", action="store_true", help="print the rows as JSON")
    given = arguments.parse_args()
    data = tomllib.loads((ROOT / "scripts/two_gpus.toml").read_text())
    rows = [r for r in data["row"] if not given.only or given.only in r["flags"] or given.only in r["device"]]
    if not rows:
        sys.exit(f"no row has '{given.only}' in its device or flags")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(lambda row: predict(data, folder, row), rows))
    print(json.dumps(rows, indent=1) if given.json else page(rows), end="")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Compares crest plan with every step that Crest measured on two GPUs (scripts/two_gpus.toml) and
prints a table for docs/results/predictions.md:

    scripts/two_gpus.py
    scripts/two_gpus.py --only weights --json
    scripts/two_gpus.py --fit    # the slowdown next to NCCL from one GPU's steps, tried on the other's
    scripts/two_gpus.py --before BEFORE.json    # also the errors of another build: its output of --json

No GPU is needed. CREST names the program (default: build/release/crest)."""
import json
import math
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
    kernels = [] if row.get("copies") else shlex.split(data["nccl"])
    command = [CREST, "plan", "--for", "step", *shlex.split(data["flags"]), *kernels, "--device", row["device"], *flags, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
    time = json.loads(done.stdout)["time"]
    if not time:
        sys.exit(f"{shlex.join(command)}: no prediction")
    return row | {"ms": time["step_ms"], "low": time["step_ms_low"], "high": time["step_ms_high"],
                  "exposed": time["collectives_ms"], "hidden": time["hidden_collectives_ms"],
                  "error": time["step_ms"] / row["measured"] - 1}


NEXT_TO_NCCL = 1.8  # src/laboratory/predict/exposed_time.cpp
BEFORE = 1.19  # the slowdown of one large product


def next_to_nccl(row):
    """Whether kernels of the step run next to NCCL."""
    flags = row["flags"]
    return not row.get("copies") and "tensor-overlap off" not in flags and any(
        word in flags for word in ("bucket", "reduce overlap", "shard weights", "gather forward", "communicator"))


def with_slowdown(row, factor):
    """The step's time with another slowdown, while a collective ends before the kernels next to it. Of a
    time t next to kernels, t / factor hides them; NCCL itself takes 1.03 times its time (a gather 1.12)."""
    longer = 1 - 1 / (1.08 if "weights" in row["flags"] or "forward" in row["flags"] else 1.03)
    overlapped = row["hidden"] / (1 / NEXT_TO_NCCL - longer)
    return row["ms"] + overlapped * (1 / NEXT_TO_NCCL - 1 / factor)


def errors(rows, factor):
    return [with_slowdown(row, factor) / row["measured"] - 1 for row in rows]


def rms(values):
    return math.sqrt(sum(v * v for v in values) / len(values))


def fits(rows):
    """The slowdown fitted to one GPU's steps, and its errors on the other's."""
    rows = [row for row in rows if next_to_nccl(row)]
    text = "| fitted to | steps | slowdown | error there | error on the other GPU (largest) | there with 1.19 |\n|---|---|---|---|---|---|\n"
    for device in ("h100", "h200"):
        own, other = ([row for row in rows if (row["device"] == device) == same] for same in (True, False))
        factor = min((1 + i / 100 for i in range(1, 500)), key=lambda f: rms(errors(own, f)))
        held_out = errors(other, factor)
        text += (f"| {device.upper()} | {len(own)} | {factor:.2f} | {100 * rms(errors(own, factor)):.1f}% | "
                 f"{100 * rms(held_out):.1f}% ({100 * max(map(abs, held_out)):.1f}%) | {100 * rms(errors(other, BEFORE)):.1f}% |\n")
    return text


def page(rows, before):
    errors = [abs(r["error"]) for r in rows]
    inside = sum(r["low"] <= r["measured"] <= r["high"] for r in rows)
    text = (f"{sum(e <= 0.05 for e in errors)} of {len(rows)} are within 5%. The median error is "
            f"{100 * statistics.median(errors):.1f}%, the\nlargest {100 * max(errors):.1f}%. {inside} lie inside the range.\n\n")
    text += f"| recipe | predicted (range) | exposed, hidden | measured |{' before |' if before else ''} error |\n"
    text += f"|---|---|---|---|{'---|' if before else ''}---|\n"
    for r in rows:
        error = before.get((r["device"], r["flags"]))
        then = f"{'' if error is None else f'{100 * error:+.1f}%'} | " if before else ""
        text += (f"| {r['device'].upper()}: `{r['flags']}`{', copies' if r.get('copies') else ''} | {r['ms']:.4g} ({r['low']:.4g} to {r['high']:.4g}) | "
                 f"{r['exposed']:.3g}, {r['hidden']:.3g} | {r['measured']:.4g} | {then}{100 * r['error']:+.1f}% |\n")
    return text


def main():
    given, data, rows = given_rows(__doc__, "two_gpus.toml", ["device", "flags"], ["--fit"], ["--before"])
    before = {(r["device"], r["flags"]): r["error"] for r in json.loads(open(given.before).read())} if given.before else {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        models = write_models(data, folder)
        rows = list(pool.map(lambda row: predict(data, models, row), rows))
    print(json.dumps(rows, indent=1) if given.json else fits(rows) if given.fit else page(rows, before), end="")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Judges whether Crest's loss curves lie on PyTorch's within its run-to-run spread (README.md: the criterion).

  studies/loss_curve/compare.py --crest runs/default --crest runs/autocast \\
      --repeat torch/repeat-1.csv --repeat torch/repeat-2.csv --other torch/weights-2.csv --out OUT

--crest: run folders of crest train. --repeat: PyTorch with the same weights and data, at least two. --other: PyTorch
with other initial weights and the same data. --shuffled: PyTorch with another order of the data (shown, not judged).
Writes loss_curve.svg, .md and .json into OUT. Exit code 0: within, 1: outside, 2: cannot be judged.
"""
import argparse
import csv
import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np

from figure import draw

REPEAT_FACTOR = 2.0  # README.md, criterion 1


class Unjudged(Exception):
    pass


class Curve:
    """losses[i]: training loss of step i + 1, nats a token; val: (step, loss); kind: crest, repeat, other, shuffled."""

    def __init__(self, name, kind, losses, val, policy=""):
        self.name, self.kind, self.losses, self.val, self.policy = name, kind, np.array(losses), val, policy

    def windows(self, size):
        count = len(self.losses) // size
        return self.losses[:count * size].reshape(count, size).mean(1)


def read_crest(folder):
    rows = [json.loads(line) for line in open(folder / "log.jsonl")]
    skipped = [r["step"] for r in rows if r.get("skipped")]
    if skipped:
        raise Unjudged(f"{folder}: steps {skipped[:5]} were skipped")
    policy = re.search(r'^policy = "(\w+)"', (folder / "config.toml").read_text(), re.M)
    return Curve(f"Crest, {folder.name}", "crest", [r["loss"] for r in rows if "loss" in r],
                 [(r["step"], r["val_loss"]) for r in rows if "val_loss" in r and r["step"] > 0], policy[1])


def read_torch(path, kind):
    losses = [float(r["loss"]) for r in csv.DictReader(open(path))]
    val = path.with_suffix(".val.csv")
    rows = csv.DictReader(open(val)) if val.exists() else []
    return Curve(f"PyTorch, {path.stem}", kind, losses, [(int(r["step"]), float(r["val_loss"])) for r in rows])


def distance(a, b):
    """Root mean square over the windows, in nats."""
    return float(np.sqrt(np.mean((a - b) ** 2)))


def check(curves, steps):
    for c in curves:
        if len(c.losses) != steps:
            raise Unjudged(f"{c.name} has {len(c.losses)} steps, not {steps}")
        if not np.isfinite(c.losses).all():
            raise Unjudged(f"{c.name} has losses that are not finite")


def judge(curves, size):
    kind = {k: [c for c in curves if c.kind == k] for k in ("crest", "repeat", "other", "shuffled")}
    if not kind["crest"] or len(kind["repeat"]) < 2:
        raise Unjudged("one run of Crest and two repeats of PyTorch are needed")
    window = {c: c.windows(size) for c in curves}
    if len(window[curves[0]]) < 4:
        raise Unjudged(f"less than four windows of {size} steps")
    center = np.mean([window[c] for c in kind["repeat"]], axis=0)
    pairs = [distance(window[a], window[b]) for a, b in itertools.combinations(kind["repeat"], 2)]
    others = kind["repeat"][:1] + kind["other"]
    result = {"steps": len(curves[0].losses), "window": size, "repeat_distances": pairs, "repeat_spread": max(pairs),
              "weights_distances": [distance(window[a], window[b]) for a, b in itertools.combinations(others, 2)],
              "runs": {}, "failures": []}
    result["weights_spread"] = min(result["weights_distances"], default=None)
    if result["repeat_spread"] == 0:
        raise Unjudged("PyTorch's repeats are equal bit for bit: they have no spread; nudge the weights of one")
    for c in curves:
        # A repeat is compared with the other repeats.
        peers = [window[r] for r in kind["repeat"] if r is not c]
        last = len(center) - len(center) // 4
        difference = window[c] - (np.mean(peers, axis=0) if c.kind == "repeat" else center)
        run = {"kind": c.kind, "policy": c.policy,
               "distance": float(np.mean([distance(window[c], p) for p in peers])),
               "largest": float(np.abs(difference).max()), "last_quarter": float(difference[last:].mean()),
               "final_loss": float(window[c][-1]), "final_val_loss": c.val[-1][1] if c.val else None}
        result["runs"][c.name] = run
        if c.kind != "crest":
            continue
        run["repeat_ratio"] = run["distance"] / result["repeat_spread"]
        if c.policy == "autocast" and not run["repeat_ratio"] <= REPEAT_FACTOR:
            result["failures"].append(f"{c.name}: {run['repeat_ratio']:.2f} times the spread of repeats from them, "
                                      f"more than {REPEAT_FACTOR:g} (criterion 1)")
        if result["weights_spread"] is not None and not run["distance"] <= result["weights_spread"]:
            result["failures"].append(f"{c.name}: {run['distance']:.5f} from the repeats, more than the spread of "
                                      f"initial weights {result['weights_spread']:.5f} (criterion 2)")
    if not any(c.policy == "autocast" for c in kind["crest"]):
        result["unchecked"] = "criterion 1: no run of Crest with --policy autocast"
    elif result["weights_spread"] is None:
        result["unchecked"] = "criterion 2: no run of PyTorch with other weights"
    return result


def markdown(result):
    lines = ["| run | distance to the repeats | largest window | last quarter, signed | loss of the last window | "
             "validation loss |", "|---|---|---|---|---|---|"]
    for name, r in result["runs"].items():
        val = "" if r["final_val_loss"] is None else f"{r['final_val_loss']:.4f}"
        lines.append(f"| {name} | {r['distance']:.5f} | {r['largest']:.5f} | {r['last_quarter']:+.5f} | "
                     f"{r['final_loss']:.4f} | {val} |")
    lines += ["", f"{result['steps']} steps, means over windows of {result['window']} steps, nats a token.",
              f"Repeats of PyTorch are at most {result['repeat_spread']:.5f} apart (root mean square of the windows)."]
    if result["weights_spread"] is not None:
        lines.append(f"Runs of PyTorch with different weights are at least {result['weights_spread']:.5f} apart.")
    for name, r in result["runs"].items():
        if r["kind"] == "crest":
            lines.append(f"{name} ({r['policy']}): {r['repeat_ratio']:.2f} times the spread of the repeats from them.")
    failures = "; ".join(result["failures"])
    lines += ["", f"**Verdict: outside.** {failures}" if failures else "**Verdict: within.**"]
    if "unchecked" in result:
        lines.append("Not checked: " + result["unchecked"] + ".")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crest", type=Path, action="append", default=[])
    for flag in ("--repeat", "--other", "--shuffled"):
        parser.add_argument(flag, type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--window", type=int, default=50, help="steps of a window")
    parser.add_argument("--title", default="Training loss, Crest and PyTorch")
    args = parser.parse_args()
    try:
        curves = [read_crest(f) for f in args.crest]
        for kind in ("repeat", "other", "shuffled"):
            curves += [read_torch(f, kind) for f in getattr(args, kind)]
        check(curves, len(curves[0].losses) if curves else 0)
        result = judge(curves, args.window)
    except (Unjudged, OSError, ValueError) as e:
        print(f"compare.py: cannot be judged: {e}", file=sys.stderr)
        sys.exit(2)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "loss_curve.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "loss_curve.md").write_text(markdown(result))
    (args.out / "loss_curve.svg").write_text(draw(curves, args.window, result, args.title))
    print(markdown(result), end="")
    sys.exit(1 if result["failures"] else 2 if "unchecked" in result else 0)


if __name__ == "__main__":
    main()

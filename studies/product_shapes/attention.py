#!/usr/bin/env python3
"""How well times of attention follow from the tiles of its kernels.

    studies/product_shapes/attention.py                       # calibrations/h100.json and h200.json
    studies/product_shapes/attention.py --profiles FOLDER     # also profiles of an H200 (crest profile --json)

Predicts the bf16 attention of each calibration, each shape from all others, as src/laboratory/predict/time_model.cpp and
attention_tiles.cpp do. Prints the root mean square of the errors, forward and gradient: by FLOPs and bytes, with whole tiles,
with idle multiprocessors, and with other constants. Needs numpy."""
import argparse
import functools
import heapq
import json
import math
import pathlib

import numpy as np

from fit import ROOT, predicted, rms

MULTIPROCESSORS = 132
LONG = 8192  # longer sequences all have the same time for a query and a key


@functools.lru_cache(None)
def tile_factor(batch, tokens, heads, kv_heads, head_dim, gradient, start=None, idle_forward=1.0, idle_gradient=0.7):
    """src/laboratory/predict/attention_tiles.cpp, of whole sequences without a window"""
    start = (0.5 if gradient else 1) if start is None else start
    size = (64 if head_dim > 64 else 128) if gradient else (128 if head_dim > 64 else 192)
    group, tiles = (heads // kv_heads, -(-tokens // 128)) if gradient else (1, -(-tokens // size))
    if gradient:
        items = [group * (-(-tokens // size) - t * 128 // size) + start for t in range(tiles)]
    else:
        before = tiles * size - -(-tokens // 64) * 64  # the last tile is full
        items = sorted(((min((t + 1) * size - before, tokens) - 1) // 128 + 1 + start for t in range(tiles)), reverse=True)
    count = batch * (kv_heads if gradient else heads)
    whole = sum(items) * size * 128 / (tokens * (tokens + 1) / 2 * group)
    idle = idle_gradient if gradient else idle_forward
    if not idle or len(items) * count > 40 * MULTIPROCESSORS:
        return whole
    busy = [0.0] * MULTIPROCESSORS
    for i in range(len(items) * count):
        work = items[i // count]
        if gradient or head_dim > 64 or len(items) * count > 4 * MULTIPROCESSORS:
            heapq.heapreplace(busy, busy[0] + work)
        else:
            at = i % MULTIPROCESSORS
            busy[MULTIPROCESSORS - 1 - at if i // MULTIPROCESSORS % 2 else at] += work
    return whole * (1 + idle * (max(busy) * MULTIPROCESSORS / (sum(items) * count) - 1))


class Points:
    """Attention of one kernel: shapes (batch, tokens, heads, kv_heads, head_dim, gradient), FLOPs, bytes and ms."""

    def __init__(self, rows):
        self.shapes, self.rows = [r[0] for r in rows], np.array([r[1:] for r in rows], float)
        self.y = self.rows[:, 2]

    def prepare(self, idea):
        flops, size, _ = self.rows.T
        factor = [tile_factor(*s, **idea) for s in self.shapes] if idea is not None else 1
        self.x = np.stack([flops * factor, size, np.ones(len(flops))], 1)
        keys = [f / ((10 if s[5] else 4) * s[0] * s[2] * s[1] * s[4]) for s, f in zip(self.shapes, flops)]
        places = ([[s[0] * s[2], min(s[1], LONG), min(k, LONG / 2)] for s, k in zip(self.shapes, keys)] if idea is not None
                  else [[f, b, 1] for f, b in zip(flops, size)])
        self.place = np.log(np.array(places, float))
        return self


def errors(train, test, held_out):
    for i, shape in enumerate(test.shapes):
        use = [j for j, other in enumerate(train.shapes) if not held_out or other != shape]
        if len(use) > 2:
            yield math.log(predicted(train, use, test, i) / test.y[i])


def calibration(device):
    data, found = json.loads((ROOT / f"calibrations/{device}.json").read_text()), {}
    for step in data["steps"]:
        for row, batch, queries, keys, heads, kv_heads, head_dim, _, gradient in step.get("attention", []):
            of, _, flops, size, ms, _ = step["rows"][row]
            key = data["classes"][of][0]
            if " bf16 " in key and queries == keys:
                what = ((batch, queries, heads, kv_heads, head_dim, gradient), flops, size, step["step_ms"])
                found.setdefault(key, {}).setdefault(what, []).append(ms)
    return {key: Points([[*what[:3], sum(ms) / len(ms)] for what, ms in rows.items()]) for key, rows in found.items()}


def profiles(folder):
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        for row in json.loads(file.read_text()).get("instrs", []):
            if row["op"] not in ("attention", "attention_grad") or row["arithmetic"] != "bf16":
                continue
            batch, tokens, width = (int(d) for d in row["type"][row["type"].index("[") + 1:-1].split(","))
            gradient, head_dim = int(row["op"].endswith("_grad")), 64 if row["kernel"].endswith("d64") else 128
            flops, size = row["flops"] / row["calls"], row["bytes"] / row["calls"]
            heads = round(flops / ((10 if gradient else 4) * batch * head_dim * tokens * (tokens + 1) / 2))
            kv_heads = round((width / head_dim - heads) / 2) if gradient else 1
            shape = (batch, tokens, heads, heads if row["kernel"].endswith("cudnn") else kv_heads, head_dim, gradient)
            key = f"{row['kernel']} bf16 {row['type'].split('[')[0]}"
            found.setdefault(key, {}).setdefault((shape, flops, size), []).append(row["ms"] / row["calls"])
    return {key: Points([[*what, sum(ms) / len(ms)] for what, ms in rows.items()]) for key, rows in found.items()}


IDEAS = {"by FLOPs and bytes": None, "whole tiles": {"start": 0, "idle_forward": 0, "idle_gradient": 0},
         "and idle multiprocessors": {"start": 0}, "and starts of items": {}, "starts 0.5": {"start": 0.5}, "starts 1": {"start": 1.0},
         "idle 0.7 forward": {"idle_forward": 0.7}, "idle 1 in the gradient": {"idle_gradient": 1.0}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles")
    given = parser.parse_args()
    known = {device: calibration(device) for device in ("h100", "h200")}
    new = profiles(given.profiles) if given.profiles else {}
    columns = [f"{device.upper()}, {part}" for device in known for part in ("forward", "gradient")]
    columns += ["new, forward", "new, gradient"] if new else []
    print(f"| | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for name, idea in IDEAS.items():
        cells = []
        for points in known.values():
            for grad in (False, True):
                cells.append(rms(e for key, p in points.items() if ("_grad" in key) == grad for e in errors(p.prepare(idea), p, True)))
        for grad in (False, True) if new else ():
            cells.append(rms(e for key, p in new.items() if ("_grad" in key) == grad and key in known["h200"]
                             for e in errors(known["h200"][key].prepare(idea), p.prepare(idea), False)))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

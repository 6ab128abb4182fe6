#!/usr/bin/env python3
"""How well times of matrix products follow from their shapes, tiles and the length of their step.

    studies/product_shapes/fit.py                       # calibrations/h100.json and h200.json
    studies/product_shapes/fit.py --profiles FOLDER     # also profiles of scripts/gpu/slices.py (H200)

Predicts the bf16 products of each calibration, each shape from all others, as src/laboratory/predict/time_model.cpp
does: a line in FLOPs and bytes for each kernel, corrected by the nearest products. Prints the root mean square of the
errors: without shapes, with one idea after the other, and with other constants. Needs numpy."""
import argparse
import json
import math
import pathlib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TILES = ((128, 256, 1), (256, 128, 1), (128, 192, 1), (192, 128, 1), (128, 128, 1.05))


def tile_factor(m, n, k, waits=0.3, idle_below=0.2, multiprocessors=132):
    """src/laboratory/predict/product_shape.cpp"""
    least = math.inf
    for rows, columns, slower in TILES:
        count = math.ceil(m / rows) * math.ceil(n / columns)
        whole = count * rows * columns / (m * n) * slower
        for share in (1, 2, 4, 8):
            if share > 1 and k < share * 1024:
                break
            rounds = count * share / multiprocessors
            idle = waits * (math.ceil(rounds) / rounds - 1) if rounds >= 1 else idle_below * (1 / rounds - 1)
            least = min(least, whole * (1 + idle) * (1.05 if share > 1 else 1))
    return least


def fit_nonnegative(x, y):
    x, best, best_error = x / y[:, None], None, math.inf
    for subset in range(1, 1 << x.shape[1]):
        use = [i for i in range(x.shape[1]) if subset >> i & 1]
        scale = np.abs(x[:, use]).max(0)
        part = np.linalg.lstsq(x[:, use] / scale, np.ones(len(y)), rcond=None)[0] / scale
        error = ((x[:, use] @ part - 1) ** 2).sum()
        if (part >= 0).all() and error + 1e-12 < best_error:
            best, best_error = np.zeros(x.shape[1]), error
            best[use] = part
    return best


class Kernel:
    """Products of a kernel, a row each: m, n, k, FLOPs, bytes, ms, the ms of their step and the step's share of products."""

    def __init__(self, rows):
        self.rows = np.array(rows, float)

    def prepare(self, idea):
        m, n, k, flops, size, ms, step, share = self.rows.T
        tiles = [tile_factor(*p, **idea.get("constants", {})) for p in zip(m, n, k)] if idea.get("tiles") else 1
        self.x = np.stack([flops * tiles, size, np.ones(len(m))], 1)
        self.place = np.log(np.stack([m, n, k] if idea.get("near") else [flops, size], 1))
        self.clock = 1 + idea.get("slower", 0) * share ** idea.get("power", 0) * step / (step + idea.get("half_ms", 10))
        self.y = ms / self.clock
        return self


def predicted(train, use, test, i):
    line = fit_nonnegative(train.x[use], train.y[use])
    ratio = np.log(train.y[use] / (train.x[use] @ line))
    weight = 1 / (((train.place[use] - test.place[i]) ** 2).sum(1) + 1e-6)
    return test.x[i] @ line * math.exp((weight * ratio).sum() / (1 + weight.sum()))


def held_out(kernel):
    shapes = [tuple(r[:3]) for r in kernel.rows]
    for i, shape in enumerate(shapes):
        use = [j for j, other in enumerate(shapes) if other != shape]
        yield math.log(predicted(kernel, use, kernel, i) / kernel.y[i])


def rms(errors):
    errors = list(errors)
    return f"{100 * math.sqrt(sum(e * e for e in errors) / len(errors)):.1f}% ({len(errors)})"


def calibration(device):
    """Rows by kernel; equal products of a step are one row."""
    data, found = json.loads((ROOT / f"calibrations/{device}.json").read_text()), {}
    for step in data["steps"]:
        share = (sum(step["rows"][row][1] * step["rows"][row][4] for row, *_ in step.get("products", []))
                 / sum(row[1] * row[4] for row in step["rows"]))
        for row, m, n in step.get("products", []):
            of, _, flops, size, ms, _ = step["rows"][row]
            key = data["classes"][of][0]
            if " bf16 " in key:
                found.setdefault(key, {}).setdefault((m, n, flops / (2 * m * n), flops, size, step["step_ms"], share), []).append(ms)
    return {key: Kernel([[*what[:5], sum(ms) / len(ms), *what[5:]] for what, ms in rows.items()])
            for key, rows in found.items() if len(rows) >= 8}


def profiles(folder):
    found = {}
    for file in sorted(pathlib.Path(folder).glob("*.json")):
        profile = json.loads(file.read_text())
        rows = [row for row in profile.get("instrs", []) if row["arithmetic"] != "host_link"]
        share = sum(row["ms"] for row in rows if row["kernel"].startswith("cuda.linear")) / (sum(row["ms"] for row in rows) or 1)
        for row in rows:
            if not row["kernel"].startswith("cuda.linear") or row["op"] == "linear_swiglu":
                continue
            dims = [int(d) for d in row["type"][row["type"].index("[") + 1:-1].split(",")]
            m, n, calls = math.prod(dims[:-1]), dims[-1], max(1, row["calls"])
            flops = row["flops"] / calls
            key = f"{row['kernel']} {row['arithmetic']} {row['type'].split('[')[0]}"
            what = (m, n, flops / (2 * m * n), flops, row["bytes"] / calls, sorted(profile["step_ms"])[len(profile["step_ms"]) // 2], share)
            found.setdefault(key, {}).setdefault(what, []).append(row["ms"] / calls)
    return {key: Kernel([[*what[:5], sum(ms) / len(ms), *what[5:]] for what, ms in rows.items()]) for key, rows in found.items()}


ALL = {"near": True, "tiles": True, "slower": 0.28, "power": 2}
IDEAS = {"without shapes": {}, "near: by m, n and k": {"near": True}, "and whole tiles and rounds": {"near": True, "tiles": True},
         "and the clock of long steps, 0.12": ALL | {"slower": 0.12, "power": 0},
         "or 0.24 times the share of products": ALL | {"slower": 0.24, "power": 1},
         "or 0.28 times its square": ALL, "or 0.3 times its power of 2.5": ALL | {"slower": 0.3, "power": 2.5},
         "all, slower 0.24": ALL | {"slower": 0.24}, "all, slower 0.32": ALL | {"slower": 0.32},
         "all, half at 5 ms": ALL | {"half_ms": 5}, "all, half at 20 ms": ALL | {"half_ms": 20},
         "all, waits 0.1": ALL | {"constants": {"waits": 0.1}}, "all, waits 0.6": ALL | {"constants": {"waits": 0.6}},
         "all, idle 0": ALL | {"constants": {"idle_below": 0}}, "all, idle 0.4": ALL | {"constants": {"idle_below": 0.4}}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", action="append", default=[])
    given = parser.parse_args()
    known = {device: calibration(device) for device in ("h100", "h200")}
    folders = {folder: profiles(folder) for folder in given.profiles}
    print("| | H100 | H200 |" + "".join(f" H200, {pathlib.Path(folder).name} |" for folder in folders))
    print("|---|---|---|" + "---|" * len(folders))
    for name, idea in IDEAS.items():
        cells = [rms(e for kernel in known[device].values() for e in held_out(kernel.prepare(idea))) for device in known]
        for new in folders.values():
            errors = []
            for key, test in new.items():
                if key in known["h200"]:
                    train, test = known["h200"][key].prepare(idea), test.prepare(idea)
                    errors += [math.log(predicted(train, range(len(train.y)), test, i) / test.y[i]) for i in range(len(test.y))]
            cells.append(rms(errors))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

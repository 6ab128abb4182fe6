#!/usr/bin/env python3
"""Searches the plain and the modern recipe with the same number of trainings, then measures both and their parts.

  studies/time_to_loss/search.py --crest build/cuda/crest --data build/curve_data --out build/time_to_loss

Trainings run as `crest lab run` in batches, because later ones depend on earlier losses. OUT gets NN.toml (a batch),
NN.json (its rows), rows.json (all of them so far) and crest.db. The last steps are the least important ones: after
--seconds no training starts. torch_twin.py trains nanoGPT's recipe next to it (--torch).
"""
import argparse
import json
import math
import subprocess
import time
from pathlib import Path

SCALES = {
    "gpu": dict(steps=500, batch=16, rate=6e-4, modern_rate=3.6e-3, val_tokens=262144,
                recipe=dict(seq=1024), plain=dict(model="gpt2-124M"), modern=dict(model="modern-124M")),
    "cpu": dict(steps=40, batch=4, rate=7.35e-4, modern_rate=4e-3, val_tokens=2048,
                recipe=dict(seq=64, layers=2, precision="fp32", threads=1),
                plain=dict(model="nano"), modern=dict(model="modern-nano")),
}
WSD = dict(schedule="wsd", decay_share=0.65, decay_shape="linear", min_lr=0)
PARTS = {
    "Muon": dict(optimizer="muon"),
    "RoPE": dict(position="rope"),
    "untied head": dict(tied=False),
    "QK norm": dict(qk_norm="head"),
    "ReLU squared": dict(activation="relu2"),
    "zero projections": dict(zero_projections=True),
    "norms without weights, no biases": dict(norm="rms", norm_eps=1e-6, norm_weight=False, bias=False,
                                             embedding_norm=True),
    "logit cap": dict(logit_cap=15),
    "WSD": WSD,
    "rates by group": dict(lr_embedding=8e-3, lr_vectors=8e-3),
    "RoPE and Muon": dict(position="rope", optimizer="muon"),
}


def literal(value):
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


class Lab:
    """Runs trainings and keeps their rows. A training is a dict of keys of the lab's file."""

    def __init__(self, args, scale):
        self.args, self.scale, self.rows, self.count, self.started = args, scale, [], 0, time.time()
        self.done = {}    # by name_of the training
        self.shrink = {}  # keys of a dry run

    def name_of(self, training):
        return json.dumps(self.keys(training), sort_keys=True)

    def known(self, variant, training):
        """The loss of a training that ran before, perhaps as another variant; NaN: none did."""
        row = self.done.get(self.name_of(training))
        if not row:
            return math.nan
        if row["keys"]["variant"] != variant:
            self.rows.append(dict(row, keys=dict(row["keys"], variant=variant)))
        return row["columns"]["val_loss"]

    def left(self):
        return self.args.seconds - (time.time() - self.started)

    def keys(self, training):
        keys = dict(self.scale["recipe"], seed=1, batch=self.scale["batch"])
        keys.update(training)
        keys.setdefault("val_batches", self.scale["val_tokens"] // (keys["seq"] * keys["batch"]))
        if self.shrink:
            keys.update(self.shrink, model="modern-nano" if "modern" in keys["model"] else "nano", batch=2,
                        steps=max(2, keys["steps"] // 50))
        return keys

    def run(self, wanted):
        """[(variant, training)] -> last validation losses; NaN: not run, or failed. The first training of a file is
        short: the lab repeats it at the end for the noise floor of times, and it takes the process's warm-up."""
        losses = [self.known(variant, training) for variant, training in wanted]
        missing = [i for i, loss in enumerate(losses) if math.isnan(loss)]
        if not missing or self.left() < 5:
            return losses
        self.count += 1
        warm = dict(self.scale["plain"], lr=self.scale["rate"], steps=30 if self.args.scale == "gpu" else 5)
        file = self.args.out / f"{self.count:02}.toml"
        text = 'name = "time-to-loss"\ntitle = "Search"\nkind = "train"\n'
        for i, (variant, training) in enumerate([("warm-up", warm), *(wanted[k] for k in missing)]):
            text += f'\n[[variant]]\nname = "{variant} #{i}"\n'
            text += "".join(f"{key} = {literal(value)}\n" for key, value in self.keys(training).items())
        file.write_text(text + '\n[columns]\ntrained_flops = "executed_flops / tokens * trained_tokens"\n')
        began = time.time()
        command = [self.args.crest, "lab", "run", str(file), "--scale", "small", "--json", "--store",
                   str(self.args.out / "crest.db"), "--budget", f"{max(1, int(self.left()))}s"]
        if self.args.data:
            command += ["--data", str(self.args.data)]
        done = subprocess.run(command, capture_output=True, text=True)
        print(done.stderr[-1500:] if done.returncode else "", end="")
        if done.stdout.strip():
            file.with_suffix(".json").write_text(done.stdout)
            for row in json.loads(done.stdout)[0]["rows"]:
                variant, i = row["keys"]["variant"].rsplit(" #", 1)
                if int(i) == 0:
                    continue
                row["keys"]["variant"] = variant
                self.rows.append(row)
                loss = row["columns"].get("val_loss")
                place = missing[int(i) - 1]
                if isinstance(loss, float):
                    losses[place] = loss
                    self.done[self.name_of(wanted[place][1])] = row
                ms = row["columns"].get("ms", {})
                print(f"  {loss if loss is None else round(loss, 4)}  "
                      f"{ms.get('value', 0) if isinstance(ms, dict) else ms:.2f} ms  {variant}: "
                      f"{ {k: v for k, v in wanted[place][1].items() if k not in ('precision', 'threads')} }")
        print(f"batch {self.count}: rc {done.returncode}, {time.time() - began:.1f} s, {self.left():.0f} s left",
              flush=True)
        (self.args.out / "rows.json").write_text(json.dumps(self.rows))
        return losses


class Search:
    """Coordinate search of rate, batch and one more setting. All trainings see the same number of tokens."""

    def __init__(self, name, base, scale, tokens_share, rates, other):
        self.name, self.base, self.scale, self.rates = name, base, scale, rates
        self.steps = round(scale["steps"] * tokens_share)  # with the scale's batch
        self.key, self.values = other                      # the first value is the default
        self.losses = {}                                   # (rate, batch factor, value) -> loss

    def training(self, point, share=1.0):
        rate, factor, value = point
        return dict(self.base, lr=float(f"{rate:.4g}"), batch=round(self.scale["batch"] * factor),
                    steps=max(2, round(self.steps * share / factor)), **{self.key: value})

    def best(self):
        known = {p: loss for p, loss in self.losses.items() if not math.isnan(loss)}
        return min(known, key=known.get)

    def first(self):
        return [(rate, 1.0, self.values[0]) for rate in self.rates]

    def second(self):
        rate, tried = self.best()[0], sorted(self.rates)
        edge = [rate * 2] if rate == tried[-1] else [rate / 2] if rate == tried[0] else []
        return [(rate, 1.0, self.values[1]), (rate, 0.5, self.values[0]), (rate, 2.0, self.values[0])] + [
            (r, 1.0, self.values[0]) for r in edge]

    def third(self):
        """The better value with the better batch, and the rate next to theirs."""
        rate, factor, _ = self.best()
        same = {f: self.losses.get((self.best()[0], f, self.values[0]), math.inf) for f in (0.5, 1.0, 2.0)}
        base = [p for p in self.losses if p[1] == 1.0]
        value = min((p for p in base), key=lambda p: self.losses[p] if p[0] == rate else math.inf)[2]
        if factor == 1.0 and min(same, key=same.get) != 1.0:
            factor = min(same, key=same.get)
        step = {0.5: 0.5, 1.0: 0.7, 2.0: 2.0}[factor]
        points = [(rate, factor, value), (rate * step, factor, value), (rate * 1.4, factor, value),
                  (rate * 0.7, factor, value), (rate / step, factor, value)]
        fresh = [p for p in dict.fromkeys(points) if p not in self.losses]
        return fresh[:2]


def together(lab, searches, stage):
    wanted = [(s, p) for s in searches for p in getattr(s, stage)()]
    losses = lab.run([(f"{s.name}, searched", s.training(p)) for s, p in wanted])
    for (s, p), loss in zip(wanted, losses):
        s.losses[p] = loss
    for s in searches:
        print(f"{s.name}: best {s.best()} {s.losses[s.best()]:.4f}", flush=True)


def crossing(points, target):
    """Share of the tokens at the target, on a line over the logarithm through the two points nearest to it."""
    points = sorted((s, loss) for s, loss in points if not math.isnan(loss))
    if len(points) < 2 or math.isnan(target):
        return 0.6  # out of time
    pairs = list(zip(points, points[1:]))
    pair = next((p for p in pairs if p[0][1] > target >= p[1][1]), pairs[0] if target > points[0][1] else pairs[-1])
    (a, ya), (b, yb) = pair
    slope = (yb - ya) / math.log(b / a)
    return math.exp(math.log(a) + (target - ya) / min(slope, -1e-3))


def shares_around(c):
    return [round(0.85 * c, 3), round(1.2 * c, 3)]


def wait_for_torch(args):
    """PyTorch compiled while the first search ran. It trains now, alone on the device."""
    if args.torch:
        (args.out / "go").touch()
        end = time.time() + 45
        while time.time() < end and not (args.out / "torch_done").exists():
            time.sleep(0.1)
        print(f"waited for PyTorch until {'it ended' if (args.out / 'torch_done').exists() else 'the limit'}",
              flush=True)


def arguments(description, more=None):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crest", default="build/cuda/crest")
    parser.add_argument("--data", type=Path, help="default: generated text")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", choices=SCALES, default="gpu")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--torch", action="store_true", help="let torch_twin.py train after the first search")
    if more:
        more(parser)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def main():
    args = arguments(__doc__)
    scale = SCALES[args.scale]
    lab = Lab(args, scale)
    r, m = scale["rate"], scale["modern_rate"]
    plain = Search("plain", scale["plain"], scale, 1.0, [r, 2 * r, 4 * r], ("beta2", [0.95, 0.99]))
    modern = Search("all parts", scale["modern"], scale, 0.5, [m / 2, m, 2 * m], ("decay_share", [0.65, 1]))
    searches = [plain, modern]
    together(lab, searches, "first")
    wait_for_torch(args)
    together(lab, searches, "second")
    together(lab, searches, "third")

    # The target, and one shorter schedule of each recipe to see where it gets there.
    best = {s.name: s.best() for s in searches}
    wanted = [("plain", dict(plain.training(plain.first()[0]), seed=seed)) for seed in (1, 2, 3)]
    losses = lab.run(wanted + [("probe", s.training(best[s.name], 0.5)) for s in searches])
    target = sum(losses[:3]) / 3
    shares = {}
    for s, probe in zip(searches, losses[3:]):
        shares[s.name] = shares_around(crossing([(0.5, probe), (1.0, s.losses[best[s.name]])], target))
    print(f"target {target:.4f} of {losses[:3]}; shares of the search's tokens {shares}", flush=True)

    def seeds(variant, s, own, share, seeds=(1, 2, 3)):
        return [(variant, dict(s.training(best[s.name], x), seed=n, **own)) for x in share for n in seeds]

    no_muon = dict(WSD, optimizer="adamw")
    no_muon[modern.key] = best["all parts"][2]
    less = [round(1.1 * x, 3) for x in shares["all parts"]]
    finals = (seeds("plain, tuned", plain, {}, shares["plain"]) + seeds("all parts", modern, {}, shares["all parts"]))
    losses = lab.run(finals)
    # A recipe that is not yet on both sides of the target gets a third length.
    for i, (name, s) in enumerate((("plain, tuned", plain), ("all parts", modern))):
        low, high = (sum(losses[6 * i + 3 * j:6 * i + 3 * j + 3]) / 3 for j in (0, 1))
        if low <= target:
            lab.run(seeds(name, s, {}, [round(0.75 * shares[s.name][0], 3)]))
        elif high > target:
            lab.run(seeds(name, s, {}, [round(1.35 * shares[s.name][1], 3)]))

    screened = lab.run([(name, dict(plain.training(best["plain"], shares["plain"][0]), **own))
                        for name, own in PARTS.items()])
    lab.run(seeds("all parts but Muon", modern, no_muon, [less[0], round(1.35 * less[1], 3)]))

    # The second length of each part, from the most to the least useful one.
    low, high = shares["plain"]
    order = sorted(zip(screened, PARTS), key=lambda x: (math.isnan(x[0]), x[0]))
    lab.run([(name, dict(plain.training(best["plain"], high if loss > target else round(0.7 * low, 3)), **PARTS[name]))
             for loss, name in order])


if __name__ == "__main__":
    main()

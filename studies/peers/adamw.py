#!/usr/bin/env python3
"""Crest's AdamW update beside PyTorch's fused, foreach and for-loop AdamW, on this CPU or a GPU.

  adamw.py [--device cpu|cuda] [--threads 1] [--rounds 5] [--model micro] [--vocab 8192]

All four update the fp32 parameters of a GPT-2 with fp32 state, on a CPU with the same number of
threads, in interleaved rounds. Crest's time is that of the optimizer's instructions in a step
(crest profile, without clipping). PyTorch's is optimizer.step() on the model's tensors, after a
pass over the gradients, as in a step where the backward pass has just written them. Needs torch.
CREST is the program (default: build/release/crest).

Prints one JSON line for each of them: the median over the rounds in ms, the fastest and the slowest
round, nanoseconds for each parameter, gigabytes a second, and the ratio to Crest of the same round
(median, least, most).
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import time
from pathlib import Path

import torch

KINDS = {"torch fused": dict(fused=True), "torch foreach": dict(foreach=True), "torch for-loop": dict(foreach=False)}
BYTES = 28  # a parameter's weight, gradient and two moments read, three of them written


def crest(command, args, *flags):
    """Its JSON."""
    program = os.environ.get("CREST") or str(Path(__file__).resolve().parents[2] / "build/release/crest")
    threads = ["--threads", str(args.threads)] if args.device == "cpu" else []
    words = [program, command, "--json", "--device", args.device, *threads, "--model", args.model, "--vocab", str(args.vocab), "--batch", "1", "--seq", "64", "--precision", "fp32", "--optimizer", "adamw",
             "--clip", "0", *flags]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"adamw: crest {command} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def crest_ms(args):
    """Time of the update's AdamW instructions."""
    profile = crest("profile", args, "--no-store", "--samples", str(args.steps), "--warmup", "1",
                    "--rates", "fp32=1e11,bf16=1e11,bandwidth=1e10")  # not used, and not measured
    rows = [i["ms"] for i in profile["instrs"] if i["phase"] == "update" and i["op"].startswith("adamw")]
    if not rows:
        raise SystemExit("adamw: the profile has no AdamW instruction")
    return sum(rows)


def shapes(args):
    """Of the tensors of a GPT-2, as PyTorch has them."""
    plan = crest("plan", args, "--for", "step")
    m = plan["model"]
    c, ff = m["width"], m["ff"]
    layer = [(c,), (c,), (3 * c, c), (3 * c,), (c, c), (c,), (c,), (c,), (ff, c), (ff,), (c, ff), (c,)]
    result = [(m["vocab"], c), (m["context"], c), *(layer * m["layers"]), (c,), (c,)]
    if sum(math.prod(s) for s in result) != plan["parameters"]["total"]:
        raise SystemExit(f"adamw: {args.model} is no GPT-2")
    return result


class Peer:
    def __init__(self, sizes, options, device):
        self.cuda = device == "cuda"
        self.weights = [torch.nn.Parameter(torch.randn(size, device=device)) for size in sizes]
        for w in self.weights:
            w.grad = torch.randn_like(w)
        self.optimizer = torch.optim.AdamW(self.weights, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **options)
        self.optimizer.step()  # creates the state

    def ms(self, steps):
        times = []
        for _ in range(steps):
            for w in self.weights:
                w.grad.mul_(0.99)
            if self.cuda: torch.cuda.synchronize()
            begin = time.perf_counter()
            self.optimizer.step()
            if self.cuda: torch.cuda.synchronize()
            times.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help="of each contender in a round")
    parser.add_argument("--model", default="micro")
    parser.add_argument("--vocab", type=int, default=8192)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    sizes = shapes(args)
    parameters = sum(math.prod(s) for s in sizes)
    peers = {name: Peer(sizes, options, args.device) for name, options in KINDS.items()}
    rounds = []
    for _ in range(args.rounds):
        row = {"crest": crest_ms(args)}
        row.update({name: peer.ms(args.steps) for name, peer in peers.items()})
        rounds.append(row)
    for name in rounds[0]:
        ms = [row[name] for row in rounds]
        ratios = sorted(row[name] / row["crest"] for row in rounds)
        middle = statistics.median(ms)
        print(json.dumps({
            "contender": name, "parameters": parameters, "tensors": len(sizes), "device": args.device,
            "threads": args.threads,
            "torch": torch.__version__, "rounds": args.rounds, "ms": round(middle, 2), "ms_least": round(min(ms), 2),
            "ms_most": round(max(ms), 2), "ns_per_parameter": round(middle * 1e6 / parameters, 3),
            "gb_per_second": round(BYTES * parameters / middle / 1e6, 2),
            "over_crest": [round(x, 2) for x in (statistics.median(ratios), ratios[0], ratios[-1])]}), flush=True)


if __name__ == "__main__":
    main()

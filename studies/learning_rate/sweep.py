#!/usr/bin/env python3
"""Trains nano and micro with many learning rates and numbers of tokens a step.

    sweep.py run CREST OUT.jsonl --text NAME=FILE:TOKENIZER ... [--seconds N] [--jobs N] [--scale T] [--warmup STEPS]
                 [--most-tokens N]
    sweep.py table OUT.jsonl

`run` adds a line for each run. --scale: one rate for each number of tokens, times sqrt(tokens / T) below T. `table` prints, for each number of tokens and each
multiple of the rate of large steps, how far the last validation loss is above the best of its group (same model,
text, steps and seed), and the largest rise of a mean of 5 steps after the warm-up.
"""
import argparse
import collections
import concurrent.futures
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time

SHAPES = {128: (64, 2), 512: (64, 8), 2048: (128, 16), 8192: (256, 32), 32768: (256, 128), 65536: (256, 256)}
WIDTHS = {"nano": 128, "micro": 384}
MULTIPLES = [0.125, 0.25, 0.35, 0.5, 0.7, 1, 1.41, 2]


def rate_of(model):
    return 6e-4 * (768 / WIDTHS[model]) ** 0.5


def plan(texts, scale, most_tokens):
    for model, text, tokens in itertools.product(WIDTHS, texts, SHAPES):
        if tokens > most_tokens:
            continue
        for steps in [60, 300] + [1000] * (tokens <= 8192):
            for multiple in [min(1, tokens / scale) ** 0.5] if scale else MULTIPLES:
                if multiple > 1 and tokens < 8192:
                    continue
                for seed in [1, 2] if tokens <= 8192 and steps < 1000 else [1]:
                    yield {"model": model, "text": text, "tokens": tokens, "steps": steps, "multiple": multiple,
                           "seed": seed}


def train(crest, data, folder, run, warmup):
    seq, batch = SHAPES[run["tokens"]]
    command = [crest, "train", "--data", data, "--model", run["model"], "--seq", str(seq), "--batch", str(batch),
               "--steps", str(run["steps"]), "--seed", str(run["seed"]), "--save-every", "0", "--deterministic",
               "--val-batches", str(max(4, 32768 // run["tokens"])), "--out", folder,
               "--lr", repr(rate_of(run["model"]) * run["multiple"])]
    if warmup is not None:
        command += ["--warmup", str(min(warmup, run["steps"]))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {**run, "error": done.stderr[-300:]}
    rows = [json.loads(line) for line in open(folder + "/log.jsonl")]
    steps = [row for row in rows if row.get("loss") is not None]
    rates = [row["lr"] for row in steps]
    return {**run, "lr": max(rates), "warmup": rates.index(max(rates)),
            "loss": [round(row["loss"], 3) for row in steps],
            "validation": [round(row["val_loss"], 4) for row in rows if row.get("val_loss") is not None]}


def run_all(args):
    work = tempfile.mkdtemp(dir="/dev/shm")
    data = {}
    for text in args.text:
        name, source = text.split("=", 1)
        file, tokenizer = source.split(":", 1)
        data[name] = f"{work}/{name}"
        subprocess.run([args.crest, "data", "prepare", file, "--tokenizer", tokenizer, "--out", data[name]], check=True,
                       stdout=subprocess.DEVNULL)
    runs = list(plan(data, args.scale, args.most_tokens))
    random.Random(1).shuffle(runs)  # so that a time limit takes a sample
    begun = time.monotonic()

    def one(i):
        if time.monotonic() - begun > args.seconds:
            return None
        folder = f"{work}/run{i}"
        result = train(args.crest, data[runs[i]["text"]], folder, runs[i], args.warmup)
        shutil.rmtree(folder, ignore_errors=True)
        return result

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, open(args.out, "a") as out:
        for result in pool.map(one, range(len(runs))):
            if result:
                out.write(json.dumps(result) + "\n")
    shutil.rmtree(work)


def rise_of(run):
    """The largest rise of a mean of 5 steps above the lowest one before it, after the warm-up."""
    means = [statistics.mean(run["loss"][i:i + 5]) for i in range(run["warmup"], len(run["loss"]) - 4)]
    lowest = itertools.accumulate(means, min)
    return max(mean - low for mean, low in zip(means, lowest))


def table(args):
    runs = [json.loads(line) for line in open(args.out)]
    print(f"{len(runs)} runs, {sum('error' in run for run in runs)} failed")
    groups = collections.defaultdict(list)
    for run in runs:
        if "error" not in run:
            groups[tuple(run[key] for key in ("model", "text", "tokens", "steps", "seed"))].append(run)
    above, rises = collections.defaultdict(list), collections.defaultdict(list)
    for (model, _, tokens, _, _), group in groups.items():
        best = min(run["validation"][-1] for run in group)
        for run in group:
            key = (tokens, run["multiple"])
            if len(group) >= 3:
                above[key].append(run["validation"][-1] / best - 1)
            rises[key].append(rise_of(run))
    print("| tokens | " + " | ".join(str(m) for m in MULTIPLES) + " |\n" + "|---" * (len(MULTIPLES) + 1) + "|")
    for tokens in SHAPES:
        cells = [f"{statistics.mean(above[tokens, m]):.1%}, {max(rises[tokens, m]):.2f}"
                 if above[tokens, m] and rises[tokens, m] else "" for m in MULTIPLES]
        print(f"| {tokens} | " + " | ".join(cells) + " |")
    for key in sorted(rises):
        if key[1] not in MULTIPLES:
            print(f"{key[0]} tokens: {key[1]:.2f} of the rate, largest rise {max(rises[key]):.2f} "
                  f"of {len(rises[key])} runs")


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
commands = parser.add_subparsers(required=True)
sub = commands.add_parser("run")
sub.add_argument("crest")
sub.add_argument("out")
sub.add_argument("--text", action="append", required=True)
sub.add_argument("--seconds", type=float, default=600)
sub.add_argument("--jobs", type=int, default=os.cpu_count())
sub.add_argument("--scale", type=float)
sub.add_argument("--warmup", type=int)
sub.add_argument("--most-tokens", type=int, default=max(SHAPES))
sub.set_defaults(do=run_all)
sub = commands.add_parser("table")
sub.add_argument("out")
sub.set_defaults(do=table)
arguments = parser.parse_args()
arguments.do(arguments)

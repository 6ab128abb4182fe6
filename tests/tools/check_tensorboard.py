#!/usr/bin/env python3
"""Reads Crest's event files with TensorBoard's own reader.

  python3 -m venv .venv && .venv/bin/pip install tensorboard setuptools
  .venv/bin/python tests/tools/check_tensorboard.py runs/demo/tensorboard    # prints the scalars of a run
  .venv/bin/python tests/tools/check_tensorboard.py --train build/release/crest
  .venv/bin/python tests/tools/check_tensorboard.py --writer build/release/tests/test_ui
"""
import argparse
import importlib.metadata
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

# The tag of each column of log.jsonl; validation rows have a val_loss only.
TAGS = {"loss": "train/loss", "lr": "lr", "grad_norm": "grad_norm", "tokens_per_second": "tokens_per_second",
        "val_loss": "val/loss"}


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value, e.wall_time) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def check_writer(program):
    """Lets the unit test write a file, and compares what the reader finds with what the test wrote."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, CREST_TENSORBOARD_OUT=folder)
        subprocess.run([program, "--gtest_filter=Tensorboard.WritesAFile"], env=env, check=True, stdout=subprocess.DEVNULL)
        scalars = read(folder)
    assert list(scalars) == ["train/loss"], scalars
    first, second = scalars["train/loss"]
    assert first == (1, 4.25, 1000.0), first
    assert second[0] == 2 and math.isnan(second[1]), second
    print("ok: TensorBoard reads what the unit test wrote")


def single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def check_run(crest):
    """Trains a few steps; every number of log.jsonl must come out of the event files."""
    with tempfile.TemporaryDirectory() as folder:
        words = random.Random(1).choices(["a", "training", "step", "is", "one", "program", "that", "everybody", "reads"], k=8000)
        with open(f"{folder}/text.txt", "w") as f:
            f.write(" ".join(words))
        run = f"{folder}/run"
        subprocess.run([crest, "train", f"{folder}/text.txt", "--out", run, "--model", "nano", "--batch", "2", "--seq", "64",
                        "--steps", "8", "--device", "cpu"], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        with open(f"{run}/log.jsonl") as f:
            log = [json.loads(line) for line in f]
        scalars = read(f"{run}/tensorboard")
    want = {tag: [(row["step"], single(row[key])) for row in log if key in row] for key, tag in TAGS.items()}
    want = {tag: rows for tag, rows in want.items() if rows}
    assert set(scalars) == set(want), (set(scalars), set(want))
    for tag, rows in want.items():
        got = [(step, value) for step, value, _ in scalars[tag]]
        assert [s for s, _ in got] == [s for s, _ in rows], (tag, got, rows)
        # log.jsonl rounds to five digits.
        assert all(math.isclose(a, b, rel_tol=1e-4) for (_, a), (_, b) in zip(got, rows)), (tag, got, rows)
    counts = ", ".join(f"{tag} {len(rows)}" for tag, rows in sorted(want.items()))
    print(f"ok: tensorboard {importlib.metadata.version('tensorboard')} reads the whole run: {counts}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--writer", metavar="TEST_PROGRAM")
    parser.add_argument("--train", metavar="CREST")
    args = parser.parse_args()
    if not (args.folder or args.writer or args.train):
        parser.error("name a folder, --writer or --train")
    try:
        if args.writer:
            check_writer(args.writer)
        if args.train:
            check_run(args.train)
        if args.folder:
            for tag, rows in read(args.folder).items():
                print(f"{tag}: {len(rows)} values, step {rows[0][0]} {rows[0][1]:.6g} ... step {rows[-1][0]} {rows[-1][1]:.6g}")
    except ImportError as e:
        print(f"skipped: {e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

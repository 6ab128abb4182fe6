#!/usr/bin/env python3
"""Reads Crest's event files with TensorBoard's own reader.

  python3 -m venv .venv && .venv/bin/pip install tensorboard setuptools
  .venv/bin/python tests/ui/read_tensorboard.py runs/demo/tensorboard       # prints the scalars of a run
  .venv/bin/python tests/ui/read_tensorboard.py --check build/release/tests/test_ui
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def read(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(e.step, e.value, e.wall_time) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def check(program):
    """Lets the unit test write a file, and compares what the reader finds with what the test wrote."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, CREST_TENSORBOARD_OUT=folder)
        subprocess.run([program, "--gtest_filter=Tensorboard.WritesAFile"], env=env, check=True, stdout=subprocess.DEVNULL)
        scalars = read(folder)
    assert list(scalars) == ["train/loss"], scalars
    first, second = scalars["train/loss"]
    assert first == (1, 4.25, 1000.0), first
    assert second[0] == 2 and math.isnan(second[1]), second
    print("ok: TensorBoard reads what Crest wrote")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--check", metavar="TEST_PROGRAM")
    args = parser.parse_args()
    if args.check:
        check(args.check)
    elif args.folder:
        for tag, rows in read(args.folder).items():
            print(f"{tag}: {len(rows)} values, step {rows[0][0]} {rows[0][1]:.6g} ... step {rows[-1][0]} {rows[-1][1]:.6g}")
    else:
        parser.error("name a folder or --check")
    return 0


if __name__ == "__main__":
    sys.exit(main())

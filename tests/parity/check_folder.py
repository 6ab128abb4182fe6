#!/usr/bin/env python3
"""Loads a folder that Crest wrote with transformers and compares its logits with a fixture's.

  check_folder.py FOLDER FIXTURE [--tensors expected|delta]

The folder must load without a missing, unexpected or differently shaped tensor. With `expected` (default) its weights
are those of the fixture and the logits must agree; with `delta` they are those after the ten steps of the fixture.
"""
import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("fixture", type=Path)
    parser.add_argument("--tensors", choices=["expected", "delta"], default="expected")
    args = parser.parse_args()
    model, info = AutoModelForCausalLM.from_pretrained(args.folder, output_loading_info=True, dtype=torch.float32,
                                                       attn_implementation="eager")
    problems = {k: v for k, v in info.items() if v}
    if problems:
        sys.exit(f"{args.folder}: {problems}")
    expected = load_file(args.fixture / "expected.safetensors")
    if args.tensors == "expected":
        with torch.no_grad():
            logits = model(input_ids=expected["tokens"].long()).logits
        error = ((logits - expected["logits"]).norm() / expected["logits"].norm()).item()
        print(f"{type(model).__name__}: logits differ by {error:.2e}")
        sys.exit(error > 1e-5)
    initial = {n: p.detach() for n, p in AutoModelForCausalLM.from_pretrained(
        args.fixture, dtype=torch.float32).named_parameters()}
    worst = 0.0
    for name, p in model.named_parameters():
        delta = expected["delta." + name].float()
        error = ((p.detach() - initial[name] - delta).norm() / delta.norm()).item()
        print(f"{name}: {error:.2e}")
        # The gradient of GPT-2's key biases is zero but for rounding, which Adam amplifies: see README.md.
        if not name.endswith("c_attn.bias"):
            worst = max(worst, error)
    sys.exit(worst > 2e-3)


if __name__ == "__main__":
    main()

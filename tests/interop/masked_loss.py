#!/usr/bin/env python3
"""The loss of prompt / answer data in Crest and in transformers with labels of -100. Usage: SCRIPT WORK_FOLDER"""
import json
import random
import sys

import numpy as np
import torch
import transformers
from common import crest

work = sys.argv[1]
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
MODEL = 'preset = "{}"\nlayers = 2\nwidth = 48\nheads = 3\nkv_heads = 3\nhead_dim = 16\nff = 96\ncontext = 64\nvocab = 257\n'
SEQ, END = 48, 256


def read(split):
    tokens = np.fromfile(f"{work}/qa/{split}-000000.bin", dtype=np.uint16)[512:].astype(np.int64)
    mask = np.fromfile(f"{work}/qa/{split}-000000.mask", dtype=np.uint8)[1024:]
    assert len(tokens) == len(mask)
    return tokens, mask


def losses(model, pieces):
    """The sum of losses and the number of labels that count, of (tokens, mask) pieces, each without the others."""
    total = count = 0
    for tokens, mask in pieces:
        labels = np.where(mask == 1, tokens, -100)
        n = int((labels[1:] >= 0).sum())
        if n == 0:
            continue
        with torch.no_grad():
            out = model(input_ids=torch.tensor(tokens[None]), labels=torch.tensor(labels[None]))
        total, count = total + out.loss.item() * n, count + n
    return total / count, count


def documents(tokens, mask):
    start = 0
    for end in np.flatnonzero(tokens == END) + 1:
        # Longer ones are cut into rows that start anew, with one token in common.
        for at in range(start, end - 1, SEQ):
            yield tokens[at:min(at + SEQ + 1, end)], mask[at:min(at + SEQ + 1, end)]
        start = end


random.seed(1)
with open(f"{work}/qa.jsonl", "w") as f:
    for i in range(80):
        record = {"prompt": "say " + "ab\u00e4 " * random.randrange(1, 8), "completion": "x" * random.randrange(1, 20)}
        f.write(json.dumps(record, ensure_ascii=bool(i % 2)) + "\n")
crest("data", "prepare", f"{work}/qa.jsonl", "--out", f"{work}/qa")
for preset in ("nano", "llama-nano"):
    with open(f"{work}/{preset}.toml", "w") as f:
        f.write(MODEL.format(preset))
    crest("train", "--data", f"{work}/qa", "--model", f"{work}/{preset}.toml", "--out", f"{work}/{preset}", "--steps", 8, "--batch", 4,
          "--seq", SEQ, "--lr", "0.01", "--warmup", 0, "--packing", "documents", "--precision", "fp32", "--device", "cpu", "--no-store",
          "--quiet")
    folder = f"{work}/{preset}/checkpoints/step-000008"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    for split in ("val", "train"):
        tokens, mask = read(split)
        windows = [(tokens[at:at + SEQ + 1], mask[at:at + SEQ + 1]) for at in range(0, len(tokens) - 1, SEQ)]
        for packing, pieces in (("stream", windows), ("documents", documents(tokens, mask))):
            said = json.loads(crest("eval", "--run", f"{work}/{preset}", "--data", f"{work}/qa", "--split", split, "--seq", SEQ, "--batch",
                                    3, "--packing", packing, "--precision", "fp32", "--device", "cpu", "--json"))
            loss, count = losses(model, pieces)
            print(f"{preset} {split} {packing}: {said['loss']:.6f} of {said['tokens']} tokens, transformers {loss:.6f} of {count}")
            assert said["tokens"] == count and abs(said["loss"] - loss) < 1e-5 * loss, (preset, split, packing)
print("ok: transformers", transformers.__version__)

#!/usr/bin/env python3
"""crest export: nanoGPT resumes from the checkpoint, with the logits of Crest; and back again nothing is lost.
Usage: SCRIPT WORK_FOLDER"""
import os
import sys

import numpy as np
import torch
from common import crest, crest_logits, distance, run_line, write_data
from nanogpt_model import resume
from safetensors.torch import load_file

work = sys.argv[1]
os.chdir(work)
V, T = 101, 40
TOKENS = np.random.default_rng(5).integers(0, V, 30).astype(np.int32)
SIZES = "preset = \"nano\"\nlayers = 2\nwidth = 48\nheads = 3\nkv_heads = 3\nhead_dim = 16\nff = 192\n"
write_data("data", np.random.default_rng(1).integers(0, V, 2000))
for bias in ("true", "false"):
    run, out = f"run-{bias}", f"nanogpt {bias}"  # a name that a shell must quote
    with open("model.toml", "w") as f:
        f.write(SIZES + f"context = {T}\nvocab = {V}\nbias = {bias}\nactivation = \"gelu_erf\"\n")
    crest("train", "--data", "data", "--model", "model.toml", "--out", run, "--steps", 4, "--batch", 2, "--lr", "0.02", "--warmup", 0,
          "--device", "cpu", "--no-store", "--quiet", "--sample-every", 0)
    crest("export", run, "--to", "nanogpt", "--out", out)
    model, optimizer = resume(f"{out}/ckpt.pt")
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS[:-1].tolist()]))[0]
    ours, _ = crest_logits(run, TOKENS, work)
    error = distance(logits.double().numpy(), ours)
    print(f"nanoGPT, bias {bias}: logits differ by {error:.1e}")
    assert error < 1e-5
    # The file is converted back by the line that Crest prints, and imported.
    run_line(crest("import", f"{out}/ckpt.pt", "--out", f"back-{bias}", fails=True))
    crest("import", f"{out}/model.safetensors", "--out", f"back-{bias}")
    before, after = load_file(f"{run}/checkpoints/step-000004/model.safetensors"), load_file(f"back-{bias}/model.safetensors")
    assert before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before)
    # It trains on.
    model(torch.tensor([TOKENS.tolist()])).sum().backward()
    optimizer.step()
    assert not torch.equal(model.transformer.wpe.weight.detach(), before[next(k for k in before if "wpe" in k)])
print("ok: torch", torch.__version__)

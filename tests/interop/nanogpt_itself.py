#!/usr/bin/env python3
"""nanoGPT's own train.py trains on our tokens, and its checkpoint gives the logits of its own model.
Usage: SCRIPT WORK_FOLDER, with CREST_NANOGPT a clone of nanoGPT."""
import json
import os
import re
import subprocess
import sys

import numpy as np
import torch
from common import crest, crest_logits, distance, run_line

work, clone = sys.argv[1], os.environ["CREST_NANOGPT"]
sys.path.insert(0, clone)
from model import GPT, GPTConfig  # noqa: E402

T = 40
with open(f"{work}/text.txt", "w") as f:
    f.write("".join(f"line {i * 7919 % 1000} of a small text\n" for i in range(400)))
crest("data", "prepare", f"{work}/text.txt", "--out", f"{work}/ours", "--shard-tokens", 5000)
for name in ("train.py", "model.py", "configurator.py"):  # it reads data/ and writes out/ where it runs
    os.symlink(os.path.join(os.path.abspath(clone), name), f"{work}/{name}")
os.makedirs(f"{work}/data/ours")
for split in ("train", "val"):  # the lines of docs/reference/interop.md
    subprocess.run(f"for f in ours/{split}-*.bin; do tail -c +1025 $f; done > data/ours/{split}.bin", shell=True, cwd=work, check=True)
for bias in (False, True):
    settings = dict(dataset="ours", device="cpu", dtype="float32", compile=False, wandb_log=False, eval_iters=1, eval_interval=3, max_iters=3,
                    batch_size=2, gradient_accumulation_steps=1, block_size=T, n_layer=2, n_head=3, n_embd=48, warmup_iters=0, lr_decay_iters=10,
                    learning_rate=0.02, bias=bias, out_dir=f"out-{bias}")
    done = subprocess.run([sys.executable, "train.py", *(f"--{k}={v}" for k, v in settings.items())], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(x) for x in re.findall(r"iter \d+: loss ([\d.]+)", done.stdout)]
    assert len(losses) == 4 and losses[-1] < losses[0], losses
    said = crest("import", f"{work}/out-{bias}/ckpt.pt", "--out", f"{work}/model-{bias}", fails=True)
    run_line(said)
    said = json.loads(crest("import", f"{work}/out-{bias}/model.safetensors", "--out", f"{work}/model-{bias}", "--json"))
    assert said["format"] == "nanoGPT" and said["heads"] == 3, said
    saved = torch.load(f"{work}/out-{bias}/ckpt.pt", weights_only=False)
    model = GPT(GPTConfig(**saved["model_args"])).eval()
    model.load_state_dict(saved["model"])
    tokens = np.fromfile(f"{work}/data/ours/val.bin", dtype=np.uint16)[:T + 1].astype(np.int32)
    text = torch.tensor(tokens, dtype=torch.int64)[None]
    with torch.no_grad():
        logits, loss = model(text[:, :-1], text[:, 1:])
    ours, our_loss = crest_logits(f"{work}/model-{bias}", tokens, work)
    error = distance(ours, logits[0].double().numpy())
    print(f"bias {bias}: losses of its training {losses}, logits differ by {error:.1e}, losses {loss:.6f} and {our_loss:.6f}")
    assert error <= 1e-5 and abs(loss - our_loss) <= 1e-5 * loss
    # And back: train.py continues from what crest export writes, without a jump of its loss.
    crest("export", f"{work}/model-{bias}", "--to", "nanogpt", "--out", f"{work}/back-{bias}")
    settings.update(init_from="resume", out_dir=f"back-{bias}")
    done = subprocess.run([sys.executable, "train.py", *(f"--{k}={v}" for k, v in settings.items())], cwd=work, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    resumed = [float(x) for x in re.findall(r"iter \d+: loss ([\d.]+)", done.stdout)]
    print(f"bias {bias}: losses of its training from there {resumed}")
    assert len(resumed) == 4 and abs(resumed[0] - losses[-1]) < 0.2 < losses[0] - losses[-1], (losses, resumed)
print("ok: nanoGPT", clone, "torch", torch.__version__)

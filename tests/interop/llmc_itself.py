#!/usr/bin/env python3
"""llm.c itself reads our shards, and computes from its checkpoint what we compute from the imported one.
Usage: SCRIPT WORK_FOLDER, with CREST_LLMC a clone of llm.c."""
import json
import os
import subprocess
import sys

import numpy as np
from common import crest, crest_logits, distance

work, clone = sys.argv[1], os.environ["CREST_LLMC"]
driver = f"{work}/driver"
subprocess.run(["cc", "-O2", "-fgnu89-inline", "-w", "-I", clone, os.path.join(os.path.dirname(os.path.abspath(__file__)), "llmc_driver.c"), "-o", driver, "-lm"],
               check=True)


def llmc(*arguments):
    return subprocess.run([driver, *map(str, arguments)], stdout=subprocess.PIPE, check=True).stdout


def shards():
    text = "".join(f"line {i * 7919 % 1000} of a small text, with an ä and a 漢字\n" for i in range(400))
    with open(f"{work}/text.txt", "w") as f:
        f.write(text)
    crest("data", "prepare", f"{work}/text.txt", "--out", f"{work}/ours", "--shard-tokens", 4000)
    names = json.load(open(f"{work}/ours/meta.json"))["train_shards"]
    assert len(names) > 1
    batch, length = 3, 65
    total = 0
    for name in names:  # as llm.c divides a shard: whole batches, each with the token that follows it
        tokens = np.fromfile(f"{work}/ours/{name}", dtype=np.uint16, offset=1024)
        steps = (len(tokens) - 1) // (batch * length)
        got = np.frombuffer(llmc("tokens", f"{work}/ours/{name}", batch, length, steps), dtype=np.int32)
        assert (got == tokens[:steps * batch * length + 1]).all()
        total += len(got) - 1
    llmc("tokens", f"{work}/ours/train-*.bin", batch, length, 1)  # it checks all shards first
    print(f"{total} tokens of {len(names)} shards")


def checkpoint():
    V, T, L, H, C = 101, 40, 2, 3, 48
    padded = 128
    generator = np.random.default_rng(3)
    header = np.zeros(256, dtype=np.int32)
    header[:8] = 20240326, 3, T, V, L, H, C, padded
    # wte, wpe, ln_1, qkv, projection, ln_2, fc, projection (each weight then bias, of all layers), ln_f
    shapes = [(padded, C), (T, C), (L, C), (L, C), (L, 3 * C, C), (L, 3 * C), (L, C, C), (L, C), (L, C), (L, C), (L, 4 * C, C), (L, 4 * C),
              (L, C, 4 * C), (L, C), (C,), (C,)]
    path = f"{work}/llmc.bin"
    with open(path, "wb") as f:
        f.write(header.tobytes())
        for i, shape in enumerate(shapes):
            tensor = generator.normal(1.0 if i in (2, 8, 14) else 0.0, 0.2, shape).astype(np.float32)
            if i == 0:
                tensor[V:] = 0
            f.write(tensor.tobytes())
    tokens = generator.integers(0, V, T + 1).astype(np.int32)
    tokens.tofile(f"{work}/tokens")
    theirs = np.frombuffer(llmc("logits", path, f"{work}/tokens", T), dtype=np.float32)
    loss, logits = theirs[0], theirs[1:].reshape(T, padded)[:, :V]
    crest("import", path, "--out", f"{work}/imported")
    ours, our_loss = crest_logits(f"{work}/imported", tokens, work)
    error = distance(ours, logits)
    print(f"logits differ by {error:.1e}, losses {loss:.6f} and {our_loss:.6f}")
    assert error <= 1e-5 and abs(loss - our_loss) <= 1e-5 * loss


def exported():
    """llm.c computes from an exported model what Crest does, and reads its tokenizer."""
    with open(f"{work}/model.toml", "w") as f:
        f.write("preset = \"nano\"\nlayers = 2\nwidth = 48\nheads = 3\nkv_heads = 3\nhead_dim = 16\nff = 192\ncontext = 40\n")
    crest("train", "--data", f"{work}/ours", "--model", f"{work}/model.toml", "--out", f"{work}/run", "--steps", 4, "--batch", 2, "--lr", "0.02",
          "--warmup", 0, "--device", "cpu", "--no-store", "--quiet", "--sample-every", 0)
    crest("export", f"{work}/run", "--to", "llm.c", "--out", f"{work}/exported")
    tokens = np.random.default_rng(4).integers(0, 257, 41).astype(np.int32)
    tokens.tofile(f"{work}/tokens")
    theirs = np.frombuffer(llmc("logits", f"{work}/exported/model.bin", f"{work}/tokens", 40), dtype=np.float32)
    ours, loss = crest_logits(f"{work}/run", tokens, work)
    error = distance(ours, theirs[1:].reshape(40, 384)[:, :257])
    print(f"exported: logits differ by {error:.1e}, losses {theirs[0]:.6f} and {loss:.6f}")
    assert error <= 1e-5
    said = llmc("vocabulary", f"{work}/exported/gpt2_tokenizer.bin")
    expected = b"".join((b"" if b == 0 else bytes([b])) + b"\n" for b in range(256)) + b"<|endoftext|>\n256\n"
    assert said == expected, said


shards()
checkpoint()
exported()
print("ok: llm.c", clone)

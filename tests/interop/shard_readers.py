#!/usr/bin/env python3
"""Token data: what llm.c's loader and nanoGPT's memmap do, with NumPy. Usage: SCRIPT WORK_FOLDER"""
import json
import os
import subprocess
import sys

import numpy as np
from common import crest, write_shard

work = sys.argv[1]
TEXT = "".join(f"line {i * 7919 % 1000} of a small text, with an ä and a 漢字\n" for i in range(400))


def read_as_llmc(path, magic, version, dtype):
    """The header's three numbers, then the tokens up to the end of the file: llm.c refuses anything else."""
    header = np.fromfile(path, dtype=np.int32, count=256)
    assert header[0] == magic and header[1] == version, header[:3]
    assert os.path.getsize(path) == 1024 + header[2] * np.dtype(dtype).itemsize
    return np.fromfile(path, dtype=dtype, offset=1024)


def ours_in_llmc():
    with open(f"{work}/text.txt", "w") as f:
        f.write(TEXT)
    crest("data", "prepare", f"{work}/text.txt", "--out", f"{work}/ours", "--shard-tokens", 5000)
    meta = json.load(open(f"{work}/ours/meta.json"))
    splits = [np.concatenate([read_as_llmc(f"{work}/ours/{n}", 20240520, 1, np.uint16) for n in meta[f"{s}_shards"]])
              for s in ("train", "val")]
    assert [len(s) for s in splits] == [meta["train_tokens"], meta["val_tokens"]] and len(meta["train_shards"]) > 1
    assert bytes(np.concatenate(splits).astype(np.uint8)) == TEXT.encode()
    # nanoGPT maps a headerless train.bin: ours without their headers, by the line of docs/reference/interop.md.
    subprocess.run("for f in ours/train-*.bin; do tail -c +1025 $f; done > train.bin", shell=True, cwd=work, check=True)
    assert (np.memmap(f"{work}/train.bin", dtype=np.uint16, mode="r") == splits[0]).all()


def theirs_here():
    tokens = np.random.default_rng(7).integers(0, 101, 3000).astype(np.uint16)
    os.makedirs(f"{work}/llmc")
    write_shard(f"{work}/llmc/tiny_train_000001.bin", tokens)
    write_shard(f"{work}/llmc/tiny_val_000000.bin", tokens[:1000])
    os.makedirs(f"{work}/nanogpt")
    tokens.tofile(f"{work}/nanogpt/train.bin")
    tokens[:1000].tofile(f"{work}/nanogpt/val.bin")
    os.makedirs(f"{work}/llama3")
    for name, part in (("train_000001", tokens), ("val_000000", tokens[:1000])):
        with open(f"{work}/llama3/tiny_{name}.bin", "wb") as f:
            f.write(np.array([20240801, 7, len(part)] + [0] * 253, dtype=np.int32).tobytes() + part.astype(np.uint32).tobytes())
    with open(f"{work}/tiny.toml", "w") as f:
        f.write('preset = "nano"\nlayers = 1\nwidth = 32\nheads = 2\nkv_heads = 2\nhead_dim = 16\nff = 64\ncontext = 32\nvocab = 101\n')
    losses = {}
    for folder in ("llmc", "nanogpt", "llama3"):
        info = json.loads(crest("data", "info", f"{work}/{folder}", "--json"))
        assert (info["train_tokens"], info["val_tokens"]) == (3000, 1000), info
        crest("train", "--data", f"{work}/{folder}", "--model", f"{work}/tiny.toml", "--out", f"{work}/run-{folder}", "--steps", 2, "--batch", 2,
              "--device", "cpu", "--precision", "fp32", "--deterministic", "--no-store", "--quiet", "--sample-every", 0)
        said = json.loads(crest("eval", "--run", f"{work}/run-{folder}", "--data", f"{work}/{folder}", "--device", "cpu", "--precision", "fp32", "--json"))
        assert said["tokens"] == 999, said
        losses[folder] = said["loss"]
    assert len(set(losses.values())) == 1, losses


ours_in_llmc()
theirs_here()
print("ok: shards in NumPy", np.__version__)

"""The sample order of src/trainer/data/loader.cpp in Python: the same windows of tokens for the same seed and sample number."""
import json
from pathlib import Path

import numpy as np

MASK = (1 << 64) - 1


def mix(x):
    """SplitMix64's finaliser, as in src/base/core/random.h."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


class Permutation:
    """Feistel network of six rounds over the next even number of bits, with cycle walking."""

    def __init__(self, n, key):
        bits = (n - 1).bit_length() if n > 1 else 1
        self.n, self.half = n, (bits + 1) // 2
        self.mask = (1 << self.half) - 1
        self.keys = [mix((key + r * 0x9E3779B97F4A7C15) & MASK) for r in range(6)]

    def __call__(self, i):
        while True:
            left, right = i >> self.half, i & self.mask
            for k in self.keys:
                left, right = right, left ^ (mix(right ^ k) & self.mask)
            i = left << self.half | right
            if i < self.n:
                return i


def read_shard(path):
    header = np.fromfile(path, "<i4", 256)
    assert header[0] == 20240520 and header[1] == 1, f"{path}: not a uint16 shard"
    tokens = np.fromfile(path, "<u2", offset=1024)
    assert len(tokens) == header[2], f"{path}: {len(tokens)} tokens, the header says {header[2]}"
    return tokens


def read_split(folder, split):
    return np.concatenate([read_shard(p) for p in sorted(Path(folder).glob(f"*{split}*.bin"))])


def vocabulary(folder):
    return json.loads((Path(folder) / "meta.json").read_text())["vocab_size"]


def windows(tokens, seq):
    return (len(tokens) - 1) // seq


def training_order(count, seed, samples):
    """Window of the samples 0 .. samples - 1; every epoch has its own permutation."""
    orders = {}
    result = np.empty(samples, np.int64)
    for g in range(samples):
        epoch, i = divmod(g, count)
        if epoch not in orders:
            orders[epoch] = Permutation(count, mix(mix(seed) ^ epoch))
        result[g] = orders[epoch](i)
    return result


def batches(tokens, seq, order, batch):
    """[steps, batch, seq + 1] int32: the tokens of a window and the one after them."""
    positions = order[:, None] * seq + np.arange(seq + 1)
    return tokens[positions].astype(np.int32).reshape(-1, batch, seq + 1)

#!/usr/bin/env python3
"""Writes initial weights of a GPT-2 as a Hugging Face folder that crest (--init) and torch_train.py both read.

  studies/loss_curve/init_weights.py --model gpt2-124M --seed 1 OUT

GPT-2's initialisation: normal with standard deviation 0.02, 0.02 / sqrt(2 layers) for the projections that end a
residual branch; biases zero, norms one.
"""
import argparse
import json
import math
from pathlib import Path

import numpy as np

PRESETS = {  # layers, heads, width, context
    "gpt2-124M": (12, 12, 768, 1024),
    "nano": (4, 4, 128, 256),
    "micro": (6, 6, 384, 256),
}


def config_of(preset, vocab):
    layers, heads, width, context = PRESETS[preset]
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocab, "n_positions": context,
            "n_embd": width, "n_layer": layers, "n_head": heads, "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
            "tie_word_embeddings": True, "torch_dtype": "float32"}


def initial_weights(config, seed):
    """Name of transformers -> float32 array."""
    rng = np.random.default_rng(seed)
    width, layers = config["n_embd"], config["n_layer"]

    def normal(*shape, std=0.02):
        return rng.standard_normal(shape, np.float32) * np.float32(std)

    def norm(name):
        return {name + ".weight": np.ones(width, np.float32), name + ".bias": np.zeros(width, np.float32)}

    weights = {"wte.weight": normal(config["vocab_size"], width), "wpe.weight": normal(config["n_positions"], width)}
    for i in range(layers):
        h = f"h.{i}."
        weights |= norm(h + "ln_1") | norm(h + "ln_2")
        for name, inner, outer in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                   ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            std = 0.02 / math.sqrt(2 * layers) if name.endswith("c_proj") else 0.02
            weights[f"{h}{name}.weight"] = normal(inner, outer, std=std)
            weights[f"{h}{name}.bias"] = np.zeros(outer, np.float32)
    weights |= norm("ln_f")
    return {"transformer." + name: array for name, array in weights.items()}


def write_folder(folder, config, weights):
    """config.json and model.safetensors: length of the header (8 bytes), header in JSON, the numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    header, offset = {}, 0
    for name, array in weights.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little"))
        f.write(text)
        for array in weights.values():
            f.write(np.ascontiguousarray(array).tobytes())


def read_folder(folder):
    """config, weights of a folder written by write_folder."""
    data = (folder / "model.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    weights = {}
    for name, entry in json.loads(data[8:start]).items():
        assert entry["dtype"] == "F32", f"{folder}: {name} holds {entry['dtype']}"
        first, end = entry["data_offsets"]
        weights[name] = np.frombuffer(data[start + first:start + end], np.float32).reshape(entry["shape"]).copy()
    return json.loads((folder / "config.json").read_text()), weights


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="gpt2-124M", choices=PRESETS)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    config = config_of(args.model, args.vocab)
    write_folder(args.out, config, initial_weights(config, args.seed))


if __name__ == "__main__":
    main()

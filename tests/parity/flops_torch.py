#!/usr/bin/env python3
"""FLOPs of GPT-2 as PyTorch's FlopCounterMode counts them: fixtures/flops.json, which flops.cpp compares with Crest.

  python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torch
  /tmp/venv/bin/python tests/parity/flops_torch.py        # writes the fixture; --check compares with it

FlopCounterMode counts the products of two matrices (2 m n k each) and scaled_dot_product_attention by its own formulas,
and nothing else.
"""
import argparse
import json
import math
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

FIXTURE = Path(__file__).parent / "fixtures" / "flops.json"

# layers, heads, width, vocabulary, batch, sequence length
MODELS = [
    dict(name="tiny", layers=2, heads=2, width=32, vocab=101, batch=3, seq=17),
    dict(name="one", layers=1, heads=1, width=24, vocab=50257, batch=3, seq=65),
    dict(name="gpt2-124M", layers=12, heads=12, width=768, vocab=50257, batch=1, seq=48),
]


class Block(nn.Module):
    def __init__(self, width, heads, naive):
        super().__init__()
        self.heads, self.naive = heads, naive
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, x):
        batch, seq, width = x.shape
        q, k, v = (t.view(batch, seq, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        if self.naive:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            hidden = torch.ones(seq, seq, dtype=torch.bool).triu(1)
            y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, seq, width))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, m, naive):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(m["vocab"], m["width"]), nn.Embedding(m["seq"], m["width"])
        self.blocks = nn.ModuleList(Block(m["width"], m["heads"], naive) for _ in range(m["layers"]))
        self.ln_f = nn.LayerNorm(m["width"])

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)  # tied
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def count(m, attention):
    torch.manual_seed(0)
    model = GPT2(m, naive=attention == "naive")
    tokens = torch.randint(m["vocab"], (m["batch"], m["seq"]))
    counted = {}
    for phase in ("forward", "backward"):
        with FlopCounterMode(display=False) as counter:
            loss = model(tokens, tokens)
            if phase == "backward":
                loss.backward()
        counted[phase] = counter.get_total_flops()
        counted[phase + "_attention"] = sum(
            flops for op, flops in counter.get_flop_counts()["Global"].items() if "attention" in str(op))
    return dict(m, attention=attention, **counted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compare with the committed file instead of writing it")
    check = parser.parse_args().check
    result = {
        "made_by": "tests/parity/flops_torch.py",
        "torch": torch.__version__.split("+")[0],
        "backward": "forward and backward together",
        "models": [count(m, attention) for m in MODELS for attention in ("naive", "flash")],
    }
    if check:
        expected = json.loads(FIXTURE.read_text())["models"]
        assert result["models"] == expected, "FlopCounterMode of this PyTorch counts otherwise"
        print(f"torch {torch.__version__} counts the same")
    else:
        FIXTURE.write_text(json.dumps(result, indent=1) + "\n")
        print(FIXTURE.read_text())


if __name__ == "__main__":
    main()

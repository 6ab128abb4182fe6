"""GPT-2 in PyTorch: the computation of src/step/model/gpt.cpp with its usual modules."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.fc_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x):
        batch, seq, width = x.shape
        q, k, v = (t.view(batch, seq, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, seq, width))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Rows of the embedding beyond `vocab` are padding: zero, without gradient, and not part of the softmax."""

    def __init__(self, config, pad=1):
        super().__init__()
        self.vocab, width = config["vocab_size"], config["n_embd"]
        self.wte = nn.Embedding(math.ceil(self.vocab / pad) * pad, width)
        self.wpe = nn.Embedding(config["n_positions"], width)
        self.h = nn.ModuleList(Block(config["n_head"], width) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(width)
        self.register_buffer("padding", torch.arange(self.wte.num_embeddings) >= self.vocab, persistent=False)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight).float()
        if self.wte.num_embeddings > self.vocab:
            logits = logits.masked_fill(self.padding, -math.inf)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


NAMES = {"attn.c_attn": "qkv", "attn.c_proj": "proj", "mlp.c_fc": "fc", "mlp.c_proj": "fc_proj"}


def load_weights(model, weights):
    """weights: name -> array under the names of transformers, whose Conv1D stores [in, out]."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        model.wte.weight.zero_()
        for name, array in weights.items():
            name, value = name.removeprefix("transformer."), torch.from_numpy(array)
            for theirs, ours in NAMES.items():
                if theirs in name:
                    name = name.replace(theirs, ours)
                    value = value.T if value.dim() == 2 else value
            target = parameters.pop(name)
            target[:value.shape[0]].copy_(value)
    assert not parameters, f"no weights for {sorted(parameters)}"

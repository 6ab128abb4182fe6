"""A model with the parameters of nanoGPT under its names, and what its train.py does with a checkpoint."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Norm(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class Attention(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)

    def forward(self, x):
        width = x.shape[2]
        q, k, v = (t.view(*x.shape[:2], self.heads, width // self.heads).transpose(1, 2) for t in self.c_attn(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -math.inf)
        return self.c_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = Norm(width, bias), Attention(width, heads, bias), Norm(width, bias)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width, bias=bias), c_proj=nn.Linear(4 * width, width, bias=bias)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class NanoGpt(nn.Module):
    def __init__(self, vocab, context, layers, heads, width, bias):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(wte=nn.Embedding(vocab, width), wpe=nn.Embedding(context, width),
                                              h=nn.ModuleList(Block(width, heads, bias) for _ in range(layers)), ln_f=Norm(width, bias)))
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight[:tokens.shape[1]]
        for block in self.transformer.h:
            x = block(x)
        return self.lm_head(self.transformer.ln_f(x))


def resume(path):
    """(model, optimizer) of a ckpt.pt, as train.py makes them with init_from=resume. It runs a step."""
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    a = checkpoint["model_args"]
    model = NanoGpt(a["vocab_size"], a["block_size"], a["n_layer"], a["n_head"], a["n_embd"], a["bias"])
    model.load_state_dict(checkpoint["model"])
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))
    optimizer.load_state_dict(checkpoint["optimizer"])
    assert checkpoint["iter_num"] == 0 and checkpoint["best_val_loss"] > 0 and checkpoint["config"] == {}
    return model, optimizer

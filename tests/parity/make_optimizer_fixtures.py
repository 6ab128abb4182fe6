#!/usr/bin/env python3
"""Makes fixtures/optimizers: what PyTorch's optimizers (and bitsandbytes') do to parameters of a few odd shapes in ten
steps of invented gradients (README.md tells what the files hold and how to run this).

Everything that has a float64 path is computed in float64. Crest decays matrices only, decoupled, and its rates are
absolute; where an implementation does it otherwise, the settings below make it compute the same, and say how.
"""
import argparse
import inspect
import json
import platform
from pathlib import Path

import bitsandbytes
import bitsandbytes.backends.cpu.ops as bitsandbytes_cpu
import torch
import torch.optim._muon as torch_muon
from safetensors.torch import save_file

STEPS, BETAS, EPS, WEIGHT_DECAY = 10, (0.9, 0.95), 1e-8, 0.1
MODEL = dict(preset="nano", layers=1, heads=2, width=10, ff=14, vocab=11, context=5)
SHAPES = {
    "wte.weight": (11, 10), "wpe.weight": (5, 10), "h.0.ln_1.weight": (10,), "h.0.ln_1.bias": (10,),
    "h.0.attn.qkv.weight": (30, 10), "h.0.attn.qkv.bias": (30,), "h.0.attn.proj.weight": (10, 10),
    "h.0.attn.proj.bias": (10,), "h.0.ln_2.weight": (10,), "h.0.ln_2.bias": (10,), "h.0.mlp.fc.weight": (14, 10),
    "h.0.mlp.fc.bias": (14,), "h.0.mlp.proj.weight": (10, 14), "h.0.mlp.proj.bias": (10,), "ln_f.weight": (10,),
    "ln_f.bias": (10,),
}
# A rate that changes every step: an optimizer that keeps an old one is seen.
RATES = [1e-2 * (1 - 0.07 * i) for i in range(STEPS)]


def decay_of(p):
    return WEIGHT_DECAY if p.dim() == 2 else 0.0


class Adam:
    """torch.optim.AdamW for all tensors."""

    def __init__(self, params, **options):
        self.parts = [torch.optim.AdamW([p], betas=BETAS, eps=EPS, weight_decay=decay_of(p), **options)
                      for p in params.values()]

    def step(self, rate):
        for part in self.parts:
            part.param_groups[0]["lr"] = rate
            part.step()


class Sgd:
    """torch.optim.SGD adds the decay to the gradient: it gets none, and the weights are decayed before."""

    def __init__(self, params):
        self.params, self.part = list(params.values()), torch.optim.SGD(params.values(), lr=1, momentum=BETAS[0])

    def step(self, rate):
        for p in self.params:
            p.data.mul_(1 - rate * decay_of(p))
        self.part.param_groups[0]["lr"] = rate
        self.part.step()


class Lion:
    """The update of the authors' code (google/automl, lion_pytorch.py), which no library here has for float64."""

    def __init__(self, params):
        self.params = [(p, torch.zeros_like(p)) for p in params.values()]

    def step(self, rate):
        for p, m in self.params:
            p.data.mul_(1 - rate * decay_of(p))
            p.data.add_(torch.sign(m * BETAS[0] + p.grad * (1 - BETAS[0])), alpha=-rate)
            m.mul_(BETAS[1]).add_(p.grad, alpha=1 - BETAS[1])


class Adafactor:
    """torch.optim.Adafactor for matrices, AdamW for vectors. Its rate is min(lr, 1/sqrt(t)) x max(eps2, RMS(weights));
    eps2 = 1000 makes that 1000 lr, so lr is given divided by it and the decay, which lr also scales, multiplied."""

    huge = 1e3

    def __init__(self, params):
        self.matrices = [torch.optim.Adafactor([p], eps=(1e-15, self.huge), weight_decay=decay_of(p) * self.huge)
                         for p in params.values() if p.dim() == 2]
        self.vectors = Adam({n: p for n, p in params.items() if p.dim() == 1})

    def step(self, rate):
        for part in self.matrices:
            part.param_groups[0]["lr"] = rate / self.huge
            part.step()
        self.vectors.step(rate)


class Muon:
    """torch.optim.Muon for the matrices of layers, AdamW for the rest. Queries, keys and values are three matrices. Its
    products are in bfloat16 whatever the weights are: `exact_products` runs its own source with the products in the
    weights' type."""

    def __init__(self, params):
        hidden = {n: p for n, p in params.items() if n.startswith("h.") and p.dim() == 2}
        self.parts = [(p, [torch.nn.Parameter(x) for x in p.data.chunk(3 if ".qkv." in n else 1)])
                      for n, p in hidden.items()]
        self.matrices = torch.optim.Muon([x for _, parts in self.parts for x in parts], weight_decay=WEIGHT_DECAY,
                                         momentum=0.95, nesterov=True, ns_steps=5, eps=1e-7,
                                         adjust_lr_fn="match_rms_adamw")
        self.rest = Adam({n: p for n, p in params.items() if n not in hidden})

    def step(self, rate):
        for p, parts in self.parts:
            for x, gradient in zip(parts, p.grad.chunk(len(parts))):
                x.grad = gradient
        self.matrices.param_groups[0]["lr"] = rate
        self.matrices.step()
        self.rest.step(rate)


def exact_products():
    source = inspect.getsource(torch_muon._zeropower_via_newtonschulz)
    assert source.count("torch.bfloat16") == 1
    exec(source.replace("torch.bfloat16", "grad.dtype"), torch_muon.__dict__)


class Adam8bit:
    """bitsandbytes' AdamW8bit (blocks of 256) for matrices, whatever their size; AdamW in float32 for vectors."""

    def __init__(self, params):
        self.parts = [bitsandbytes.optim.AdamW8bit([p], betas=BETAS, eps=EPS, weight_decay=decay_of(p), min_8bit_size=1)
                      for p in params.values() if p.dim() == 2]
        self.vectors = Adam({n: p for n, p in params.items() if p.dim() == 1})

    def step(self, rate):
        for part in self.parts:
            part.param_groups[0]["lr"] = rate
            part.step()
        self.vectors.step(rate)


def nearest_codes():
    """bitsandbytes' quantization on the CPU looks codes up in a coarse table and misses the nearest one for up to 3% of
    the numbers; on a GPU it finds the nearest. This is its rule, with its maps."""

    def quantize(x, code, absmax_out, codes_out, block):
        flat = x.reshape(-1)
        absmax = torch.stack([part.abs().max() for part in flat.split(block)])
        scaled = torch.cat([part / m for part, m in zip(flat.split(block), absmax)]).double()
        codes_out.copy_((scaled[:, None] - code.double()).abs().argmin(1).to(torch.uint8).view_as(codes_out))
        absmax_out.copy_(absmax)

    bitsandbytes_cpu._quant_blockwise_fp32_direct = quantize


class KahanAdam:
    """AdamW on bfloat16 tensors with a compensation, one rounded operation after the other: the update of
    AnyPrecisionAdamW (torchdistx), which is not packaged any more, written down from its formula."""

    def __init__(self, params):
        self.params = [(p, torch.zeros_like(p), torch.zeros_like(p), torch.zeros_like(p)) for p in params.values()]
        self.t = 0

    def step(self, rate):
        self.t += 1
        for p, m, v, c in self.params:
            g = p.grad
            p.data.mul_(1 - rate * decay_of(p))
            m.mul_(BETAS[0]).add_(g, alpha=1 - BETAS[0])
            v.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
            root = (v.sqrt() / (1 - BETAS[1] ** self.t) ** 0.5).add_(EPS)
            c.addcdiv_(m, root, value=-rate / (1 - BETAS[0] ** self.t))
            before = p.data.clone()
            p.data.add_(c)
            c.add_(before.sub_(p.data))

    def exact(self):
        return [p.double() + c.double() for p, _, _, c in self.params]


def run(cls, start, gradients, dtype, **options):
    """Weights after every step, in float64: {name: [steps, ...]}."""
    params = {n: torch.nn.Parameter(x.to(dtype, copy=True)) for n, x in start.items()}
    optimizer = cls(params, **options)
    after = {n: [] for n in params}
    for i in range(STEPS):
        for n, p in params.items():
            p.grad = gradients[n][i].to(dtype)
        optimizer.step(RATES[i])
        weights = optimizer.exact() if hasattr(optimizer, "exact") else [p.detach().double() for p in params.values()]
        for n, w in zip(params, weights):
            after[n].append(w.clone())
    return {n: torch.stack(w) for n, w in after.items()}


def error(got, expected):
    """Largest over the steps of the relative L2 distance of all weights together."""
    def norm(x, i):
        return sum((t[i] ** 2).sum() for t in x.values()).sqrt()
    return max((norm({n: got[n] - expected[n] for n in got}, i) / norm(expected, i)).item() for i in range(STEPS))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures" / "optimizers")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    exact_products()
    nearest_codes()
    generator = torch.Generator().manual_seed(7)

    def numbers(*shape):  # bfloat16 holds them, so that every optimizer starts from the same
        return torch.randn(shape, generator=generator).bfloat16()

    start = {n: 0.3 * numbers(*s) for n, s in SHAPES.items()}
    # Vectors down to 1e-7, where AdamW's eps matters. Muon's eps is clamped to by PyTorch and added by its authors and
    # Crest: the matrices' gradients are large enough not to see it.
    sizes = {n: 10.0 ** -(i % 3 if len(s) == 2 else 2 + i % 6) for i, (n, s) in enumerate(SHAPES.items())}
    gradients = {n: (sizes[n] * numbers(STEPS, *s)).bfloat16() for n, s in SHAPES.items()}

    f64, f32, bf16 = torch.float64, torch.float32, torch.bfloat16
    exact = {name: run(cls, start, gradients, f64) for name, cls in
             dict(adamw=Adam, sgd=Sgd, lion=Lion, adafactor=Adafactor, muon=Muon).items()}
    eight = run(Adam8bit, start, gradients, f32)
    half = run(Adam, start, gradients, bf16, fused=True)  # arithmetic in float32, every result rounded to bfloat16
    info = {
        "made_with": {"torch": torch.__version__, "bitsandbytes": bitsandbytes.__version__,
                      "python": platform.python_version()},
        "model": MODEL, "rates": RATES, "betas": BETAS, "eps": EPS, "weight_decay": WEIGHT_DECAY,
        "float32_error": {name: error(run(cls, start, gradients, f32), exact[name]) for name, cls in
                          dict(adamw=Adam, sgd=Sgd, lion=Lion, adafactor=Adafactor, muon=Muon).items()},
        "bf16_error": {"adamw-bf16": error(half, exact["adamw"]),
                       "adamw-bf16-kahan": error(run(KahanAdam, start, gradients, bf16), exact["adamw"])},
        "eight_bit_difference": error(eight, exact["adamw"]),
    }
    tensors = {f"start.{n}": x for n, x in start.items()} | {f"grad.{n}": x for n, x in gradients.items()}
    for name, after in (exact | {"adamw-8bit": eight}).items():
        tensors |= {f"{name}.{n}": x.float() for n, x in after.items()}
    tensors |= {f"adamw-bf16.{n}": x.bfloat16() for n, x in half.items()}
    out.mkdir(parents=True, exist_ok=True)
    save_file({n: t.contiguous() for n, t in sorted(tensors.items())}, out / "expected.safetensors")
    (out / "info.json").write_text(json.dumps(info, indent=1) + "\n")
    for f in out.iterdir():
        f.chmod(0o644)  # safetensors writes 600
    print(sum(f.stat().st_size for f in out.iterdir()), "bytes", json.dumps(info, indent=1))


if __name__ == "__main__":
    main()

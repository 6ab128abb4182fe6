#!/usr/bin/env python3
"""What search.py has no time for: its other parts, three seeds without Muon, longer trainings, default rates elsewhere.

  studies/time_to_loss/more.py --crest build/cuda/crest --data build/curve_data --out build/ttl_more --seconds 340
                               [--only parts,no-muon,long,rates] [--parts "logit cap,WSD"]

The settings are those that search.py found on an H200 (2026-11-29).
"""
import math

from search import PARTS, WSD, Lab, arguments, crossing, shares_around

TARGET, STEPS = 5.8822, 500  # the plain recipe's last loss, after so many steps of 16 x 1,024
TUNED = dict(model="gpt2-124M", lr=8.4e-4, beta2=0.99, batch=16)
MODERN = dict(model="modern-124M", lr=1.8e-3, decay_share=1, batch=8)
NO_MUON = dict(WSD, **MODERN, optimizer="adamw")
SCREEN = 416  # steps, as search.py's
LENGTHS = {"Muon": (180, ), "RoPE": (210, ), "RoPE and Muon": (120, 190)}  # search.py had these parts at 416


def parts(lab, wanted):
    lab.run([(name, dict(TUNED, **own, steps=steps)) for name, own in PARTS.items()
             if not wanted or name in wanted for steps in LENGTHS.get(name, (SCREEN, ))])


def no_muon(lab, _):
    """All parts but Muon with two rates, then around the target with the better one."""
    rates = [9e-4, 1.8e-3]
    losses = lab.run([("all parts but Muon, searched", dict(NO_MUON, lr=lr, steps=260)) for lr in rates])
    rate, loss = min(zip(rates, losses), key=lambda x: x[1])
    share = crossing([(260, loss), (520, loss - 0.5)], TARGET) / (2 * STEPS)  # all parts lose 0.55 in this octave
    lab.run([("all parts but Muon", dict(NO_MUON, lr=rate, steps=round(2 * STEPS * x), seed=seed))
             for x in shares_around(share) for seed in (1, 2, 3)])


def long(lab, _):
    """14.7 million tokens, one pass over the corpus."""
    whole = 900
    lab.run([("long, plain", dict(TUNED, lr=6e-4, beta2=0.95, steps=whole))] +
            [("long, all parts", dict(MODERN, steps=round(2 * whole * x))) for x in (0.12, 0.2)])


def rates(lab, _):
    """The default rates of gpt2-355M and of 524,288 tokens a step, with half and twice of them."""
    default = 6e-4 * math.sqrt(768 / 1024)
    lab.run([("gpt2-355M", dict(model="gpt2-355M", lr=float(f"{default * x:.3g}"), batch=16, steps=150))
             for x in (0.5, 1, 2)])
    large = dict(batch=64, grad_accumulation=8, val_batches=4)
    lab.run([("524,288 tokens", dict(model="gpt2-124M", lr=6e-4 * x, steps=20, **large)) for x in (1, 2, 4)] +
            [("524,288 tokens", dict(MODERN, **large, steps=8))])


GROUPS = {"parts": parts, "no-muon": no_muon, "long": long, "rates": rates}


def main():
    args = arguments(__doc__, lambda parser: (
        parser.add_argument("--only", default=",".join(GROUPS)), parser.add_argument("--parts", default="")))
    lab = Lab(args, {"batch": 16, "rate": 6e-4, "val_tokens": 262144, "recipe": {"seq": 1024},
                     "plain": {"model": "gpt2-124M"}})
    if args.scale == "cpu":
        lab.shrink = dict(layers=2, seq=64, precision="fp32", threads=1, val_batches=4)
    for name in args.only.split(","):
        GROUPS[name](lab, [part for part in args.parts.split(",") if part])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The second visit: the parts that search.py had no time for, a longer training, and default rates at other sizes.

  studies/time_to_loss/more.py --crest build/cuda/crest --data build/curve_data --out build/ttl_more --seconds 340

The settings are those that search.py found on an H200 (2026-11-29).
"""
import math

from search import PARTS, WSD, Lab, arguments, crossing, shares_around

TARGET, STEPS = 5.8822, 500  # the plain recipe's last loss, after so many steps of 16 x 1,024
TUNED = dict(model="gpt2-124M", lr=8.4e-4, beta2=0.99, batch=16)
MODERN = dict(model="modern-124M", lr=1.8e-3, decay_share=1, batch=8)
NO_MUON = dict(WSD, **MODERN, optimizer="adamw")
SCREEN = 416  # steps, as search.py's


def main():
    args = arguments(__doc__)
    lab = Lab(args, {"batch": 16, "rate": 6e-4, "val_tokens": 262144, "recipe": {"seq": 1024},
                     "plain": {"model": "gpt2-124M"}})
    if args.scale == "cpu":
        lab.shrink = dict(layers=2, seq=64, precision="fp32", threads=1, val_batches=4)

    screened = [name for name in PARTS if name not in ("Muon", "RoPE", "untied head", "RoPE and Muon")]
    rates = [9e-4, 1.8e-3]
    first = ([("all parts but Muon, searched", dict(NO_MUON, lr=lr, steps=260)) for lr in rates] +
             [("RoPE", dict(TUNED, **PARTS["RoPE"], steps=210)), ("Muon", dict(TUNED, **PARTS["Muon"], steps=180))] +
             [(name, dict(TUNED, **PARTS[name], steps=SCREEN)) for name in screened] +
             [("RoPE and Muon", dict(TUNED, **PARTS["RoPE and Muon"], steps=steps)) for steps in (120, 190)])
    losses = lab.run(first)

    rate, loss = min(zip(rates, losses), key=lambda x: x[1])
    share = crossing([(260, loss), (520, loss - 0.5)], TARGET) / (2 * STEPS)  # all parts lose 0.55 in this octave
    whole = 900  # 14.7 million tokens, one pass over the corpus
    lab.run([("all parts but Muon", dict(NO_MUON, lr=rate, steps=round(2 * STEPS * x), seed=seed))
             for x in shares_around(share) for seed in (1, 2, 3)] +
            [("long, plain", dict(TUNED, lr=6e-4, beta2=0.95, steps=whole))] +
            [("long, all parts", dict(MODERN, steps=round(2 * whole * x))) for x in (0.12, 0.2)] +
            [("524,288 tokens", dict(MODERN, batch=64, grad_accumulation=8, steps=8, val_batches=4))])

    default = 6e-4 * math.sqrt(768 / 1024)
    lab.run([("gpt2-355M", dict(model="gpt2-355M", lr=float(f"{default * x:.3g}"), batch=16, steps=150))
             for x in (0.5, 1, 2)])
    lab.run([("524,288 tokens", dict(model="gpt2-124M", lr=6e-4 * x, batch=64, grad_accumulation=8, steps=20,
                                     val_batches=4)) for x in (1, 2, 4)])


if __name__ == "__main__":
    main()

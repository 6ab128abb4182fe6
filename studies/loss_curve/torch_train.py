#!/usr/bin/env python3
"""The PyTorch twin of `crest train`: the same initial weights, batches, optimizer and schedule; writes losses as CSV.

  studies/loss_curve/torch_train.py --data build/curve_data --model gpt2-124M --batch 8 --seq 1024 --steps 2000 \\
      --run repeat-1:1:1337 --run repeat-2:1:1337 --run seed-2:2:1337 --out build/curve

A run is NAME:WEIGHTS:ORDER, seeds of the initial weights (init_weights.py) and of the order of the data (crest's
--seed). NAME:WEIGHTS:ORDER:nudge changes the last bit of every initial weight, up or down at random: the smallest
disturbance there is. OUT/NAME.csv gets `step,loss,grad_norm`, OUT/NAME.val.csv `step,val_loss`. All runs share one
process and one compiled model: weights are written anew and the optimizer is made anew for each.
"""
import argparse
import contextlib
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import loader
from gpt2 import GPT2, load_weights
from init_weights import PRESETS, config_of, initial_weights


def learning_rate(args, step):
    """src/trainer/train/schedule.cpp: linear warm-up, then cosine to min_lr."""
    if step < args.warmup:
        return args.lr * (step + 1) / (args.warmup + 1)
    t = (step - args.warmup) / (args.steps - args.warmup)
    return args.min_lr + (args.lr - args.min_lr) * (1 + math.cos(math.pi * t)) / 2


ATTENTION = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def nudged(weights):
    rng = np.random.default_rng(0)
    steps = (np.float32(1 - 2**-23), np.float32(1 + 2**-23))
    return {name: w * np.where(rng.random(w.shape, np.float32) < 0.5, *steps) for name, w in weights.items()}


def clip_gradients(parameters, limit=1.0):
    """torch.nn.utils.clip_grad_norm_; on the CPU with the norm in float64, since there PyTorch adds up the squares of a
    tensor in float32 one after the other, which for an embedding is 1e-3 off."""
    if parameters[0].is_cuda:
        return torch.nn.utils.clip_grad_norm_(parameters, limit)
    norm = sum(p.grad.double().square().sum() for p in parameters).sqrt().float()
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm


class Twin:
    def __init__(self, args):
        self.args = args
        self.device = torch.device(args.device)
        self.config = config_of(args.model, args.vocab or loader.vocabulary(args.data))
        pure = args.precision == "bf16" and args.policy == "pure"
        self.model = GPT2(self.config, args.pad_vocab).to(self.device)
        # fp32 weights that the optimizer updates; with policy pure the model holds a copy of them in bf16.
        self.masters = list(self.model.parameters())
        if pure:
            self.masters = [p.detach().clone().requires_grad_() for p in self.masters]
            self.model.to(torch.bfloat16)
        self.pure = pure
        self.forward = torch.compile(self.model) if args.compile else self.model
        train, val = (loader.read_split(args.data, split) for split in ("train", "val"))
        self.train, self.count = train, loader.windows(train, args.seq)
        # As src/trainer/train/run.cpp: the first batches of the held-out windows, around again where there are too few.
        val_windows = loader.windows(val, args.seq)
        size = min(val_windows, args.batch)
        rounds = max(1, min(val_windows // size, args.val_batches))
        order = np.arange(rounds * size) % val_windows
        self.val = torch.from_numpy(loader.batches(val, args.seq, order, size)).to(self.device)

    def reset(self, seed, nudge):
        weights = initial_weights(self.config, seed)
        if nudge:
            weights = nudged(weights)
        load_weights(self.model, weights)
        if self.pure:
            source = GPT2(self.config, self.args.pad_vocab)
            load_weights(source, weights)
            for master, value in zip(self.masters, source.parameters()):
                master.data.copy_(value)
        matrices = [p for p in self.masters if p.dim() >= 2]
        rest = [p for p in self.masters if p.dim() < 2]
        groups = [dict(params=matrices, weight_decay=0.1), dict(params=rest, weight_decay=0.0)]
        self.optimizer = torch.optim.AdamW(groups, lr=self.args.lr, betas=(0.9, 0.95), eps=1e-8,
                                           fused=self.device.type == "cuda" or None)

    def loss(self, batch):
        batch = batch.long()
        autocast = self.args.precision == "bf16" and not self.pure
        attention = contextlib.nullcontext()
        if self.args.attention != "any":
            attention = sdpa_kernel(ATTENTION[self.args.attention])
        with torch.autocast(self.device.type, torch.bfloat16, enabled=autocast), attention:
            return self.forward(batch[:, :-1], batch[:, 1:])

    def step(self, batch, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        loss = self.loss(batch)
        loss.backward()
        if self.pure:
            for master, weight in zip(self.masters, self.model.parameters()):
                master.grad, weight.grad = weight.grad.float(), None
        norm = clip_gradients(self.masters)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.pure:
            with torch.no_grad():
                torch._foreach_copy_(list(self.model.parameters()), self.masters)
        return loss.detach(), norm.detach()

    def validate(self):
        # With gradients enabled, although unused: the compiled graph of training serves this too.
        return float(sum(self.loss(batch).detach().double() for batch in self.val) / len(self.val))

    def run(self, name, weights_seed, order_seed, nudge):
        args = self.args
        self.reset(weights_seed, nudge)
        order = loader.training_order(self.count, order_seed, args.steps * args.batch)
        batches = torch.from_numpy(loader.batches(self.train, args.seq, order, args.batch)).to(self.device)
        losses = torch.zeros(args.steps, 2, device=self.device)
        started, validations = time.time(), []
        for step in range(args.steps):
            losses[step, 0], losses[step, 1] = self.step(batches[step], learning_rate(args, step))
            done = step + 1
            if args.val_every and (done % args.val_every == 0 or done == args.steps):
                validations.append((done, self.validate()))
            if done % args.report_every == 0 or done == args.steps:
                loss = losses[step, 0].item()
                print(f"{name}: step {done}, loss {loss:.4f}, {time.time() - started:.1f} s", flush=True)
                self.write(name, losses[:done], validations)
        return time.time() - started

    def write(self, name, losses, validations):
        with open(self.args.out / f"{name}.csv", "w") as f:
            f.write("step,loss,grad_norm\n")
            for i, (loss, norm) in enumerate(losses.tolist()):
                f.write(f"{i + 1},{loss:.9g},{norm:.9g}\n")
        if validations:
            with open(self.args.out / f"{name}.val.csv", "w") as f:
                f.write("step,val_loss\n")
                f.writelines(f"{step},{loss:.9g}\n" for step, loss in validations)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", action="append", required=True, metavar="NAME:WEIGHTS:ORDER[:nudge]")
    parser.add_argument("--model", default="gpt2-124M", choices=PRESETS)
    parser.add_argument("--vocab", type=int, default=0, help="of the model (default: the data's)")
    parser.add_argument("--pad-vocab", type=int, default=128, help="rows of the embedding are a multiple of this")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--min-lr", type=float, default=6e-5)
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--val-every", type=int, default=0)
    parser.add_argument("--val-batches", type=int, default=20)
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    parser.add_argument("--policy", default="autocast", choices=("autocast", "pure"),
                        help="of bf16: autocast with fp32 weights, or bf16 weights and activations with fp32 masters")
    parser.add_argument("--attention", default="any", choices=("any", "flash", "cudnn"))
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--report-every", type=int, default=100)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    twin = Twin(args)
    for run in args.run:
        name, weights_seed, order_seed, *nudge = run.split(":")
        if nudge not in ([], ["nudge"]):
            raise SystemExit(f"torch_train.py: --run {run}: expected NAME:WEIGHTS:ORDER or NAME:WEIGHTS:ORDER:nudge")
        seconds = twin.run(name, int(weights_seed), int(order_seed), bool(nudge))
        print(f"{name}: {args.steps} steps in {seconds:.1f} s, PyTorch {torch.__version__}", flush=True)


if __name__ == "__main__":
    main()

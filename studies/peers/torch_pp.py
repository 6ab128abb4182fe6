#!/usr/bin/env python3
"""PyTorch's pipeline parallelism (torch.distributed.pipelining), beside `crest bench --mesh pipeline=N`.

  torchrun --nproc-per-node 2 torch_pp.py MODEL:MICRO_BATCH:SEQ:MICRO_BATCHES:PRECISION SCHEDULE ...

Cases and schedules come in pairs. MODEL as in torch_tp.py, with the real 25 heads of gpt2-1558M.
PRECISION, joined by +:
  mixed   fp32 parameters and AdamW, bf16 autocast, bf16 between layers and stages
  bf16    everything in bf16, the optimizer's state too
  eager   without torch.compile of the layers
SCHEDULE: gpipe, 1f1b, interleaved (two stages a rank), interleaved-zb (the same, zero bubble) or zbv
(two stages a rank in a V). Zero-bubble schedules split a backward pass, which compiled layers do not
allow: they run eager. Layers are divided evenly, or as given: 1f1b/9,7 has 9 in stage 0.

The embedding is in the first stage, the head in the last. Tied embeddings are a copy on both ranks,
with summed gradients. Attention of cuDNN or flash, AdamW (fused), clipping of the norm over all
stages. Prints one JSON line a case: median of STEPS steps (environment, 12) after WARMUP (6), and the
peak memory of each rank. A case that fails ends the run. CPU=1 runs on CPUs with gloo, to test the
script (not zbv: gloo cannot send to its own rank).
"""
import inspect
import json
import os
import statistics
import sys
import time
import zlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import PipelineStage

from torch_tp import MODELS, Model

SCHEDULES = {  # class, stages a rank, splits backward passes
    "gpipe": ("ScheduleGPipe", 1, False),
    "1f1b": ("Schedule1F1B", 1, False),
    "interleaved": ("ScheduleInterleaved1F1B", 2, False),
    "interleaved-zb": ("ScheduleInterleavedZeroBubble", 2, True),
    "zbv": ("ScheduleZBVZeroBubble", 2, True),
}
ON_CPU = os.environ.get("CPU") == "1"
MODELS = {**MODELS, "gpt2-1558M": {**MODELS["gpt2-1558M"], "heads": 25, "kv_heads": 25},
          "tiny": dict(layers=4, width=64, heads=2, kv_heads=2, of_head=32, ff=256, vocab=512, tied=True)}


class Stage(nn.Module):
    """Layers first..last of a model, with the embedding before the first and the head behind the last."""

    def __init__(self, model, layers, stream, seq, device):
        super().__init__()
        self.stream = stream  # dtype between layers
        self.h = nn.ModuleDict({str(i): model.h[i] for i in layers})
        if 0 in layers:
            self.wte = model.wte
            if hasattr(model, "wpe"):
                self.wpe = model.wpe
        if len(model.h) - 1 in layers:
            self.ln_f, self.head = model.ln_f, model.head
        self.angles = model.rope(seq, device, torch.bfloat16)
        self.autocast = next(model.parameters()).dtype == torch.float32

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.autocast):
            if hasattr(self, "wte"):
                ids = x
                x = self.wte(ids)
                if hasattr(self, "wpe"):
                    x = x + self.wpe(torch.arange(ids.shape[1], device=ids.device).expand(ids.shape))
                x = x.to(self.stream)
            for block in self.h.values():
                x = block(x, *self.angles)
            return self.head(self.ln_f(x)) if hasattr(self, "head") else x


def cut_of(text, stages, layers):
    """The first layer of each stage, and the number of layers."""
    each = [int(n) for n in text.split(",")] if text else [(s + 1) * layers // stages - s * layers // stages
                                                           for s in range(stages)]
    if len(each) != stages or sum(each) != layers or min(each) < 1:
        raise ValueError(f"{text or 'an even cut'} is no cut of {layers} layers into {stages} stages")
    return [sum(each[:s]) for s in range(stages + 1)]


def stages_of(rank, ranks, a_rank, kind):
    if a_rank == 1:
        return [rank]
    return [rank, 2 * ranks - 1 - rank] if kind == "zbv" else [rank + c * ranks for c in range(a_rank)]


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Tied:
    """A tied embedding and head: copies on the first and the last rank have the sum of both gradients. On one rank
    they are one tensor."""

    def __init__(self, modules, tied, ranks):
        self.copies, self.counts = [], True
        if not tied:
            return
        first, last = (next((m for m in modules if hasattr(m, name)), None) for name in ("wte", "head"))
        if first and last:
            last.head.weight = first.wte.weight
        holds = [None] * ranks
        dist.all_gather_object(holds, bool(first or last))
        holders = [r for r in range(ranks) if holds[r]]
        if len(holders) > 1:
            self.group = dist.new_group(holders)
            if first or last:
                self.copies = [first.wte.weight if first else last.head.weight]
                self.counts = bool(first)  # in the norm, once

    def sum_gradients(self):
        for weight in self.copies:
            dist.all_reduce(weight.grad, group=self.group)


def clip(parameters, tied, most=1.0):
    """The norm over all stages."""
    gradients = [p.grad for p in parameters if tied.counts or all(p is not c for c in tied.copies)]
    square = torch.stack(torch._foreach_norm(gradients)).float().square().sum()
    dist.all_reduce(square)
    factor = (most / (square.sqrt() + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([p.grad for p in parameters], factor)


def synchronize():
    if not ON_CPU:
        torch.cuda.synchronize()


def case(name, micro_batch, seq, micro_batches, precision, schedule_text):
    kind, _, layers_text = schedule_text.partition("/")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    class_name, a_rank, splits = SCHEDULES[kind]
    compiled = "eager" not in precision and not splits
    device = "cpu" if ON_CPU else "cuda"
    dtype = torch.bfloat16 if "bf16" in precision else torch.float32
    shape = MODELS[name]
    with torch.device("meta"):
        model = Model(**shape).to(dtype)
    stages = ranks * a_rank
    cut = cut_of(layers_text, stages, shape["layers"])
    own = stages_of(rank, ranks, a_rank, kind)
    modules = [Stage(model, range(cut[s], cut[s + 1]), torch.bfloat16, seq, device) for s in own]
    for module in modules:
        module.to_empty(device=device)
    tied = Tied(modules, shape.get("tied", False), ranks)
    with torch.no_grad():
        for module in modules:  # the same weights for every schedule
            for key, p in module.named_parameters():
                same = key == "head.weight" and shape.get("tied")
                torch.manual_seed(zlib.crc32(b"wte.weight" if same else key.encode()))
                p.normal_(0, 0.02) if p.dim() > 1 else p.fill_(0 if key.endswith("bias") else 1)
    if compiled:
        for module in modules:
            for block in module.h.values():
                block.compile()
    hidden = torch.empty(micro_batch, seq, shape["width"], dtype=torch.bfloat16, device="meta")
    ids = torch.empty(micro_batch, seq, dtype=torch.int64, device="meta")
    logits = torch.empty(micro_batch, seq, shape["vocab"], dtype=torch.bfloat16, device="meta")
    parts = [PipelineStage(module, s, stages, torch.device(device, 0 if ON_CPU else torch.cuda.current_device()),
                           input_args=(ids if s == 0 else hidden,),
                           output_args=(logits if s == stages - 1 else hidden,)) for s, module in zip(own, modules)]
    schedule = getattr(pipelining, class_name, None) or getattr(pipelining.schedules, class_name)
    schedule = schedule(parts if a_rank > 1 else parts[0], micro_batches, loss_fn=loss_of)
    quiet = {"return_outputs": False} if "return_outputs" in inspect.signature(schedule.step).parameters else {}
    parameters = list({id(p): p for module in modules for p in module.parameters()}.values())
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    batch = micro_batch * micro_batches
    times, first = [], None
    warmup, steps = int(os.environ.get("WARMUP", 6)), int(os.environ.get("STEPS", 12))
    for i in range(warmup + steps):
        generator = torch.Generator(device=device).manual_seed(i)
        tokens = torch.randint(0, shape["vocab"], (batch, seq + 1), device=device, generator=generator)
        inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        synchronize()
        dist.barrier()
        start = time.perf_counter()
        losses = []
        last = {"target": targets, "losses": losses} if stages - 1 in own else {}
        schedule.step(*([inputs] if 0 in own else []), **last, **quiet)
        tied.sum_gradients()
        clip(parameters, tied)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        dist.barrier()
        if i >= warmup:
            times.append((time.perf_counter() - start) * 1e3)
        if first is None:
            loss = torch.stack(losses).mean().float() if losses else torch.zeros((), device=device)
            dist.all_reduce(loss.detach())
            first = loss.item()
    peaks = [None] * ranks
    dist.all_gather_object(peaks, 0 if ON_CPU else round(torch.cuda.max_memory_allocated() / 2**30, 2))
    if rank == 0:
        ms = statistics.median(times)
        print(json.dumps(dict(model=name, micro_batch=micro_batch, seq=seq, micro_batches=micro_batches,
                              precision="+".join(precision), schedule=schedule_text, ranks=ranks, compiled=compiled,
                              ms=round(ms, 2), spread=round(max(times) - min(times), 2),
                              tokens_per_second=round(batch * seq / ms * 1e3), first_loss=round(first, 4), gib=peaks,
                              torch=torch.__version__)), flush=True)


def main():
    if len(sys.argv) < 3 or len(sys.argv) % 2 == 0:
        sys.exit(__doc__)
    if not ON_CPU:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("gloo" if ON_CPU else "nccl")
    for argument, kind in zip(sys.argv[1::2], sys.argv[2::2]):
        name, micro_batch, seq, micro_batches, precision = argument.split(":")
        try:
            case(name, int(micro_batch), int(seq), int(micro_batches), precision.split("+"), kind)
        except Exception as error:
            print(json.dumps(dict(case=argument, schedule=kind, rank=dist.get_rank(), error=repr(error)[:600])),
                  flush=True)
            os._exit(1)  # the other ranks wait for this one: torchrun ends them
        torch._dynamo.reset()
        if not ON_CPU:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    dist.destroy_process_group()


main()

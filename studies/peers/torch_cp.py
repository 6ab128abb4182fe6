#!/usr/bin/env python3
"""PyTorch's context parallelism (torch.distributed.tensor.experimental), beside `crest bench --mesh context=N`.

  torchrun --nproc-per-node 2 torch_cp.py MODEL:BATCH:SEQ:MODE ...

MODEL: llama-1B or qwen2.5-7B, as in torch_tp.py. MODE, joined by +:
  mixed    fp32 parameters and AdamW, bf16 matmuls
  bf16     everything in bf16, the optimizer's state too: faster, but not the same training
  eager    without torch.compile of the layers
  full     recomputes every layer in the backward pass (activation checkpointing)
  gather   gathers keys and values at once; without it they go around the ring by all-to-all
Weights, gradients and states are sharded over the same ranks by FSDP2, as torchtitan does. The head and the loss take
4,096 tokens at a time, so logits of a long sequence fit. With one process there is no parallelism. Attention of cuDNN
or flash, AdamW (fused), clipping. Prints one JSON line a case: median of STEPS steps (environment, 8) after WARMUP (3),
and the peak memory of rank 0.
"""
import contextlib
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from torch_tp import MODELS, Model, report, run_cases

ROWS = 4096  # tokens with logits at a time


class LongModel(Model):
    def forward(self, ids, targets, cos, sin, full=False):
        x = self.wte(ids)
        for block in self.h:
            x = checkpoint(block, x, cos, sin, use_reentrant=False) if full else block(x, cos, sin)
        x, targets = self.ln_f(x).flatten(0, 1), targets.flatten()

        def loss_of(rows, ids):
            return F.cross_entropy(self.head(rows).float(), ids, reduction="sum")

        parts = [checkpoint(loss_of, rows, ids, use_reentrant=False)
                 for rows, ids in zip(x.split(ROWS), targets.split(ROWS))]
        return torch.stack(parts).sum() / targets.numel()


def case(name, batch, seq, modes):
    ranks = dist.get_world_size()
    torch.manual_seed(1)
    with torch.device("meta"):
        model = LongModel(**MODELS[name]).to(torch.bfloat16 if "bf16" in modes else torch.float32)
    if hasattr(model, "wpe"):
        raise ValueError(f"{name} has 1,024 positions only")
    model.tie()
    mesh = init_device_mesh("cuda", (ranks,), mesh_dim_names=("context",))
    if "eager" not in modes:
        for block in model.h:
            block.compile()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.h:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    model.tie()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.02) if p.dim() > 1 else p.fill_(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    if ranks > 1:
        from torch.distributed.tensor.experimental._attention import set_rotate_method
        set_rotate_method("allgather" if "gather" in modes else "alltoall")
    times, first = [], None
    warmup, steps = int(os.environ.get("WARMUP", 3)), int(os.environ.get("STEPS", 8))
    for i in range(warmup + steps):
        generator = torch.Generator(device="cuda").manual_seed(i)
        tokens = torch.randint(0, MODELS[name]["vocab"], (batch, seq + 1), device="cuda", generator=generator)
        ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        cos, sin = model.rope(seq, "cuda", torch.bfloat16)
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        buffers = [ids, targets, cos, sin]
        shared = context_parallel(mesh, buffers=buffers, buffer_seq_dims=[1, 1, 0, 0], no_restore_buffers=set(buffers)) \
            if ranks > 1 else contextlib.nullcontext()
        with shared, sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]):
            loss = model(ids, targets, cos, sin, "full" in modes)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= warmup:
            times.append((time.perf_counter() - start) * 1e3)
        if first is None:
            loss = loss.detach().float() / ranks
            dist.all_reduce(loss)
            first = loss.item()
    report(times, first, model=name, batch=batch, seq=seq, mode="+".join(modes), ranks=ranks)


run_cases(case)

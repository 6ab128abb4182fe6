#!/usr/bin/env python3
"""PyTorch's tensor and sequence parallelism, beside `crest bench --mesh tensor=N`.

  torchrun --nproc-per-node 2 torch_tp.py MODEL:BATCH:SEQ:MODE ...

MODEL: llama-1B, qwen2.5-7B or gpt2-1558M, whose 25 heads are padded to 26. MODE, joined by +:
  mixed   fp32 parameters and AdamW, bf16 matmuls (FSDP2's mixed precision on a data axis of one rank)
  bf16    everything in bf16, the optimizer's state too: faster, but not the same training
  async   matmuls overlap with their collectives (symmetric memory, micro_pipeline_tp)
  eager   without torch.compile
With one process there is no parallelism: the time of one GPU. Prints one JSON line a case: median of
STEPS steps (environment, 12) after WARMUP (6). Random tokens, AdamW (fused), clipping, causal
attention of cuDNN or flash, vocabulary-parallel embedding and loss (loss_parallel).
"""
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

MODELS = {  # of_head: elements of a head; bias: of q, k, v; gpt2: LayerNorm, GELU, learned positions, biases everywhere
    "llama-1B": dict(layers=16, width=2048, heads=32, kv_heads=8, of_head=64, ff=8192, vocab=128256, tied=True),
    "qwen2.5-7B": dict(layers=28, width=3584, heads=28, kv_heads=4, of_head=128, ff=18944, vocab=152064, bias=True),
    "gpt2-1558M": dict(layers=48, width=1600, heads=26, kv_heads=26, of_head=64, ff=6400, vocab=50304, tied=True,
                       bias=True, gpt2=True),
}


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, of_head, bias, gpt2):
        super().__init__()
        self.size, self.rotates = of_head, not gpt2
        self.wq = nn.Linear(width, heads * of_head, bias=bias)
        self.wk = nn.Linear(width, kv_heads * of_head, bias=bias)
        self.wv = nn.Linear(width, kv_heads * of_head, bias=bias)
        self.wo = nn.Linear(heads * of_head, width, bias=gpt2)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, self.size).transpose(1, 2) for w in (self.wq, self.wk, self.wv))

        def rotate(y):
            a, c = y.chunk(2, -1)
            return torch.cat((a * cos - c * sin, c * cos + a * sin), -1).to(y.dtype)

        if self.rotates:
            q, k = rotate(q), rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, width, ff, gpt2):
        super().__init__()
        if not gpt2:
            self.gate = nn.Linear(width, ff, bias=False)
        self.up, self.down = nn.Linear(width, ff, bias=gpt2), nn.Linear(ff, width, bias=gpt2)

    def forward(self, x):
        if hasattr(self, "gate"):
            return self.down(F.silu(self.gate(x)) * self.up(x))
        return self.down(F.gelu(self.up(x), approximate="tanh"))


def norm(width, gpt2):
    return (nn.LayerNorm if gpt2 else nn.RMSNorm)(width, eps=1e-5)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, of_head, ff, bias, gpt2):
        super().__init__()
        self.ln_1, self.ln_2 = norm(width, gpt2), norm(width, gpt2)
        self.attn, self.mlp = Attention(width, heads, kv_heads, of_head, bias, gpt2), Mlp(width, ff, gpt2)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.ln_1(x), cos, sin)
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, of_head, ff, vocab, tied=False, bias=False, gpt2=False):
        super().__init__()
        self.size, self.tied = of_head, tied
        self.wte = nn.Embedding(vocab, width)
        if gpt2:
            self.wpe = nn.Embedding(1024, width)
        self.h = nn.ModuleList(Block(width, heads, kv_heads, of_head, ff, bias, gpt2) for _ in range(layers))
        self.ln_f = norm(width, gpt2)
        self.head = nn.Linear(width, vocab, bias=False)

    def tie(self):
        if self.tied:
            self.head.weight = self.wte.weight

    def rope(self, t, device, dtype):
        frequency = 1 / 500000 ** (torch.arange(0, self.size, 2, device=device).float() / self.size)
        angle = torch.outer(torch.arange(t, device=device).float(), frequency)
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def forward(self, ids, cos, sin):
        x = self.wte(ids)
        if hasattr(self, "wpe"):
            x = x + self.wpe(torch.arange(ids.shape[1], device=ids.device).expand(ids.shape))
        for block in self.h:
            x = block(x, cos, sin)
        return self.head(self.ln_f(x))


def share(model, mesh):
    parallelize_module(model, mesh, {
        "wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "ln_f": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)})
    if hasattr(model, "wpe"):
        parallelize_module(model.wpe, mesh, RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)))
    for block in model.h:
        parallelize_module(block, mesh, {
            "ln_1": SequenceParallel(), "ln_2": SequenceParallel(),
            "attn": PrepareModuleInput(input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)),
            "attn.wq": ColwiseParallel(), "attn.wk": ColwiseParallel(), "attn.wv": ColwiseParallel(),
            "attn.wo": RowwiseParallel(output_layouts=Shard(1)),
            "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            **({"mlp.gate": ColwiseParallel()} if hasattr(block.mlp, "gate") else {}), "mlp.up": ColwiseParallel(),
            "mlp.down": RowwiseParallel(output_layouts=Shard(1))})


def case(name, batch, seq, modes):
    ranks = dist.get_world_size()
    torch.manual_seed(1)
    dtype = torch.bfloat16 if "bf16" in modes else torch.float32
    with torch.device("meta"):
        model = Model(**MODELS[name]).to(dtype)
    mesh = init_device_mesh("cuda", (1, ranks), mesh_dim_names=("data", "tensor"))
    if ranks > 1:
        share(model, mesh["tensor"])
    model.tie()
    if "eager" not in modes:
        for i, block in enumerate(model.h):
            model.h[i] = torch.compile(block)
    if "mixed" in modes:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.h:
            fully_shard(block, mesh=mesh["data"], mp_policy=policy)
        fully_shard(model, mesh=mesh["data"], mp_policy=policy)
    model.to_empty(device="cuda")
    model.tie()
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, 0.02) if p.dim() > 1 else p.fill_(1)
    if "async" in modes:
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group
        torch._inductor.config._micro_pipeline_tp = True
        enable_symm_mem_for_group(mesh["tensor"].get_group().group_name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    cos, sin = model.rope(seq, "cuda", torch.bfloat16)
    loss_of = F.cross_entropy
    times, first = [], None
    warmup, steps = int(os.environ.get("WARMUP", 6)), int(os.environ.get("STEPS", 12))
    for i in range(warmup + steps):
        generator = torch.Generator(device="cuda").manual_seed(i)
        ids = torch.randint(0, MODELS[name]["vocab"], (batch, seq + 1), device="cuda", generator=generator)
        torch.cuda.synchronize()
        dist.barrier()
        start = time.perf_counter()
        logits = model(ids[:, :-1], cos, sin)
        if ranks > 1:
            with loss_parallel():
                loss = loss_of(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
                loss.backward()
        else:
            loss = loss_of(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if i >= warmup:
            times.append((time.perf_counter() - start) * 1e3)
        first = loss.item() if first is None else first
    report(times, first, model=name, batch=batch, seq=seq, mode="+".join(modes), ranks=ranks)


def report(times, first_loss, **case):
    """Prints the JSON line of a case on rank 0. times: milliseconds of its steps."""
    if dist.get_rank() == 0:
        ms = statistics.median(times)
        print(json.dumps(dict(**case, ms=round(ms, 2), spread=round(max(times) - min(times), 2),
                              tokens_per_second=round(case["batch"] * case["seq"] / ms * 1e3),
                              first_loss=round(first_loss, 4), gib=round(torch.cuda.max_memory_allocated() / 2**30, 2),
                              torch=torch.__version__)), flush=True)


def run_cases(case):
    """Runs case(model, batch, sequence length, modes) for each argument. A case that fails ends the run: others wait."""
    if len(sys.argv) < 2:
        sys.exit(sys.modules["__main__"].__doc__)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    for argument in sys.argv[1:]:
        name, batch, seq, modes = argument.split(":")
        try:
            case(name, int(batch), int(seq), modes.split("+"))
        except Exception as error:
            print(json.dumps(dict(case=argument, rank=dist.get_rank(), error=repr(error)[:600])), flush=True)
            os._exit(1)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    dist.destroy_process_group()


if __name__ == "__main__":
    run_cases(case)

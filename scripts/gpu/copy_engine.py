#!/usr/bin/env python3
"""All-gather of sharded weights between two GPUs: NCCL's kernels against copy engines, alone and behind matmuls.

  copy_engine.py [--mib 237] [--rounds 9] [--json FILE]

Both GPUs multiply matrices of gpt2-124M (B=16) on one stream; a second stream gathers --mib MiB in total, half of it from
each GPU. NCCL (torch.cuda.nccl) does so with kernels on multiprocessors, a peer copy (cudaMemcpyPeerAsync) with a copy
engine. Prints medians of interleaved rounds in ms: the matmuls alone, the gather alone, and both at once from the first
launch to the last end, and what the gather adds. Set NCCL_MAX_CTAS to limit NCCL's blocks (another process each).
"""
import argparse, json, os, statistics, time
import torch

ap = argparse.ArgumentParser()
ap.add_argument("--mib", type=int, default=237), ap.add_argument("--rounds", type=int, default=9)
ap.add_argument("--json", default="")
o = ap.parse_args()
GPUS = [0, 1]
shapes = [(16384, 768, 2304), (16384, 768, 768), (16384, 768, 3072), (16384, 3072, 768)] * 24
half = o.mib * 2**20 // 4  # bf16 elements of one rank's share
work, comm, operands, mine, whole = {}, {}, {}, {}, {}
for g in GPUS:
    with torch.cuda.device(g):
        work[g], comm[g] = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
        operands[g] = {s: (torch.randn(s[0], s[1], device=g, dtype=torch.bfloat16),
                           torch.randn(s[1], s[2], device=g, dtype=torch.bfloat16),
                           torch.empty(s[0], s[2], device=g, dtype=torch.bfloat16)) for s in set(shapes)}
        mine[g] = torch.randn(half, device=g).to(torch.bfloat16)
        whole[g] = torch.zeros(2 * half, device=g, dtype=torch.bfloat16)


def matmuls():
    for g in GPUS:
        with torch.cuda.device(g), torch.cuda.stream(work[g]):
            for s in shapes:
                a, b, c = operands[g][s]
                torch.mm(a, b, out=c)


def nccl():
    import torch.cuda.nccl as n
    n.all_gather([mine[g] for g in GPUS], [whole[g] for g in GPUS], streams=[comm[g] for g in GPUS])


def copies():
    for g in GPUS:
        with torch.cuda.device(g), torch.cuda.stream(comm[g]):
            whole[g][g * half:(g + 1) * half].copy_(mine[g], non_blocking=True)
            whole[g][(1 - g) * half:(2 - g) * half].copy_(mine[1 - g], non_blocking=True)


def timed(gather, with_work):
    """ms until both streams of both GPUs have ended, the longest of the GPUs, by events."""
    for g in GPUS:
        torch.cuda.synchronize(g)
    marks = {}
    for g in GPUS:
        with torch.cuda.device(g):
            start = torch.cuda.Event(enable_timing=True)
            # The host launches everything while a first kernel holds the streams back.
            with torch.cuda.stream(work[g]):
                torch.cuda._sleep(int(8e6))
                start.record()
            comm[g].wait_event(start)
            marks[g] = [start]
    if gather:
        gather()
    if with_work:
        matmuls()
    for g in GPUS:
        with torch.cuda.device(g):
            for s in (work[g], comm[g]):
                end = torch.cuda.Event(enable_timing=True)
                end.record(s)
                marks[g].append(end)
    for g in GPUS:
        torch.cuda.synchronize(g)
    return max(max(m[0].elapsed_time(e) for e in m[1:]) for m in marks.values())


cases = {"matmuls alone": (None, True), "nccl alone": (nccl, False), "copies alone": (copies, False),
         "both, nccl": (nccl, True), "both, copies": (copies, True), "matmuls alone, again": (None, True)}
samples = {name: [] for name in cases}
expected = torch.cat([mine[g].to(0) for g in GPUS])
for round in range(o.rounds + 2):
    for name, (gather, with_work) in cases.items():
        for g in GPUS:
            whole[g].zero_()
        ms = timed(gather, with_work)
        if gather:
            assert all(torch.equal(whole[g].to(0), expected) for g in GPUS), f"{name}: wrong result"
        if round >= 2:
            samples[name].append(ms)
m = {name: statistics.median(s) for name, s in samples.items()}
print(f"{torch.cuda.get_device_name(0)} x 2, {o.mib} MiB, NCCL_MAX_CTAS={os.environ.get('NCCL_MAX_CTAS', 'unset')}")
for name in cases:
    bandwidth = f", {half * 2 / m[name] / 1e6:.0f} GB/s a direction" if name.endswith("alone") and name[0] != "m" else ""
    added = f", adds {m[name] - m['matmuls alone']:.3f}" if name.startswith("both") else ""
    print(f"  {name:22} {m[name]:8.3f} ms ({min(samples[name]):.3f} to {max(samples[name]):.3f}){bandwidth}{added}")
if o.json:
    json.dump(samples, open(o.json, "w"))

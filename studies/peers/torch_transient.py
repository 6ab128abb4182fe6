#!/usr/bin/env python3
"""Device memory of PyTorch while it chooses algorithms, and while it captures a step as a CUDA graph, beside later steps.

  torch_transient.py --during start|capture.. [--precision fp32|tf32] [--size 124M] [--batch 16] [--seq 1024]

start: the first three steps of a process, in which cuBLASLt is asked for an algorithm for every product. capture: the
capture of a whole step, after four steps. Memory is that of the process in nvidia-smi, asked for all the time.

Prints a JSON line for each. peak_reserved_gib: the most memory during that time. peak_alloc_gib: the most memory in the same
steps later (start), or in replays of the graph (capture). So their difference is needed for a while only. ms: a later
step.
"""
import argparse
import json
import time

import torch
import torch_gpt2
from device_memory import DeviceMemory, Peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--during", required=True, nargs="+", choices=["start", "capture"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"])
    parser.add_argument("--size", default="124M")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--attention", default="naive")
    a = parser.parse_args()
    torch.manual_seed(1337)
    torch.set_float32_matmul_precision("high" if a.precision == "tf32" else "highest")
    layers, heads, width = torch_gpt2.SIZES[a.size]
    memory = DeviceMemory()
    with torch.device("cuda"):
        model = torch_gpt2.GPT2(layers, heads, width, a.vocab, a.seq, a.attention)
        data = torch.randint(0, a.vocab, (a.batch, a.seq + 1))
    x, y = data[:, :-1].contiguous(), data[:, 1:].contiguous()
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True, capturable=True)

    def step():
        model(x, y).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def peak(work, times):
        with Peak(memory) as watched:
            for _ in range(times):
                work()
            torch.cuda.synchronize()
        return watched

    def print_line(what, during, later):
        after = peak(later, 3)
        start = time.perf_counter()
        later()
        torch.cuda.synchronize()
        ms = (time.perf_counter() - start) * 1e3
        print(json.dumps(dict(peer="torch-" + torch.__version__, during=what, precision=a.precision, size=a.size,
                              ms=round(ms, 3), peak_alloc_gib=after.most / 2**30, peak_reserved_gib=during.most / 2**30,
                              asked=[during.asked, after.asked], allocator_gib=torch.cuda.memory_reserved() / 2**30)),
              flush=True)

    if "start" in a.during:
        print_line("start", peak(step, 3), step)
    if "capture" in a.during:
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(4):
                step()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()

        def capture():
            with torch.cuda.graph(graph):
                step()

        print_line("capture", peak(capture, 1), graph.replay)


if __name__ == "__main__":
    main()

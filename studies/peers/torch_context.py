#!/usr/bin/env python3
"""Memory that PyTorch takes on a GPU for its first number, as document 003 measures it.

  torch_context.py [--loading EAGER|LAZY]

Prints one JSON line. peak_reserved_gib: all memory in use on the device afterwards (total - free, the document's
figure). peak_alloc_gib: how much of it was not in use before. ms: the time of that first use. Other programs on the GPU
falsify both figures.
"""
import argparse
import json
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--loading", default="LAZY", choices=["EAGER", "LAZY"])
args = parser.parse_args()
os.environ["CUDA_MODULE_LOADING"] = args.loading

import torch
from device_memory import DeviceMemory

memory = DeviceMemory()
before, start = memory.of_all(), time.perf_counter()
x = torch.ones(1, device="cuda")
torch.cuda.synchronize()
ms = (time.perf_counter() - start) * 1e3
free, total = torch.cuda.mem_get_info()
print(json.dumps(dict(peer="torch-" + torch.__version__, cuda=torch.version.cuda, loading=args.loading, ms=round(ms, 3),
                      peak_alloc_gib=(memory.of_all() - before) / 2**30, peak_reserved_gib=(total - free) / 2**30,
                      before_gib=before / 2**30)))

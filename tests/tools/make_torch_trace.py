#!/usr/bin/env python3
"""Makes the fixtures of the PyTorch trace reader.

  make_torch_trace.py cpu tests/traces/fixtures/torch_cpu.json       # needs torch; recorded, then shortened
  make_torch_trace.py synthetic tests/traces/fixtures/torch_gpu.json # standard library only; made up

`cpu` records two training steps of a tiny GPT-2 with torch.profiler on the CPU and leaves out what the reader does not
look at. `synthetic` was not recorded anywhere: it writes the fields that Kineto writes on a GPU, with kernel names as
PyTorch, cuBLAS, cuDNN and Inductor give them and times that are easy to add up by hand.
"""
import json
import sys


def record(path):
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.heads = heads

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln_1(x)).split(c, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
            return x + self.out(F.gelu(self.fc(self.ln_2(x))))

    class GPT2(nn.Module):
        def __init__(self, vocab=256, context=32, width=32, layers=1, heads=2):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
            self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.ln_f = nn.LayerNorm(width)

        def forward(self, tokens, targets):
            x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
            for block in self.h:
                x = block(x)
            logits = self.ln_f(x) @ self.wte.weight.T
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = GPT2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(0, 256, (4, 33))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule) as profiler:
        for _ in range(4):
            loss = model(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            profiler.step()
    profiler.export_chrome_trace(path)
    return torch.__version__


def shorten(path, version):
    """Keeps the events that the reader uses without arguments that it does not use and counts time from the first.
    Operations below 8 us are left out: their time then counts as that of the operation around them."""
    with open(path) as f:
        trace = json.load(f)
    kept = [e for e in trace["traceEvents"] if e["ph"] == "X" and e.get("cat") in ("cpu_op", "user_annotation")
            and e["dur"] >= 8]
    start = min(e["ts"] for e in kept)
    for e in kept:
        e.pop("args", None)
        e["ts"] = round(e["ts"] - start, 3)
    head = {k: trace[k] for k in ("schemaVersion", "deviceProperties", "displayTimeUnit") if k in trace}
    head["recorded_with"] = f"torch {version}, torch.profiler on a CPU, shortened by tests/tools/make_torch_trace.py"
    write(path, head | {"traceEvents": kept})


# Kernels of the made-up step: host operation, kernel, microseconds, category, whether it is launched by the backward
# thread. The names are as the libraries give them.
GPU_STEP = [
    ("aten::embedding", "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long>(...)", 10, "kernel",
     "forward"),
    ("aten::native_layer_norm", "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(...)",
     20, "kernel", "forward"),
    ("aten::addmm", "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_bias_TNN", 100, "kernel", "forward"),
    ("aten::_flash_attention_forward", "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, "
     "false, cutlass::bfloat16_t>>(pytorch_flash::Flash_fwd_params)", 60, "kernel", "forward"),
    ("aten::gelu", "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl>(...)", 30, "kernel",
     "forward"),
    ("aten::_log_softmax", "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, "
     "at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(...)", 25, "kernel", "forward"),
    ("aten::copy_", "Memcpy DtoD (Device -> Device)", 5, "gpu_memcpy", "forward"),
    ("aten::mm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", 110, "kernel", "backward"),
    ("aten::mm", "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(...)", 15, "kernel", "backward"),
    ("CompiledFunctionBackward", "triton_per_fused_add_native_layer_norm_native_layer_norm_backward_3", 22, "kernel", "backward"),
    ("CompiledFunctionBackward", "triton_poi_fused_gelu_gelu_backward_5", 33, "kernel", "backward"),
    ("aten::zero_", "Memset (Device)", 2, "gpu_memset", "backward"),
    ("c10d::allreduce_", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 40, "kernel", "backward"),
    ("aten::_fused_adamw_", "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(...)",
     50, "kernel", "update"),
]
HOST, MAIN, BACKWARD_THREAD = 4711, 4711, 4800


class Made:
    """A made-up trace: three equal steps that start 1000 us apart; kernels run one after the other with 3 us between them, but
    for the all-reduce on a stream of its own, which starts 10 us before what stands in front of it ends."""

    def __init__(self):
        self.events = [{"name": "process_name", "ph": "M", "ts": 0.0, "pid": HOST, "tid": 0, "args": {"name": "python"}}]
        self.correlation = self.external = 0

    def slice(self, cat, name, pid, tid, ts, dur, **args):
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    def launch(self, op, kernel, us, cat, phase, host, device):
        self.correlation += 1
        self.external += 1
        thread = BACKWARD_THREAD if phase == "backward" else MAIN
        if phase == "backward":
            self.slice("cpu_op", f"autograd::engine::evaluate_function: {op}Backward0", HOST, thread, host, 9.0,
                       **{"External id": 900 + self.external, "Ev Idx": 0})
        self.slice("cpu_op", op, HOST, thread, host + 1, 7.0, **{"External id": self.external, "Ev Idx": self.external})
        call = {"gpu_memcpy": "cudaMemcpyAsync", "gpu_memset": "cudaMemsetAsync"}.get(cat, "cudaLaunchKernel")
        self.slice("cuda_runtime", call, HOST, thread, host + 3, 2.0,
                   **{"External id": self.external, "cbid": 211, "correlation": self.correlation})
        stream = 13 if "nccl" in kernel else 7
        args = {"External id": self.external, "device": 0, "context": 1, "stream": stream, "correlation": self.correlation}
        if cat == "kernel":
            args |= {"queued": 0, "registers per thread": 128, "shared memory": 0, "blocks per SM": 1.5, "warps per SM": 12.0,
                     "grid": [198, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 19}
        else:
            args |= {"bytes": 4096, "memory bandwidth (GB/s)": 1.5}
        self.slice(cat, kernel, 0, stream, device, float(us), **args)
        for ph, pid, tid, ts in (("s", HOST, thread, host + 3), ("f", 0, stream, device)):
            self.events.append({"ph": ph, "id": self.correlation, "pid": pid, "tid": tid, "ts": ts, "cat": "ac2g", "name": "ac2g",
                                **({"bp": "e"} if ph == "f" else {})})

    def step(self, number, start):
        self.slice("user_annotation", f"ProfilerStep#{number}", HOST, MAIN, start, 300.0, **{"External id": 800 + number})
        host, device = start + 5, start + 100
        update = False
        for op, kernel, us, cat, phase in GPU_STEP:
            if phase == "update" and not update:
                self.slice("user_annotation", "Optimizer.step#AdamW.step", HOST, MAIN, host, 20.0, **{"External id": 850})
                update = True
            at = device - 13 if "nccl" in kernel else device
            self.launch(op, kernel, us, cat, phase, host, at)
            host += 10
            device = at + us + 3

    def trace(self):
        return {"schemaVersion": 1, "note": "synthetic: made by tests/tools/make_torch_trace.py, recorded nowhere",
                "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150754820096, "computeMajor": 9,
                                      "computeMinor": 0, "numSms": 132}],
                "cuda_runtime_version": 12080, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1700000000000000000,
                "traceEvents": self.events + [{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "",
                                               "ts": 9000.0}], "traceName": "synthetic.json"}


def make():
    made = Made()
    for i in range(3):
        made.step(5 + i, 1000.0 * (i + 1))
    return made.trace()


def write(path, trace):
    events = trace.pop("traceEvents")
    with open(path, "w") as f:
        f.write(json.dumps(trace)[:-1] + ',\n"traceEvents": [\n')
        f.write(",\n".join(json.dumps(e, separators=(",", ":")) for e in events))
        f.write("\n]}\n")


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("cpu", "synthetic"):
        print(__doc__, file=sys.stderr)
        return 2
    kind, path = sys.argv[1:]
    if kind == "cpu":
        shorten(path, record(path))
    else:
        write(path, make())
    return 0


if __name__ == "__main__":
    sys.exit(main())

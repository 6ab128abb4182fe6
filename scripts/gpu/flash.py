"""Checks and times Crest's attention kernels on f32 and of wide heads (flash.cu) against PyTorch, in one process:
flash.py check|f32|wide LIBRARY [LIBRARY_BEFORE]."""
import ctypes
import statistics
import sys

import torch

I, D, P = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
SHORT = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


class Call(ctypes.Structure):
    _fields_ = [(n, I) for n in "batch tokens heads kv_heads head_dim causal dtype tf32".split()]
    _fields_ += [("scale", D), ("p", D), ("positions", P), ("scalars", P), ("rng_id", I)]
    _fields_ += [(n, P) for n in "d_o qkv o lse dqkv out workspace stream".split()]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name, result in (("reject", ctypes.c_char_p), ("run", ctypes.c_char_p), ("workspace", I)):
            f = getattr(self.lib, "flash_" + name)
            f.restype, f.argtypes = result, [ctypes.c_char_p, I, ctypes.POINTER(Call)]
        self.lib.flash_scalars.restype, self.lib.flash_scalars.argtypes = P, [I, I]
        self.lib.flash_kept.restype, self.lib.flash_kept.argtypes = None, [ctypes.POINTER(Call), I, I, P]

    def reject(self, kernel, grad, c):
        return self.lib.flash_reject(kernel.encode(), grad, c).decode()

    def run(self, kernel, grad, c):
        problem = self.lib.flash_run(kernel.encode(), grad, c).decode()
        if problem:
            raise RuntimeError(f"{kernel}: {problem}")

    def workspace(self, kernel, c):
        size = self.lib.flash_workspace(kernel.encode(), 1, c)
        return torch.full((max(size, 16),), 255, dtype=torch.uint8, device="cuda")


def pointer(t):
    return None if t is None else t.data_ptr()


def call(shape, dtype, **more):
    b, t, h, kv, d = shape
    c = Call(batch=b, tokens=t, heads=h, kv_heads=kv, head_dim=d, scale=d**-0.5, causal=1, dtype=DTYPES[dtype])
    c.stream = torch.cuda.current_stream().cuda_stream
    for name, value in more.items():
        setattr(c, name, pointer(value) if isinstance(value, torch.Tensor) else value)
    return c


def split(qkv, h, kv, d):
    b, t, _ = qkv.shape
    q, k, v = qkv.split([h * d, kv * d, kv * d], dim=2)
    return [x.view(b, t, n, d).transpose(1, 2) for x, n in ((q, h), (k, kv), (v, kv))]


def visible(t, causal, positions):
    q, k = torch.arange(t, device="cuda")[:, None], torch.arange(t, device="cuda")[None]
    see = (k <= q if causal else torch.ones(t, t, dtype=torch.bool, device="cuda"))[None, None]
    if positions is not None:
        see = see & (k[None, None] >= (q[:, 0] - positions)[:, None, :, None])
    return see


def reference(qkv, d_o, h, kv, d, scale, see, keep=None):
    x = qkv.double().requires_grad_()
    q, k, v = split(x, h, kv, d)
    k, v = k.repeat_interleave(h // kv, 1), v.repeat_interleave(h // kv, 1)
    s = (q @ k.transpose(2, 3) * scale).masked_fill(~see, float("-inf"))
    lse, p = torch.logsumexp(s, 3), torch.softmax(s, 3)
    o = ((p if keep is None else p * keep) @ v).transpose(1, 2).reshape(qkv.shape[0], qkv.shape[1], h * d)
    (dqkv,) = torch.autograd.grad(o, x, d_o.double())
    return o.detach(), lse.detach(), dqkv


def error(x, ref):
    return ((x.double() - ref).norm() / ref.norm().clamp_min(1e-30)).item()


def guarded(shape, dtype):
    """A tensor full of NaN with guards around it."""
    n = 1
    for s in shape:
        n *= s
    all = torch.full((n + 4096,), float("nan"), dtype=dtype, device="cuda")
    return all[2048:2048 + n].view(shape), all


def guards_hold(all):
    return bool(all[:2048].isnan().all() and all[-2048:].isnan().all())


def random_positions(b, t, g):
    out = torch.empty(b, t, dtype=torch.int32)
    for row in out:
        at = 0
        while at < t:
            n = min(int(torch.randint(1, max(2, min(t, 400)), (1,), generator=g)), t - at)
            row[at:at + n] = torch.arange(n)
            at += n
    return out.cuda()


def inputs(shape, dtype, seed=0):
    b, t, h, kv, d = shape
    g = torch.Generator("cuda").manual_seed(seed)
    qkv = torch.randn(b, t, (h + 2 * kv) * d, generator=g, device="cuda").to(dtype)
    d_o = torch.randn(b, t, h * d, generator=g, device="cuda").to(dtype)
    return qkv, d_o


# b, t, h, kv, d, causal, documents, p, scale (0: 1 / sqrt(d))
CHECKS = [(1, 1, 1, 1, 64, 1, 0, 0, 0), (1, 63, 1, 1, 64, 1, 0, 0, 0), (3, 129, 2, 2, 64, 1, 0, 0, 0),
          (3, 1000, 12, 12, 64, 1, 0, 0, 0), (2, 1024, 6, 2, 64, 1, 0, 0, 0), (2, 777, 4, 4, 64, 0, 0, 0, 0),
          (1, 4096, 2, 2, 64, 1, 0, 0, 0), (3, 1000, 4, 2, 64, 1, 1, 0, 0), (2, 260, 2, 2, 64, 1, 0, 0.2, 0),
          (3, 259, 3, 3, 64, 1, 1, 0.1, 0), (1, 150, 1, 1, 32, 1, 0, 0, 4), (2, 1000, 4, 4, 32, 1, 0, 0, 0),
          (2, 333, 4, 4, 80, 1, 0, 0, 0), (2, 500, 4, 4, 33, 1, 0, 0, 0), (4, 300, 8, 8, 96, 1, 0, 0, 0),
          (3, 1000, 12, 4, 128, 1, 0, 0, 0), (2, 777, 4, 4, 128, 0, 0, 0, 0), (2, 1000, 4, 4, 128, 1, 1, 0, 0),
          (3, 129, 2, 2, 128, 1, 0, 0.2, 0)]
WIDE = [(1, 1, 1, 1, 256, 1, 0, 0, 0), (1, 63, 1, 1, 160, 1, 0, 0, 0), (3, 129, 2, 1, 192, 1, 0, 0, 0),
        (2, 1000, 4, 4, 256, 1, 0, 0, 0), (2, 777, 4, 2, 256, 0, 0, 0, 0), (3, 1000, 2, 2, 256, 1, 1, 0, 0),
        (2, 260, 2, 2, 256, 1, 0, 0.2, 0), (1, 130, 2, 2, 136, 1, 0, 0, 0)]
WIDEST = [(1, 1, 1, 1, 512, 1, 0, 0, 0), (3, 129, 2, 1, 512, 1, 0, 0, 0), (2, 1000, 2, 2, 512, 1, 0, 0, 0),
          (2, 777, 2, 2, 512, 0, 0, 0, 0), (3, 500, 2, 2, 500, 1, 1, 0.1, 0)]
# Relative errors allowed of o and gradients: those of tests/ops/check.cpp. Kernel, dtype, whether TF32 is allowed.
KERNELS = [("cuda.flash.fp32", torch.float32, 0, CHECKS, 1e-5), ("cuda.flash.tf32", torch.float32, 1, [c for c in CHECKS if not c[8]], 2e-3),
           ("cuda.flash.wide", torch.bfloat16, 0, WIDE + WIDEST, 1e-2),
           ("cuda.flash.wide", torch.float16, 0, WIDE + WIDEST, 2e-3),
           ("cuda.flash.wide.fp32", torch.float32, 0, WIDE, 1e-5), ("cuda.flash.wide.tf32", torch.float32, 1, WIDE, 2e-3)]


def check(lib, _):
    g = torch.Generator().manual_seed(7)
    failed = 0
    for kernel, dtype, tf32, checks, limit in KERNELS:
        worst = 0
        for number, (b, t, h, kv, d, causal, documents, p, scale) in enumerate(checks):
            shape, scale = (b, t, h, kv, d), scale or d**-0.5
            qkv, d_o = inputs(shape, dtype, number)
            positions = random_positions(b, t, g) if documents else None
            more = dict(causal=causal, positions=positions, qkv=qkv, tf32=tf32, scale=scale)
            keep = None
            if p:
                more |= dict(p=p, rng_id=5, scalars=lib.lib.flash_scalars(77, 3))
                mask = torch.empty(b, h, t, t, dtype=torch.uint8)
                lib.lib.flash_kept(call(shape, dtype, **more), 77, 3, mask.data_ptr())
                keep = mask.cuda().double() / (1 - p)
            o, lse, ref = reference(qkv, d_o, h, kv, d, scale, visible(t, causal, positions), keep)
            o_in, lse_in = o.to(dtype), lse.float().contiguous()
            out, all_out = guarded(o.shape, dtype)
            out_lse, all_lse = guarded(lse.shape, torch.float32)
            c = call(shape, dtype, out=out, lse=out_lse, **more)
            why = lib.reject(kernel, 0, c)
            if not why:
                lib.run(kernel, 0, c)
                dqkv, all_d = guarded(qkv.shape, dtype)
                c = call(shape, dtype, d_o=d_o, o=o_in, lse=lse_in, dqkv=dqkv, **more)
                why = lib.reject(kernel, 1, c)
            if why:
                print(kernel, SHORT[dtype], shape, "is refused:", why)
                failed = 1
                continue
            workspace = lib.workspace(kernel, c)
            c.workspace = workspace.data_ptr()
            lib.run(kernel, 1, c)
            first = dqkv.clone()
            lib.run(kernel, 1, c)
            torch.cuda.synchronize()
            e, el = error(out, o), (out_lse.double() - lse).abs().max().item()
            # Scores that are rounded to TF32 err in proportion to their size.
            lse_limit = limit * lse.abs().max().item() if "tf32" in kernel else 1e-3
            parts = [error(x, y) for x, y in zip(split(dqkv, h, kv, d), split(ref, h, kv, d))]
            if t == 1:
                parts[:2] = 0, 0  # dQ and dK of one token are 0 but for rounding
            whole = error(dqkv, ref)
            good = e < limit and el < lse_limit and whole < limit and parts[2] < limit and torch.equal(first, dqkv)
            good &= guards_hold(all_out) and guards_hold(all_lse) and guards_hold(all_d)
            worst = max(worst, e, whole)
            if not good or max(parts) > limit:
                print(kernel, SHORT[dtype], shape, f"causal {causal} documents {documents} p {p} scale {scale:.2g}:",
                      f"o {e:.1e} lse {el:.1e} dqkv {whole:.1e} (dq %.1e dk %.1e dv %.1e)" % tuple(parts),
                      "" if torch.equal(first, dqkv) else "other bits", "ok" if good else "BAD", flush=True)
            failed |= not good
        print(f"{kernel} {SHORT[dtype]}: worst error {worst:.1e} of {limit:.0e} in {len(checks)} shapes", flush=True)
    print("check:", "FAILED" if failed else "passed", flush=True)


def lse_of(q, k, scale):
    """[b, h, t], causal, in pieces."""
    b, h, t, _ = q.shape
    lse = torch.empty(b, h, t, device="cuda")
    for i in range(b):
        for j in range(h):
            for r in range(0, t, 4096):
                s = (q[i, j, r:r + 4096] @ k[i, j].T).float() * scale
                s += torch.full_like(s, float("-inf")).triu(1 + r)
                lse[i, j, r:r + 4096] = torch.logsumexp(s, 1)
    return lse


def median(body, rounds):
    """Of interleaved calls: job -> ms."""
    times = {job: [] for job in body}
    for _ in range(rounds + 1):
        for job, f in body.items():
            a, b = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            a.record()
            f()
            b.record()
            times[job].append((a, b))
    torch.cuda.synchronize()
    return {job: sorted(a.elapsed_time(b) for a, b in all[1:]) for job, all in times.items()}


def table(title, flops, jobs, rounds):
    print(title)
    for job, ms in median(jobs, rounds).items():
        m = statistics.median(ms)
        work = flops * (2.5 if " grad" in job else 1)
        print(f"  {job:36} {m:9.3f} ms  {work / m * 1e-9:6.1f} TFLOP/s  ({ms[0]:.3f} .. {ms[-1]:.3f})", flush=True)


def compare(lib, before, shape, dtype, kernels, backends, rounds, slow=()):
    """kernels: label -> (library, kernel, tf32). backends: label -> SDPBackend. slow: labels that run once or twice."""
    from torch.nn.attention import sdpa_kernel
    b, t, h, kv, d = shape
    scale = d**-0.5
    flops = 4 * b * h * d * t * (t + 1) / 2
    qkv, d_o = inputs(shape, dtype)
    q, k, v = [x.detach().requires_grad_() for x in split(qkv, h, kv, d)]
    lse = lse_of(q.detach(), k.detach(), scale)
    out, dqkv = torch.empty_like(d_o), torch.empty_like(qkv)
    jobs, slow_jobs, keep = {}, {}, []
    o_ref = None
    for label, (library, kernel, tf32) in kernels.items():
        new_lse = torch.empty_like(lse)
        f = call(shape, dtype, qkv=qkv, out=out, lse=new_lse, tf32=tf32)
        why = library.reject(kernel, 0, f)
        if why:
            print(f"  {label}: {why}")
            continue
        library.run(kernel, 0, f)
        torch.cuda.synchronize()
        if o_ref is None:
            o_ref = out.clone()
        elif error(out, o_ref.double()) > 2e-2:
            print(f"  {label}: o differs by {error(out, o_ref.double()):.1e}")
        g = call(shape, dtype, d_o=d_o, qkv=qkv, o=o_ref, lse=lse, dqkv=dqkv, tf32=tf32)
        workspace = library.workspace(kernel, g)
        g.workspace = workspace.data_ptr()
        keep += [new_lse, workspace]
        to = slow_jobs if label in slow else jobs
        to[label + " forward"] = lambda library=library, kernel=kernel, f=f: library.run(kernel, 0, f)
        to[label + " grad"] = lambda library=library, kernel=kernel, g=g: library.run(kernel, 1, g)
    go = d_o.view(b, t, h, d).transpose(1, 2)
    for label, backend in backends.items():
        def forward(backend=backend, grad=False):
            with torch.set_grad_enabled(grad), sdpa_kernel(backend):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv < h)
        try:
            o = forward(grad=True)
            torch.autograd.grad(o, (q, k, v), go, retain_graph=True)
        except Exception as e:
            print(f"  {label}: {str(e).splitlines()[0][:100]}")
            torch.cuda.synchronize()
            continue
        keep.append(o)
        jobs[label + " forward"] = forward
        jobs[label + " grad"] = lambda o=o: torch.autograd.grad(o, (q, k, v), go, retain_graph=True)
    title = f"{SHORT[dtype]} b {b} t {t} h {h} kv {kv} d {d}"
    table(title, flops, jobs, rounds)
    if slow_jobs:
        table(title + ", few calls", flops, slow_jobs, 2)


def f32(lib, before):
    from torch.nn.attention import SDPBackend
    for shape in [(4, 1024, 12, 12, 64), (1, 4096, 16, 16, 64), (4, 1024, 16, 16, 128), (1, 16384, 16, 16, 64)]:
        long = shape[1] > 8192
        kernels = {"before": (before, "cuda.flash.fp32", 0), "fp32": (lib, "cuda.flash.fp32", 0),
                   "tf32": (lib, "cuda.flash.tf32", 1)}
        backends = {"torch efficient": SDPBackend.EFFICIENT_ATTENTION}
        if not long:
            backends["torch math"] = SDPBackend.MATH
        torch.backends.cuda.matmul.allow_tf32 = False
        compare(lib, before, shape, torch.float32, kernels, backends, 3 if long else 9)
        if not long:
            torch.backends.cuda.matmul.allow_tf32 = True
            compare(lib, before, shape, torch.float32, {}, {"torch efficient, allow_tf32": SDPBackend.EFFICIENT_ATTENTION,
                                                            "torch math, allow_tf32": SDPBackend.MATH}, 9)
            torch.backends.cuda.matmul.allow_tf32 = False


def wide(lib, before):
    from torch.nn.attention import SDPBackend
    backends = {"torch cudnn": SDPBackend.CUDNN_ATTENTION, "torch flash": SDPBackend.FLASH_ATTENTION}
    for d in (160, 192, 256, 512):
        shape = (4, 1024, 4096 // d // 2, 4096 // d // 2, d)
        kernels = {"new": (lib, "cuda.flash.wide", 0), "before": (before, "cuda.attention.generic", 0)}
        compare(lib, before, shape, torch.bfloat16, kernels, backends, 9, slow=("before",))
    shape = (2, 1024, 8, 8, 256)
    compare(lib, before, shape, torch.float32,
            {"fp32": (lib, "cuda.flash.wide.fp32", 0), "tf32": (lib, "cuda.flash.wide.tf32", 1),
             "before": (before, "cuda.attention.generic", 0)},
            {"torch efficient": SDPBackend.EFFICIENT_ATTENTION}, 5, slow=("before",))
    shape = (1, 8192, 8, 8, 256)
    compare(lib, before, shape, torch.bfloat16, {"new": (lib, "cuda.flash.wide", 0)}, backends, 5)


if __name__ == "__main__":
    libraries = [Library(p) for p in sys.argv[2:]]
    for word in sys.argv[1].split(","):
        globals()[word](libraries[0], libraries[1] if len(libraries) > 1 else None)

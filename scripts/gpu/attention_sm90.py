"""Checks and times the attention kernels for compute capability 9.0 (attention_sm90.cu) beside PyTorch's cuDNN
attention, in one process: attention_sm90.py check|repeat|time|row LIBRARY [LIBRARY..]."""
import ctypes
import statistics
import sys

import torch

I, D, P = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p


class Call(ctypes.Structure):
    _fields_ = [(n, I) for n in "batch tokens heads kv_heads head_dim causal window".split()] + [("scale", D)]
    _fields_ += [(n, I) for n in "chunk ring blocks".split()] + [("positions", P), ("scalars", P), ("rng_id", I)]
    _fields_ += [("p", D)] + [(n, P) for n in "d_o qkv o lse dqkv out workspace stream".split()]


def library(path):
    lib = ctypes.CDLL(path)
    for name in ("grad", "grad_workspace", "forward"):
        if hasattr(lib, name):
            getattr(lib, name).restype = I
            getattr(lib, name).argtypes = [ctypes.POINTER(Call)]
    lib.has_forward = hasattr(lib, "forward")
    if hasattr(lib, "scalars"):
        lib.scalars.restype, lib.scalars.argtypes = P, [I, I]
        lib.kept.restype, lib.kept.argtypes = None, [ctypes.POINTER(Call), I, I, P]
    return lib


def pointer(t):
    return None if t is None else t.data_ptr()


def call(shape, **more):
    b, t, h, kv, d = shape
    c = Call(batch=b, tokens=t, heads=h, kv_heads=kv, head_dim=d, scale=d**-0.5, causal=1)
    c.stream = torch.cuda.current_stream().cuda_stream
    for name, value in more.items():
        setattr(c, name, pointer(value) if isinstance(value, torch.Tensor) else value)
    return c


def split(qkv, h, kv, d):
    b, t, _ = qkv.shape
    q, k, v = qkv.split([h * d, kv * d, kv * d], dim=2)
    return [x.view(b, t, n, d).transpose(1, 2) for x, n in ((q, h), (k, kv), (v, kv))]


def visible(t, causal, window, positions, device):
    q, k = torch.arange(t, device=device)[:, None], torch.arange(t, device=device)[None]
    see = torch.ones(t, t, dtype=torch.bool, device=device)
    if causal:
        see = k <= q
    if window:
        see = see & (k > q - window)
    see = see[None, None]
    if positions is not None:
        see = see & (k[None, None] >= (q[:, 0] - positions)[:, None, :, None])
    return see


def reference(qkv, d_o, h, kv, d, see, keep=None):
    x = qkv.double().requires_grad_()
    q, k, v = split(x, h, kv, d)
    k, v = k.repeat_interleave(h // kv, 1), v.repeat_interleave(h // kv, 1)
    s = (q @ k.transpose(2, 3) * d**-0.5).masked_fill(~see, float("-inf"))
    lse = torch.logsumexp(s, 3)
    p = torch.softmax(s, 3)
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


def inputs(shape, seed=0):
    b, t, h, kv, d = shape
    g = torch.Generator("cuda").manual_seed(seed)
    qkv = torch.randn(b, t, (h + 2 * kv) * d, generator=g, device="cuda").bfloat16()
    d_o = torch.randn(b, t, h * d, generator=g, device="cuda").bfloat16()
    return qkv, d_o


CHECKS = [
    # b, t, h, kv, d, causal, window, documents, chunk, ring
    (1, 128, 1, 1, 64, 1, 0, 0, 0, 0),
    (1, 256, 1, 1, 64, 1, 0, 0, 0, 0),
    (1, 1, 1, 1, 64, 1, 0, 0, 0, 0),
    (1, 63, 1, 1, 64, 1, 0, 0, 0, 0),
    (3, 129, 2, 2, 64, 1, 0, 0, 0, 0),
    (3, 1000, 1, 1, 64, 1, 0, 0, 0, 0),
    (3, 1000, 12, 12, 64, 1, 0, 0, 8, 1),
    (4, 1024, 25, 25, 64, 1, 0, 0, 8, 1),
    (2, 1024, 6, 2, 64, 1, 0, 0, 0, 0),
    (2, 777, 4, 4, 64, 0, 0, 0, 0, 0),
    (1, 4096, 2, 2, 64, 1, 0, 0, 0, 0),
    (1, 128, 1, 1, 128, 1, 0, 0, 0, 0),
    (3, 129, 2, 2, 128, 1, 0, 0, 0, 0),
    (1, 1, 1, 1, 128, 1, 0, 0, 0, 0),
    (3, 1000, 12, 4, 128, 1, 0, 0, 8, 1),
    (2, 777, 4, 4, 128, 0, 0, 0, 0, 0),
    (3, 1000, 4, 4, 64, 1, 200, 0, 0, 0),
    (3, 1000, 4, 2, 64, 1, 0, 1, 0, 0),
    (2, 2000, 8, 8, 64, 1, 130, 1, 8, 1),
    (2, 1000, 4, 4, 128, 1, 0, 1, 0, 0),
]


DROPOUT_CHECKS = [(2, 260, 2, 2, 64, 1, 0, 0, 0, 0, 0.2), (3, 259, 3, 3, 64, 1, 0, 1, 0, 0, 0.1),
                  (2, 500, 4, 2, 128, 1, 0, 0, 0, 0, 0.2), (1, 130, 2, 2, 64, 0, 0, 0, 0, 0, 0.5)]


def small(lib):
    """The first checks: for compute-sanitizer."""
    check(lib, CHECKS[:6] + CHECKS[11:13] + CHECKS[16:17])


def check(lib, cases=None):
    g = torch.Generator().manual_seed(7)
    worst = 0
    checks = [c + (0,) for c in cases or CHECKS]
    checks += DROPOUT_CHECKS if hasattr(lib, "kept") and not cases else []
    for number, (b, t, h, kv, d, causal, window, documents, chunk, ring, p) in enumerate(checks):
        shape = (b, t, h, kv, d)
        qkv, d_o = inputs(shape, number)
        positions = random_positions(b, t, g) if documents else None
        keep = None
        more = dict(causal=causal, window=window, positions=positions, chunk=chunk, ring=ring, qkv=qkv)
        if p:
            more |= dict(p=p, rng_id=5, scalars=lib.scalars(77, 3))
            mask = torch.empty(b, h, t, t, dtype=torch.uint8)
            lib.kept(call(shape, **more), 77, 3, mask.data_ptr())
            keep = mask.cuda().double() / (1 - p)
        o, lse, ref = reference(qkv, d_o, h, kv, d, visible(t, causal, window, positions, "cuda"), keep)
        o16, lse32 = o.bfloat16(), lse.float().contiguous()
        text = f"{shape} causal {causal} window {window} documents {documents} p {p}:"
        bad = False
        if lib.has_forward:
            out, all = guarded(o16.shape, torch.bfloat16)
            out_lse, all_lse = guarded(lse32.shape, torch.float32)
            code = lib.forward(call(shape, out=out, lse=out_lse, **more))
            torch.cuda.synchronize()
            if code == -1:
                text += " forward not there"
            else:
                e, el = error(out, o), (out_lse.double() - lse).abs().max().item()
                bad |= code != 0 or not (e < 6e-3 and el < 1e-3 and guards_hold(all) and guards_hold(all_lse))
                text += f" o {e:.1e} lse {el:.1e}"
        dqkv, all = guarded(qkv.shape, torch.bfloat16)
        c = call(shape, d_o=d_o, o=o16, lse=lse32, dqkv=dqkv, **more)
        bytes = lib.grad_workspace(c)
        if bytes < 0:
            print(text, "grad not there")
            continue
        workspace, all_work = guarded(((bytes + 3) // 4,), torch.float32)
        c.workspace = workspace.data_ptr()
        code = lib.grad(c)
        torch.cuda.synchronize()
        parts = [error(x, y) for x, y in zip(split(dqkv, h, kv, d), split(ref, h, kv, d))]
        # One token: dQ and dK are 0 but for rounding.
        limit = 1e-2 if t > 1 else float("inf")
        bad |= code != 0 or not (all_finite(dqkv) and guards_hold(all) and guards_hold(all_work))
        bad |= not (parts[0] < limit and parts[1] < limit and parts[2] < 1e-2)
        print(text, "dq %.1e dk %.1e dv %.1e" % tuple(parts), "BAD" if bad else "ok", flush=True)
        worst |= bad
    print("check:", "FAILED" if worst else "passed")


def all_finite(x):
    return bool(torch.isfinite(x.float()).all())


def repeat(lib, times=1000):
    """The same bits every time; under injected delays where the library was built with -DCREST_HOPPER_DELAYS."""
    for shape in [(2, 1000, 9, 9, 64), (4, 1024, 12, 12, 64), (1, 4096, 8, 8, 64), (1, 2000, 8, 4, 128)]:
        b, t, h, kv, d = shape
        qkv, d_o = inputs(shape, 3)
        o = torch.empty(b, t, h * d, dtype=torch.bfloat16, device="cuda")
        lse = torch.empty(b, h, t, device="cuda")
        dqkv = torch.empty_like(qkv)
        f = call(shape, qkv=qkv, out=o, lse=lse)
        c = call(shape, d_o=d_o, o=o, lse=lse, dqkv=dqkv, qkv=qkv, chunk=8, ring=1)
        workspace = torch.empty(lib.grad_workspace(c), dtype=torch.uint8, device="cuda")
        c.workspace = workspace.data_ptr()
        differ, first = torch.zeros(3, dtype=torch.int64, device="cuda"), None
        for _ in range(times):
            for x in (o, lse, dqkv):
                x.fill_(float("nan"))
            assert lib.forward(f) == 0 and lib.grad(c) == 0
            now = [o.view(torch.int16), lse.view(torch.int32), dqkv.view(torch.int16)]
            if first is None:
                first = [x.clone() for x in now]
            differ += torch.stack([(x != y).any() for x, y in zip(now, first)])
        print(f"repeat {shape}: of {times} runs differ in o {differ[0]}, lse {differ[1]}, dqkv {differ[2]}", flush=True)


def one(lib):
    """One call of each, for a profiler."""
    shape = (64, 1024, 12, 12, 64)
    b, t, h, kv, d = shape
    qkv, d_o = inputs(shape)
    o, lse, dqkv = torch.empty_like(d_o), torch.empty(b, h, t, device="cuda"), torch.empty_like(qkv)
    c = call(shape, d_o=d_o, o=o, lse=lse, dqkv=dqkv, qkv=qkv, out=o)
    workspace = torch.empty(lib.grad_workspace(c), dtype=torch.uint8, device="cuda")
    c.workspace = workspace.data_ptr()
    for _ in range(2):
        assert lib.forward(c) == 0 and lib.grad(c) == 0
    torch.cuda.synchronize()


def compare(name, jobs, rounds=15):
    """Medians of calls in turns; jobs: name -> (function, call)."""
    times = {job: [] for job in jobs}
    for _ in range(rounds + 2):
        for job, (f, c) in jobs.items():
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            clock(lambda: f(c), events)
            times[job].append(events)
    torch.cuda.synchronize()
    for job, all in times.items():
        print(f"{name} {job:22} {statistics.median(a.elapsed_time(b) for a, b in all[2:]):.3f} ms")


def variants(lib, name, shape, kinds):
    """Times forward and backward beside each other; kinds: name -> what a call has more."""
    b, t, h, kv, d = shape
    qkv, d_o = inputs(shape)
    o, lse, dqkv = torch.empty_like(d_o), torch.empty(b, h, t, device="cuda"), torch.empty_like(qkv)
    jobs, keep = {}, []
    for kind, more in kinds.items():
        c = call(shape, d_o=d_o, o=o, lse=lse, dqkv=dqkv, qkv=qkv, out=o, **more)
        keep.append(torch.empty(lib.grad_workspace(c), dtype=torch.uint8, device="cuda"))
        c.workspace = keep[-1].data_ptr()
        jobs[kind + " forward"], jobs[kind + " grad"] = (lib.forward, c), (lib.grad, c)
    compare(f"{name} {shape}", jobs)


def packed(lib):
    """Documents that share rows: time beside the same tokens without documents."""
    for shape in [(64, 1024, 12, 12, 64), (8, 8192, 12, 12, 64), (4, 8192, 12, 12, 128)]:
        b, t, *_ = shape
        documents = random_positions(b, t, torch.Generator().manual_seed(1))
        one = torch.arange(t, dtype=torch.int32, device="cuda").repeat(b, 1).contiguous()
        variants(lib, "packed", shape, {"plain": {}, "documents": dict(positions=documents),
                                        "one document": dict(positions=one), "window 1024": dict(window=1024)})


def dropout(lib):
    """Time with dropout beside that without."""
    for shape in [(64, 1024, 12, 12, 64), (4, 4096, 32, 32, 128)]:
        variants(lib, "dropout", shape, {"none": {}, "p 0.1": dict(p=0.1, rng_id=5, scalars=lib.scalars(77, 3))})


def row(lib, rounds=15):
    """Forward and gradient together, beside cuDNN and FlashAttention 2, at the shape of published tables."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    shape = b, t, h, kv, d = 1, 16384, 16, 16, 64
    qkv, d_o = inputs(shape)
    o, lse, dqkv = torch.empty_like(d_o), torch.empty(b, h, t, device="cuda"), torch.empty_like(qkv)
    c = call(shape, d_o=d_o, o=o, lse=lse, dqkv=dqkv, qkv=qkv, out=o)
    workspace = torch.empty(lib.grad_workspace(c), dtype=torch.uint8, device="cuda")
    c.workspace = workspace.data_ptr()
    q, k, v = [x.detach().contiguous().requires_grad_() for x in split(qkv, h, kv, d)]
    go = d_o.view(b, t, h, d).transpose(1, 2).contiguous()

    def own(_):
        assert lib.forward(c) == 0 and lib.grad(c) == 0

    def library(backend):
        with sdpa_kernel(backend):
            out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(out, (q, k, v), go)

    compare(f"row {shape}", {"own": (own, c), "cuDNN": (library, SDPBackend.CUDNN_ATTENTION),
                             "FlashAttention 2": (library, SDPBackend.FLASH_ATTENTION)}, rounds)


SHAPES = [(64, 1024, 12, 12, 64), (16, 1024, 25, 25, 64), (4, 16384, 12, 12, 64), (1, 16384, 16, 16, 64),
          (4, 4096, 32, 32, 128), (4, 4096, 32, 8, 64)]


def clock(body, events):
    events[0].record()
    body()
    events[1].record()


def time(libs, shapes, rounds=15, sets=2, only=None, options=({},)):
    """Medians of interleaved calls, each over another set of buffers."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    for shape in shapes:
        b, t, h, kv, d = shape
        flops = 4 * b * h * d * t * (t + 1) / 2
        data = []
        for n in range(sets):
            qkv, d_o = inputs(shape, n)
            q, k, v = [x.detach().requires_grad_() for x in split(qkv, h, kv, d)]
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                run = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                                               enable_gqa=kv < h)
                out = run()
            lse = torch.empty(b, h, t, device="cuda")
            for i in range(b):
                for j in range(h):
                    for r in range(0, t, 4096):
                        s = (q[i, j, r:r + 4096].detach() @ k[i, j * kv // h].detach().T).float() * d**-0.5
                        s += torch.full_like(s, float("-inf")).triu(1 + r)
                        lse[i, j, r:r + 4096] = torch.logsumexp(s, 1)
            go = d_o.view(b, t, h, d).transpose(1, 2)
            o = out.detach().transpose(1, 2).reshape(b, t, h * d).contiguous()
            data.append((qkv, d_o, q, k, v, out, go, o, lse, torch.empty_like(qkv), torch.empty_like(o)))
        jobs = {}
        def forward_cudnn(n):
            _, _, q, k, v, *_ = data[n]
            with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv < h)
        def grad_cudnn(n):
            _, _, q, k, v, out, go, *_ = data[n]
            torch.autograd.grad(out, (q, k, v), go, retain_graph=True)
        jobs["cudnn forward"] = forward_cudnn, flops
        jobs["cudnn grad"] = grad_cudnn, 2.5 * flops
        keep = []
        for name, lib in libs.items():
            for option in options:
                label = name + "".join(f" {k}={v}" for k, v in option.items())
                c = call(shape, **option)
                size = lib.grad_workspace(c)
                if size >= 0:
                    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
                    def grad(n, c=c, lib=lib, workspace=workspace):
                        qkv, d_o, q, k, v, out, go, o, lse, dqkv, _ = data[n]
                        c.d_o, c.qkv, c.o, c.lse, c.dqkv = map(pointer, (d_o, qkv, o, lse, dqkv))
                        c.workspace = workspace.data_ptr()
                        assert lib.grad(c) == 0
                    jobs[label + " grad"] = grad, 2.5 * flops
                    grad(0)
                    want = torch.autograd.grad(data[0][5], data[0][2:5], data[0][6], retain_graph=True)
                    e = [error(x, y.double()) for x, y in zip(split(data[0][9], h, kv, d), want)]
                    del want
                    if not max(e) < 2e-2:
                        print(label, "differs from cuDNN:", e)
                if lib.has_forward and not option and lib.forward:
                    def forward(n, lib=lib):
                        qkv, _, _, _, _, _, _, o, _, _, mine = data[n]
                        c = call(shape, qkv=qkv, out=mine)
                        c.lse = data[n][8].data_ptr()
                        return lib.forward(c)
                    if forward(0) == 0:
                        e = error(data[0][10], data[0][7].double())
                        if not e < 1e-2:
                            print(label, "forward differs from cuDNN:", e)
                        jobs[label + " forward"] = forward, flops
        times = {name: [] for name in jobs}
        for r in range(rounds + 2):
            for name, (body, _) in jobs.items():
                events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                clock(lambda: body(r % sets), events)
                times[name].append(events)
        torch.cuda.synchronize()
        print(f"shape b {b} t {t} h {h} kv {kv} d {d}")
        for name, (_, work) in sorted(jobs.items(), key=lambda x: x[0].split()[-1]):
            ms = sorted(a.elapsed_time(b) for a, b in times[name][2:])
            m = statistics.median(ms)
            print(f"  {name:32} {m:8.3f} ms  {work / m * 1e-9:6.1f} TFLOP/s  ({ms[0]:.3f} .. {ms[-1]:.3f})", flush=True)
        del data, jobs


if __name__ == "__main__":
    what, paths = sys.argv[1], sys.argv[2:]
    libs = {p.split("/")[-1].removesuffix(".so"): library(p) for p in paths}
    for word in what.split(","):
        if word == "time":
            time(libs, SHAPES)
        elif word == "short":
            time(libs, SHAPES[:4])
        elif word == "chunks":
            time(libs, SHAPES[:4], options=[dict(chunk=c, ring=r) for c in (16, 32, 64, 132) for r in (1, 2)])
        else:
            for name, lib in libs.items():
                print(word, name)
                globals()[word](lib)

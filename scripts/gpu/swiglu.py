"""Checks and times the matmuls of SwiGLU (swiglu.cu) beside PyTorch's: swiglu.py check|repeat|time LIBRARY."""
import ctypes
import statistics
import sys

import torch

P, I = ctypes.c_void_p, ctypes.c_int


def library(path):
    lib = ctypes.CDLL(path)
    for name, pointers in (("swiglu", 6), ("swiglu_grad", 7), ("dx_sum", 5)):
        f = getattr(lib, name)
        f.restype, f.argtypes = I, [P] * pointers + [I, I, I, P]
    return lib


def run(f, tensors, m, n, k):
    code = f(*[t.data_ptr() if t is not None else None for t in tensors], m, n, k, torch.cuda.current_stream().cuda_stream)
    assert code == 0, code


class Layer:
    """A layer of `ff` columns over `m` tokens of `width` numbers, and its results with guards around them."""

    def __init__(self, m, width, ff, seed=0):
        g = torch.Generator("cuda").manual_seed(seed)
        new = lambda *s, scale=1.0: (torch.randn(*s, generator=g, device="cuda") * scale).bfloat16()
        self.m, self.width, self.ff = m, width, ff
        self.x, self.dy = new(m, width), new(m, width)
        self.w, self.w_up, self.w_proj = new(ff, width, scale=width**-0.5), new(ff, width, scale=width**-0.5), new(width, ff, scale=ff**-0.5)
        self.results = {}

    def result(self, name, columns):
        if name not in self.results:
            self.results[name] = torch.full((self.m * columns + 4096,), float("nan"), dtype=torch.bfloat16, device="cuda")
        return self.results[name][2048:2048 + self.m * columns].view(self.m, columns)

    def guards_hold(self):
        return all(bool(t[:2048].isnan().all() and t[-2048:].isnan().all()) for t in self.results.values())

    def forward(self, lib, keep=True):
        a, g, u = [self.result(n, self.ff) for n in "agu"]
        run(lib.swiglu, (self.x, self.w, self.w_up, a, g if keep else None, u if keep else None), self.m, self.ff, self.width)
        return a, g, u

    def gradient(self, lib, g, u, keep=True, in_place=False):
        dg, du, a = [self.result(n, self.ff) for n in ("dg", "du", "a again")]
        if in_place:
            dg.copy_(g), du.copy_(u)
            g, u = dg, du
        run(lib.swiglu_grad, (self.dy, self.w_proj, g, u, dg, du, a if keep else None), self.m, self.ff, self.width)
        return dg, du, a

    def dx(self, lib, dg, du):
        dx = self.result("dx", self.width)
        run(lib.dx_sum, (dg, self.w, du, self.w_up, dx), self.m, self.width, self.ff)
        return dx


def error(x, ref):
    return ((x.double() - ref).norm() / ref.norm().clamp_min(1e-30)).item()


def check(lib):
    failed = False
    for number, (m, width, ff) in enumerate([(1, 8, 8), (63, 64, 96), (129, 72, 200), (1000, 96, 264), (387, 2048, 1000), (3000, 768, 3072),
                                             (128, 256, 192), (4096, 2048, 8192)]):
        layer = Layer(m, width, ff, number)
        a, g, u = layer.forward(lib)
        x, w, w_up, w_proj, dy = [t.double() for t in (layer.x, layer.w, layer.w_up, layer.w_proj, layer.dy)]
        errors = {"g": error(g, x @ w.T), "u": error(u, x @ w_up.T)}
        gd, ud = g.double().requires_grad_(), u.double().requires_grad_()
        out = torch.nn.functional.silu(gd) * ud
        errors["a"] = error(a, out.detach())
        out.backward(dy @ w_proj)
        dg, du, again = layer.gradient(lib, g, u)
        errors |= {"dg": error(dg, gd.grad), "du": error(du, ud.grad), "a again": error(again, out.detach())}
        errors["dx"] = error(layer.dx(lib, dg, du), dg.double() @ w + du.double() @ w_up)
        before = [t.clone() for t in (a, dg, du)]
        layer.forward(lib, keep=False), layer.gradient(lib, g, u, keep=False, in_place=True)
        same = all(torch.equal(t, b) for t, b in zip((a, dg, du), before))
        torch.cuda.synchronize()
        bad = not (max(errors.values()) < 6e-3 and same and layer.guards_hold())
        failed |= bad
        print(f"{m} x {width} x {ff}:", " ".join(f"{n} {e:.1e}" for n, e in errors.items()), "other bits" if not same else "",
              "BAD" if bad else "ok", flush=True)
    print("check:", "FAILED" if failed else "passed", flush=True)


def repeat(lib, times=300):
    """The same bits every time; under injected delays where the library was built with -DCREST_HOPPER_DELAYS."""
    for shape in [(1000, 2048, 1000), (4096, 768, 3072)]:
        layer = Layer(*shape)
        first, differ = None, torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(times):
            for t in layer.results.values():
                t.fill_(float("nan"))
            a, g, u = layer.forward(lib)
            dg, du, again = layer.gradient(lib, g, u)
            now = [t.clone().view(torch.int16) for t in (a, g, u, dg, du, again, layer.dx(lib, dg, du))]
            first = first or now
            differ += torch.stack([(x != y).any() for x, y in zip(now, first)]).sum()
        print(f"repeat {shape}: {differ.item()} results of {times} runs differ", flush=True)


def medians(title, jobs, rounds=12):
    times = {job: [] for job in jobs}
    for _ in range(rounds + 3):
        for job, f in jobs.items():
            a, b = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            a.record(), f(), b.record()
            times[job].append((a, b))
    torch.cuda.synchronize()
    for job, all in times.items():
        ms = sorted(a.elapsed_time(b) for a, b in all[3:])
        print(f"{title} {job:44} {statistics.median(ms):.3f} ms ({ms[0]:.3f} .. {ms[-1]:.3f})", flush=True)


def time(lib):
    """Of a layer, in turns: the library's products alone, with the passes over memory that they need, and Crest's."""
    silu = torch.nn.functional.silu
    act = torch.compile(lambda g, u: silu(g.float()).mul(u.float()).bfloat16())

    @torch.compile
    def act_grad(da, g, u):
        da, g, u = da.float(), g.float(), u.float()
        s = torch.sigmoid(g)
        return (da * u * (s + g * s * (1 - s))).bfloat16(), (da * g * s).bfloat16(), (g * s * u).bfloat16()

    for name, m, width, ff in [("llama-1B", 16384, 2048, 8192), ("cs336-small", 16384, 768, 3072), ("llama-8B", 8192, 4096, 14336)]:
        l = Layer(m, width, ff)
        a, g, u = [t.clone() for t in l.forward(lib)]
        dg, du, _ = [t.clone() for t in l.gradient(lib, g, u)]
        medians(f"{name} {m} x {width} x {ff}", {
            "forward: two products": lambda: (l.x @ l.w.T, l.x @ l.w_up.T),
            "forward: two products, silu(g) u": lambda: act(l.x @ l.w.T, l.x @ l.w_up.T),
            "forward: Crest": lambda: l.forward(lib),
            "gradient: product": lambda: l.dy @ l.w_proj,
            "gradient: product, gradients of silu(g) u": lambda: act_grad(l.dy @ l.w_proj, g, u),
            "gradient: Crest": lambda: l.gradient(lib, g, u),
            "dx: two products": lambda: (dg @ l.w, du @ l.w_up),
            "dx: two products, sum": lambda: torch.addmm(dg @ l.w, du, l.w_up),
            "dx: Crest": lambda: l.dx(lib, dg, du)})


if __name__ == "__main__":
    for word in sys.argv[1].split(","):
        globals()[word](library(sys.argv[2]))

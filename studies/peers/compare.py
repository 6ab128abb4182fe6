#!/usr/bin/env python3
"""Crest and PyTorch side by side on one GPU or CPU: the same training steps, processes taking turns in one run.

  compare.py --crest 'crest' --out DIR [--rows sizes|fp8|ladder|cpu|124M-B64,..] [--rounds 2] [--samples 30] [--together 3]

Each round runs every program of a row once (Crest, PyTorch, Crest, PyTorch, ..), so that drift of the machine meets all
of them. With --together N the PyTorch programs of N rows are started at once and compile beside each other; then they
take their turns one by one, which saves the time of compiling before each round, and each holds its weights meanwhile; the spread between rounds of one program (A/A) is the noise floor of the row. Ratios are of medians; on a
CPU, which other processes may use too, of the fastest steps. Writes
DIR/compare.json (everything) and DIR/compare.md (the table).
"""
import argparse, json, os, select, shlex, statistics, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))

def row(name, model, batch, torch, crest="", precision="bf16", attention="flash", vocab=50304, seq=1024, device="cuda", isa=""):
    return dict(isa=isa, name=name, model=model, batch=batch, torch=torch, crest=crest, precision=precision,
                attention=attention, vocab=vocab, seq=seq, device=device)

COMPILE, GRAPHS = ["--compile"], ["--compile", "--mode", "reduce-overhead"]
FP8 = [COMPILE, COMPILE + ["--float8", "tensorwise"], COMPILE + ["--float8", "rowwise"]]  # bf16, and torchao's recipes
SIZES = [
    row("124M-B64", "124M", 64, [COMPILE]), row("124M-B16", "124M", 16, [COMPILE]),
    row("124M-B4", "124M", 4, [GRAPHS]), row("124M-B1", "124M", 1, [GRAPHS]),
    row("355M-B32", "355M", 32, [COMPILE]), row("774M-B16", "774M", 16, [COMPILE]),
    row("1558M-B16", "1558M", 16, [COMPILE]), row("124M-B4-T16384", "124M", 4, [COMPILE], "--context 16384", seq=16384),
    row("llama-1B-B4-T4096", "llama-1B", 4, [COMPILE], seq=4096),
    row("1558M-B16-none", "1558M", 16, [COMPILE], "--recompute none"), row("124M-B64-none", "124M", 64, [COMPILE], "--recompute none"),
]
SIZES8 = [row(f"{model}-B{batch}-fp8", model, batch, FP8, precision="fp8", seq=seq)
          for model, batch, seq in [("124M", 64, 1024), ("774M", 16, 1024), ("1558M", 8, 1024), ("llama-1B", 4, 4096)]]
def rung(name, fusion, precision, attention, vocab):
    torch = [[]] if fusion == "off" else [COMPILE]
    pad = "--pad-vocab 1" if vocab == 50257 else ""
    return row(f"{name}-fusion-{fusion}", "124M", 16, torch, f"--fusion {fusion} {pad}", precision, attention, vocab)
LADDER = [rung(n, f, p, a, v) for n, p, a, v in [
    ("A-fp32-naive", "fp32", "naive", 50257), ("B-tf32-naive", "tf32", "naive", 50257),
    ("C-bf16-naive", "bf16", "naive", 50257), ("D-bf16-flash", "bf16", "flash", 50257),
    ("E-bf16-flash-padded", "bf16", "flash", 50304)] for f in ("off", "on")]

# A class of processors is what both may use of a larger one (CLASSES).
CPU = [row(f"cpu-{name}-{p}" + (f"-{isa}" if isa else ""), model, batch, [COMPILE, []], precision=p, seq=seq, device="cpu", isa=isa)
       for name, model, batch, seq in [("124M-B4", "124M", 4, 256), ("micro-B32", "micro", 32, 256), ("124M-B1", "124M", 1, 1024),
                                       ("cs336-small-B4", "cs336-small", 4, 256), ("llama-nano-B8", "llama-nano", 8, 256)]
       for p in ("fp32", "bf16") for isa in ("", "avx2", "avx512_bf16")]
CLASSES = {"": {}, "avx2": dict(CREST_ISA="avx2", ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2"),
           "avx512_bf16": dict(CREST_ISA="avx512_bf16", ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16")}

def run(command, timeout, isa):
    start = time.time()
    p = subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=dict(os.environ, **CLASSES[isa]))
    return p, time.time() - start

def ours_ms(d, r):
    return d["step_ms_min"] if r["device"] == "cpu" else d["step_ms_median"]

def crest(a, r):
    command = shlex.split(a.crest) + ["bench", "--device", r["device"], "--model",
        f"gpt2-{r['model']}" if r["model"].endswith("M") else r["model"], "--batch", str(r["batch"]), "--seq", str(r["seq"]),
        "--precision", r["precision"], "--attention", r["attention"], "--samples", str(a.samples), "--warmup",
        str(a.warmup), "--no-mfu", "--no-store", "--json"] + shlex.split(r["crest"])
    p, wall = run(command, a.timeout, r['isa'])
    if p.returncode:
        return dict(program="crest", error=(p.stderr.strip().splitlines() or ["?"])[-1][:200], command=shlex.join(command))
    d = json.loads(p.stdout)[0]
    return dict(program="crest", ms=ours_ms(d, r), gib=d["memory"]["measured_peak_bytes"] / 2**30,
                device_gib=d["memory"]["device_peak_bytes"] / 2**30, wall_s=wall, command=shlex.join(command), raw=d)

def torch_name(extra):
    if "--float8" in extra:
        return f"PyTorch torchao {extra[-1]}"
    return "PyTorch " + ("compile" if extra == COMPILE else "CUDA graphs" if extra else "eager")

def torch_command(a, r, extra):
    precision = "bf16" if r["precision"] == "fp8" else r["precision"]
    return [sys.executable, os.path.join(HERE, "torch_gpt2.py"), "--size", r["model"], "--batch", str(r["batch"]),
            "--precision", precision, "--attention", r["attention"] if r["attention"] == "naive" or r["device"] == "cpu" else a.torch_attention,
            "--vocab", str(r["vocab"]), "--steps", str(a.samples), "--warmup", str(a.warmup), "--seq", str(r["seq"]),
            "--device", r["device"]] + extra

class Waiting:
    """A PyTorch program that has compiled and measures when asked."""
    def __init__(self, command, log, isa):
        self.log, self.text = open(log, "w"), b""
        self.process = subprocess.Popen(command + ["--turns"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, env=dict(os.environ, **CLASSES[isa]))

    def line(self, timeout):
        """The next line, empty at its end or when the time is up."""
        end = time.time() + timeout
        while b"\n" not in self.text:
            if not select.select([self.process.stdout], [], [], max(0, end - time.time()))[0]:
                self.process.kill()
                return ""
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more: return ""
            self.text += more
        line, self.text = self.text.split(b"\n", 1)
        return line.decode()

    def ask(self, timeout):
        """The standard output of one measurement."""
        try:
            self.process.stdin.write(b"\n"); self.process.stdin.flush()
        except BrokenPipeError:
            return ""
        text = self.line(timeout)
        self.line(timeout)  # "ready"
        return text

    def end(self):
        self.process.kill(); self.process.wait(); self.log.close()

def torch(a, r, extra, waiting=None):
    command = torch_command(a, r, extra)
    if waiting:
        start = time.time()
        out, error, wall = waiting.ask(a.timeout), open(waiting.log.name).read(), time.time() - start
    else:
        p, wall = run(command, a.timeout, r['isa'])
        out, error = p.stdout, p.stderr
    line = next((l for l in reversed(out.splitlines()) if l.startswith("{")), "{}")
    d = json.loads(line)
    name = torch_name(extra)
    if "ms" not in d:
        return dict(program=name, error=(d.get("error") or error[-300:] or "ended"), command=shlex.join(command))
    if r["device"] == "cpu":
        return dict(program=name, ms=d["ms_min"], gib=d["peak_rss_gib"], device_gib=0, wall_s=wall,
                    command=shlex.join(command), raw=d)
    return dict(program=name, ms=d["ms"], gib=d["peak_alloc_gib"], device_gib=d["peak_reserved_gib"], wall_s=wall,
                command=shlex.join(command), raw=d)

def table(results):
    lines = ["| row | program | ms a step (rounds) | tokens/s | A/A | Crest faster by | tensors GiB | Crest's share |",
             "|---|---|---|---|---|---|---|---|"]
    for name, runs in results.items():
        by, middle = {}, min if runs["row"]["device"] == "cpu" else statistics.median
        for x in runs["runs"]:
            by.setdefault(x["program"], []).append(x)
        ours = [x["ms"] for x in by.get("crest", []) if "ms" in x]
        mem = [x["gib"] for x in by.get("crest", []) if "ms" in x]
        for program, xs in by.items():
            ms = [x["ms"] for x in xs if "ms" in x]
            if not ms:
                lines.append(f"| {name} | {program} | {xs[0]['error'].strip().splitlines()[-1][:60]} | | | | | |")
                continue
            m = middle(ms)
            noise = f"{(max(ms) / min(ms) - 1) * 100:.1f}%" if len(ms) > 1 else ""
            # Allocated tensors; PyTorch does not count those inside CUDA graphs, so there what it reserved.
            kind = "device_gib" if program.endswith("graphs") else "gib"
            gib = statistics.median(x[kind] for x in xs if "ms" in x)
            same = program == "crest" or not ours
            ratio = "" if same else f"{m / middle(ours):.2f}x"
            share = "" if same else f"{statistics.median(mem) / gib:.2f}x"
            tokens = runs["row"]["batch"] * runs["row"]["seq"] / m * 1e3
            lines.append(f"| {name} | {program} | {m:.2f} ({', '.join(f'{x:.2f}' for x in ms)}) | {tokens:,.0f} | {noise} | "
                         f"{ratio} | {gib:.2f} | {share} |")
    return "\n".join(lines)

def start_together(a, out, rows, waiting, start):
    """Starts the PyTorch programs of these rows and returns when all have compiled, or the time is up."""
    for r in rows:
        for extra in r["torch"]:
            if any(w in torch_name(extra) for w in a.programs.split(",")):
                log = os.path.join(out, f"{r['name']}-{torch_name(extra).replace(' ', '-')}.log")
                waiting[r["name"], torch_name(extra)] = Waiting(torch_command(a, r, extra), log, r["isa"])
    for (name, program), w in waiting.items():
        ready = w.line(max(1, min(a.timeout, a.budget - (time.time() - start)))).strip() == "ready"
        print(name, program, "compiled" if ready else "did not start", f"{time.time() - start:.0f}s", flush=True)

def main():
    p = argparse.ArgumentParser()
    p.add_argument("--crest", default="crest"); p.add_argument("--out", default="build/compare")
    p.add_argument("--rows", default="sizes"); p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--samples", type=int, default=30); p.add_argument("--torch-attention", default="cudnn")
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--programs", default="", help="only programs with one of these words in their name, e.g. crest,eager")
    p.add_argument("--timeout", type=float, default=600, help="seconds after which a program is ended")
    p.add_argument("--budget", type=float, default=560, help="seconds after which no further run is started")
    p.add_argument("--together", type=int, default=0, help="rows whose PyTorch programs are started at once; 0: one program at a time")
    a = p.parse_args()
    rows = {r["name"]: r for r in SIZES + SIZES8 + LADDER + CPU}
    lists = {"sizes": SIZES, "fp8": SIZES8, "ladder": LADDER, "cpu": CPU}
    chosen = [r["name"] for r in lists[a.rows]] if a.rows in lists else a.rows.split(",")
    os.makedirs(a.out, exist_ok=True)
    results, start = {}, time.time()
    waiting = {}
    for number, name in enumerate(chosen):
        r = rows[name]
        results[name] = dict(row=r, runs=[])
        if a.together and number % a.together == 0:
            start_together(a, out=a.out, rows=[rows[n] for n in chosen[number:number + a.together]], waiting=waiting, start=start)
        for _ in range(a.rounds):
            programs = [("crest", lambda: crest(a, r))]
            programs += [(torch_name(e), lambda e=e: torch(a, r, e, waiting.get((name, torch_name(e))))) for e in r["torch"]]
            for program, call in programs:
                if time.time() - start > a.budget or not any(w in program for w in a.programs.split(",")):
                    continue
                try:
                    x = call()
                except subprocess.TimeoutExpired:
                    x = dict(program=program, error=f"not done after {a.timeout:.0f} s")
                results[name]["runs"].append(x)
                print(name, x["program"], x.get("ms", x.get("error")), x.get("gib"), f"{x.get('wall_s', 0):.0f}s", flush=True)
                json.dump(results, open(os.path.join(a.out, "compare.json"), "w"), indent=1)
        for key in [k for k in waiting if k[0] == name]:
            waiting.pop(key).end()
    text = table(results)
    open(os.path.join(a.out, "compare.md"), "w").write(text + "\n")
    print(text)

if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How training scales from one GPU to N of one machine: `crest bench` with one rank and with N, interleaved.

  scaling.py CREST [--ranks 2] [--cases 124M:64,124M:16,124M:4,1558M:16] [--settings SETTINGS] [--rounds 1]
             [--samples 20] [--budget SECONDS] [--peer torch_ranks.py] [--peer-cases 124M:16,1558M:16] [--out scaling.json]

A setting is the flags of N ranks; several are separated by ';'. Every GPU has the batch of one rank, so efficiency is the time of one
rank over that of N. One rank is measured again at the end of each case: the difference is the noise floor. The peer is PyTorch DDP with
the same recipe. Each command has a time limit; after --budget seconds nothing more starts. Writes JSON, prints a table.
"""
import argparse, json, os, statistics, subprocess, sys, time

ap = argparse.ArgumentParser()
ap.add_argument("crest")
ap.add_argument("--ranks", type=int, default=2)
ap.add_argument("--cases", default="124M:64,124M:16,124M:4,1558M:16")
ap.add_argument("--settings", default="--reduce flat; --reduce bucket --bucket 128MiB; --shard optimizer; "
                                      "--shard optimizer --reduce bucket --bucket 64MiB; "
                                      "--shard optimizer --reduce bucket --bucket 128MiB")
ap.add_argument("--rounds", type=int, default=1)
ap.add_argument("--budget", type=float, default=1e9)
ap.add_argument("--samples", type=int, default=20)
ap.add_argument("--limit", type=int, default=60, help="seconds for a command")
ap.add_argument("--flags", default="", help="more flags of every crest bench")
ap.add_argument("--peer", default="", help="path of torch_ranks.py")
ap.add_argument("--peer-cases", default="124M:16,1558M:16")
ap.add_argument("--out", default="scaling.json")
o = ap.parse_args()
start = time.monotonic()


def run(command):
    """The JSON rows that a command prints; None: it failed or took too long."""
    left = o.budget - (time.monotonic() - start)
    if left < 5:
        return None
    r = subprocess.run(["timeout", "-s", "KILL", str(min(o.limit, left)), *command], capture_output=True, text=True)
    rows = []
    try:
        whole = json.loads(r.stdout)
        rows = whole if isinstance(whole, list) else whole.get("rows", whole.get("cells", [whole]))
    except ValueError:
        rows = [json.loads(line) for line in r.stdout.splitlines() if line.startswith("{")]
    if r.returncode or not rows:
        print(f"  exit {r.returncode}: {' '.join(command)[:160]}\n    {r.stderr.strip()[-400:]}", flush=True)
        return None
    return rows


def bench(size, batch, flags):
    rows = run([o.crest, "bench", "--device", "cuda", "--model", f"gpt2-{size}", "--batch", batch, "--seq", "1024",
                "--precision", "bf16", "--samples", str(o.samples), "--no-mfu", "--no-store", "--json", *flags,
                *o.flags.split()])
    return rows and rows[0]


cases = [c.split(":") for c in o.cases.split(",")]
AGAIN = "one rank again"
settings = [""] + [" ".join(s.split()) for s in o.settings.split(";") if s.strip()]  # "": one rank
samples, memory, peer = {}, {}, {}
if o.peer:
    for ranks, mode in ((o.ranks, "ddp"), (1, "plain")):
        rows = run(["torchrun", "--nproc-per-node", str(ranks), o.peer, *(f"{c}:{mode}" for c in o.peer_cases.split(","))])
        for row in rows or []:
            peer[row["size"], str(row["B"]), ranks] = row["ms"]
            print(f"PyTorch {mode}, {row['size']} B={row['B']}: {row['ms']} ms ({time.monotonic() - start:.0f} s)", flush=True)
for number in range(o.rounds):
    for size, batch in cases:
        for setting in [*(settings if number % 2 == 0 else settings[::-1]), AGAIN]:
            one = setting in ("", AGAIN)
            if row := bench(size, batch, [] if one else ["--ranks", str(o.ranks), *setting.split()]):
                samples.setdefault((size, batch, setting), []).append(row["samples_ms"])
                memory[size, batch, setting] = row["memory"]
                print(f"round {number + 1}, {size} B={batch} {setting or 'one rank':<46} {row['step_ms_median']:9.3f} ms "
                      f"({time.monotonic() - start:.0f} s)", flush=True)

print(f"\n| model, batch a GPU | setting | ms | of rounds | efficiency |\n|---|---|---|---|---|")
table = []
for size, batch in cases:
    one = None
    for setting in [*settings, AGAIN]:
        rounds = samples.get((size, batch, setting))
        if not rounds:
            continue
        medians = [statistics.median(r) for r in rounds]
        ms = statistics.median([x for r in rounds for x in r])
        one = one or (ms if not setting else None)
        share = one / ms if one else None
        table.append({"model": f"gpt2-{size}", "batch": int(batch), "ranks": 1 if setting in ("", AGAIN) else o.ranks, "setting": setting, "ms": ms,
                      "round_ms": medians, "efficiency": share, "memory": memory[size, batch, setting], "samples_ms": rounds})
        spread = ", ".join(f"{m:.3f}" for m in medians)
        print(f"| {size} B={batch} | {setting or 'one rank'} | {ms:.3f} | {spread} | {f'{share:.1%}' if share else ''} |")
    for ranks in (1, o.ranks):
        if (size, batch, ranks) in peer:
            ms, base = peer[size, batch, ranks], peer.get((size, batch, 1))
            table.append({"model": f"gpt2-{size}", "batch": int(batch), "ranks": ranks, "setting": "PyTorch", "ms": ms,
                          "efficiency": base / ms if base else None})
            print(f"| {size} B={batch} | PyTorch, {ranks} rank{'s' if ranks > 1 else ''} | {ms:.3f} | | {f'{base / ms:.1%}' if base else ''} |")
json.dump({"ranks": o.ranks, "seconds": time.monotonic() - start, "rows": table}, open(o.out, "w"), indent=1)
print(f"\n{time.monotonic() - start:.0f} s; {o.out}")
sys.exit(0 if table else 1)

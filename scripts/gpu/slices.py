#!/usr/bin/env python3
"""Profiles slices of models on a GPU and compares them with crest plan: the step, its products, attention, the rest.

    scripts/gpu/slices.py --out FOLDER                   # measures, a minute on an H200
    scripts/gpu/slices.py --from FOLDER --device h200    # compares profiles that were measured before, without a GPU

CREST names the program (default: build/release/crest). Most widths are in no calibration."""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

CREST = os.environ.get("CREST", str(pathlib.Path(__file__).resolve().parents[2] / "build/release/crest"))


def gpt2(width):
    return {"preset": "gpt2-1558M", "layers": 2, "width": width, "heads": width // 64, "ff": 4 * width, "vocab": 8192}


XL = {"preset": "gpt2-1558M", "layers": 2}
LLAMA = {"preset": "llama-1B", "layers": 2, "vocab": 16384}
MODELS = {
    "s1558": XL, "full1558": {"preset": "gpt2-1558M"}, "s774": {"preset": "gpt2-774M", "layers": 2}, "sllama": LLAMA,
    # What one of two tensor ranks computes (heads padded to 26).
    "rank1558": XL | {"heads": 13, "head_dim": 64, "ff": 3200, "vocab": 25152},
    "rankllama": LLAMA | {"heads": 16, "kv_heads": 4, "head_dim": 64, "ff": 4096},
    **{f"w{width}": gpt2(width) for width in (1088, 1216, 1408, 1728, 2304, 3584)},
}
# name: model, flags, samples
SLICES = {
    "b2": ("s1558", "--batch 2 --seq 1024", 20), "rank": ("rank1558", "--batch 4 --seq 1024", 20),
    "full_b2": ("full1558", "--batch 2 --seq 1024 --grad-accumulation 16", 3),
    "w1408_b3": ("w1408", "--batch 3 --seq 1024", 20), "w1728_b5": ("w1728", "--batch 5 --seq 1024", 20),
    "w1088_b6": ("w1088", "--batch 6 --seq 1024", 20), "w2304_b2": ("w2304", "--batch 2 --seq 1024", 20),
    "b4": ("s1558", "--batch 4 --seq 1024", 20), "w1216_b9": ("w1216", "--batch 9 --seq 1024", 10),
    "w3584_b3": ("w3584", "--batch 3 --seq 1024", 10), "rankllama": ("rankllama", "--batch 2 --seq 4096", 10),
    "s774_b3": ("s774", "--batch 3 --seq 1024", 20),
    "w1728_b2_long": ("w1728", "--batch 2 --seq 1024 --grad-accumulation 16", 10),
    "llama_32k": ("sllama", "--batch 1 --seq 32768", 4), "b1": ("s1558", "--batch 1 --seq 1024", 20),
    "llama_4k": ("sllama", "--batch 1 --seq 4096", 10),
}


def write_models(folder):
    for name, keys in MODELS.items():
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        (folder / f"{name}.toml").write_text(text)


def crest(*words, timeout=60):
    done = subprocess.run([CREST, *words], capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)}: {done.stderr.strip()}")
    return done.stdout


def measure(models, out, extra):
    out.mkdir(parents=True, exist_ok=True)
    for name, (model, flags, samples) in SLICES.items():
        try:
            text = crest("profile", "--model", str(models / f"{model}.toml"), *shlex.split(flags), "--precision", "bf16",
                         "--samples", str(samples), "--warmup", "2", "--no-store", "--json", *extra)
        except (RuntimeError, subprocess.TimeoutExpired) as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            continue
        (out / f"{name}.json").write_text(text)


def parts(profile):
    """ms of products, of attention and of the rest"""
    sums = [0.0, 0.0, 0.0]
    for row in profile["instrs"]:
        kind = 0 if ".linear" in row["kernel"] else 1 if row["op_class"] == "attention" else 2
        sums[kind] += row["ms"]
    return sums


def compare(models, folder, device):
    print("| slice | step, ms | clock, MHz | error | products | attention | rest |\n|---|---|---|---|---|---|---|")
    for name, (model, flags, _) in SLICES.items():
        file = folder / f"{name}.json"
        if not file.exists() or not file.stat().st_size:
            continue
        measured, planned = json.loads(file.read_text()), models / "planned.json"
        crest("plan", "--for", "step", "--device", device, "--model", str(models / f"{model}.toml"), *shlex.split(flags),
              "--precision", "bf16", "--as-profile", str(planned))
        plan = json.loads(planned.read_text())
        step = sorted(measured["step_ms"])[len(measured["step_ms"]) // 2]
        errors = [plan["step_ms"][0] / step, *(p / m if m else 1 for p, m in zip(parts(plan), parts(measured)))]
        cells = " | ".join(f"{100 * (e - 1):+.1f}%" for e in errors)
        print(f"| `{name}`: {model}, `{flags}` | {step:.2f} | {measured['clock_mhz'] or 0:.0f} | {cells} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--from", type=pathlib.Path, dest="folder")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--flags", default="", help="more flags of crest profile")
    given = parser.parse_args()
    if bool(given.out) == bool(given.folder):
        parser.error("give --out or --from")
    with tempfile.TemporaryDirectory() as temporary:
        models = pathlib.Path(temporary)
        write_models(models)
        if given.out:
            measure(models, given.out, shlex.split(given.flags))
        compare(models, given.out or given.folder, given.device)


if __name__ == "__main__":
    main()

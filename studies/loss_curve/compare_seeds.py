#!/usr/bin/env python3
"""Loss curves of Crest and PyTorch on one another: table, verdict, figure.

  compare_seeds.py --crest seed-1=log.jsonl,seed-2=log.jsonl --torch repeat-1.csv repeat-2.csv seed-2.csv --out DIR

repeat-1 and repeat-2 are the same PyTorch run twice (same weights, same order of data): what differs is the order of
additions on the GPU. seed-2 starts from other weights. Losses are averaged over windows of 50 steps. The distance of two
runs is the mean over windows of the absolute difference. Crest's run of seed 1 lies on PyTorch's curve when its distance
from PyTorch's (the nearer repeat) is at most PyTorch's own run-to-run spread: the largest distance between any two of the
PyTorch runs. The distance between the two repeats alone is printed beside it. Exit code 1 when it does not.
"""
import argparse, csv, json, os, sys

WINDOW = 50

def smooth(losses):
    return [sum(losses[i:i + WINDOW]) / len(losses[i:i + WINDOW]) for i in range(0, len(losses), WINDOW)]

def distance(a, b):
    return sum(abs(x - y) for x, y in zip(a, b)) / min(len(a), len(b))

def svg(curves, path):
    width, height, left, bottom, top = 860, 460, 60, 50, 20
    steps = max(len(c) for c in curves.values()) * WINDOW
    low = min(min(c) for c in curves.values()) - 0.2
    high = max(max(c) for c in curves.values())
    x = lambda i: left + (width - left - 20) * (i * WINDOW + WINDOW / 2) / steps
    y = lambda v: top + (height - top - bottom) * (high - v) / (high - low)
    colors = {"Crest seed 1": "#c2410c", "Crest seed 2": "#f59e0b"}
    blues = iter(["#1d4ed8", "#0891b2", "#64748b"])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for v in range(int(low) + 1, int(high) + 1):
        out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(v):.1f}" y2="{y(v):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 8}" y="{y(v) + 4:.1f}" text-anchor="end">{v}</text>')
    for s in range(0, steps + 1, steps // 4):
        px = left + (width - left - 20) * s / steps
        out.append(f'<text x="{px:.1f}" y="{height - bottom + 20}" text-anchor="middle">{s}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 10}" text-anchor="middle">step</text>'
               f'<text x="16" y="{height / 2}" transform="rotate(-90 16 {height / 2})" text-anchor="middle">'
               f'loss (mean of {WINDOW} steps)</text>')
    for k, (name, c) in enumerate(curves.items()):
        color = colors.get(name) or next(blues)
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(c))
        dash = ' stroke-dasharray="6 4"' if name.startswith("Crest") else ""
        out.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"{dash}/>'
                   f'<line x1="{width - 200}" x2="{width - 165}" y1="{40 + 20 * k}" y2="{40 + 20 * k}" stroke="{color}" stroke-width="2"{dash}/>'
                   f'<text x="{width - 158}" y="{44 + 20 * k}">{name}</text>')
    out.append("</svg>")
    open(path, "w").write("\n".join(out) + "\n")

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--crest", nargs="+", required=True, help="log.jsonl of seed 1, then of seed 2")
    p.add_argument("--torch", nargs="+", required=True, help="CSV files of repeat-1, repeat-2 and others")
    p.add_argument("--out", required=True)
    a = p.parse_args()
    curves = {}
    for path in a.torch:
        name = "PyTorch " + os.path.basename(path)[:-4].replace("-", " ")
        curves[name] = smooth([float(r["loss"]) for r in csv.DictReader(open(path))])
    for i, path in enumerate(a.crest):
        rows = [json.loads(line) for line in open(path)]
        curves[f"Crest seed {i + 1}"] = smooth([r["loss"] for r in rows if "loss" in r and "step_ms" in r])
    torch = [n for n in curves if n.startswith("PyTorch")]
    repeats = [n for n in torch if "repeat" in n]
    spread = max(distance(curves[m], curves[n]) for m in torch for n in torch if m < n)
    same = distance(curves[repeats[0]], curves[repeats[1]]) if len(repeats) > 1 else float("nan")
    ours = min(distance(curves["Crest seed 1"], curves[n]) for n in repeats)
    os.makedirs(a.out, exist_ok=True)
    svg(curves, os.path.join(a.out, "loss_curve.svg"))
    windows = [0, 1, 3, 9, 19, 29, len(curves[torch[0]]) - 1]
    lines = ["| run | " + " | ".join(f"{w * WINDOW + 1}..{(w + 1) * WINDOW}" for w in windows) + " |",
             "|---|" + "---|" * len(windows)]
    for n, c in curves.items():
        lines.append(f"| {n} | " + " | ".join(f"{c[w]:.4f}" for w in windows) + " |")
    lines += ["", f"Distance of Crest's seed 1 from PyTorch's: {ours:.4f}. PyTorch's run-to-run spread: {spread:.4f} "
              f"(the same run twice: {same:.4f}). Verdict: {'on it' if ours <= spread else 'OUTSIDE'}."]
    text = "\n".join(lines) + "\n"
    open(os.path.join(a.out, "loss_curve.md"), "w").write(text)
    print(text)
    sys.exit(0 if ours <= spread else 1)

main()

#!/usr/bin/env python3
"""Compares crest plan with published training speeds (scripts/published.toml) and prints
docs/results/published.md:

    scripts/published.py > docs/results/published.md
    scripts/published.py --only zerobubble --json    # some rows, for programs

No GPU is needed. CREST names the program (default: build/release/crest)."""
import argparse
import itertools
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
CREST = os.environ.get("CREST", str(ROOT / "build/release/crest"))

HEAD = """# Published training speeds

`crest plan` next to speeds that others published, in tokens/s for each GPU. Crest predicts, it ran
none of these. `scripts/published.py` prints this page from `scripts/published.toml`, without a GPU.

- *Crest*: what `crest plan` predicts for Crest's own kernels, with NCCL for all exchanges. Copy
  engines were measured on two GPUs only.
- *its program*: the prediction for the program that ran. It is Crest's, divided by the ratio of the
  two programs' speeds on one or two GPUs, as each section says. The ratio was measured with the
  recipe nearest in kind and size, and not chosen by the result. Megatron-LM was never measured, so
  its sections have a ratio of 1.
- *range*: of its program. The width between nodes is an assumption: Crest measured one node only
  ([predictions](../concepts/predictions.md#many-nodes)).
- *difference*: its program / published - 1.
- The model is fitted to Crest's steps on one and two GPUs, not to rows of this page. Kernels next
  to NCCL take 1.8 times as long: this factor comes from 22
  [steps](predictions.md#all-steps-of-two-gpus) of two H100 and two H200. Fitted to one of both, it
  predicts the steps of the other within 4%. Collectives between more than two GPUs of a node also
  use published bandwidths of eight H100. On an A100 nobody checked these.
- `--stages` and other flags of a source are Crest's way to express the published recipe. The A100
  sections have naive attention: flash attention came after Narayanan's paper, and Zero Bubble
  counts 5as/h of activations, which only naive attention keeps.
- *likely cause* is a guess from what is known about a row. None was tested.
- Sources leave settings open, and some were chosen after a first prediction: schedule, sharding and
  recomputation of Llama 3 (about nine combinations; the one nearest to the published speed that
  fits was kept), and a smaller batch of Qwen 7B, so that it fits. The sizes of MPT, Qwen and the
  1.5B model, and the batches of torchtitan and llm-foundry, were written from memory. Naive
  attention was set after a first prediction with flash attention (+25% to +49% in seven rows), and
  the 2 layers of Zero Bubble's first and last stage, which its paper states, after an even cut.
- Sources with TFLOP/s are converted by their own convention (Narayanan: equation 3, recompute
  included) or by PaLM's (Llama 3; its convention is not stated).
"""


def percent(share):
    """+3%, -12%, 0%."""
    return f"{100 * share:+.0f}%" if round(100 * share) else "0%"


def toml_text(table):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def write_models(data, folder):
    """The table's own models as files: their paths by name."""
    paths = {}
    for name, model in data.get("model", {}).items():
        path = pathlib.Path(folder) / f"{name}.toml"
        path.write_text(toml_text(model))
        paths[name] = str(path)
    return paths


def given_rows(doc, table, keys, switches=(), texts=()):
    """The arguments, the table scripts/TABLE, and its rows with the text of --only in one of the keys."""
    where = " or ".join(keys)
    arguments = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", help=f"rows whose {where} contains this text")
    arguments.add_argument("--json", action="store_true", help="print the rows as JSON")
    for switch in switches:
        arguments.add_argument(switch, action="store_true")
    for text in texts:
        arguments.add_argument(text)
    given = arguments.parse_args()
    data = tomllib.loads((ROOT / "scripts" / table).read_text())
    rows = [r for r in data["row"] if not given.only or any(given.only in r[key] for key in keys)]
    if not rows:
        sys.exit(f"no row has '{given.only}' in its {where}")
    return given, data, rows


def run(data, models, row):
    """The prediction for a row, as a dictionary; 'why': there is none."""
    source = data["source"][row["source"]]
    model = models.get(row["model"], row["model"])
    command = [CREST, "plan", "--model", model, "--device", source["device"], *shlex.split(source["flags"]),
               *shlex.split(row["flags"]), *shlex.split(data["nccl"]), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    result = {"source": row["source"], "model": row["model"], "recipe": row["recipe"], "command": shlex.join(command[1:])}
    if done.returncode:
        return result | {"why": done.stderr.strip().splitlines()[-1].removeprefix("crest: error: ")}
    plan = json.loads(done.stdout)
    time, shape = plan["time"], plan["model"]
    ranks = plan["memory"]["ranks"]
    if not time:
        return result | {"why": "no prediction"}
    tokens, seq = plan["tokens_per_step"], plan["recipe"]["seq"]
    published = row["figure"]
    if source["form"] == "samples":
        published *= seq
    elif source["form"] == "megatron":
        layers, width, vocab = shape["layers"], shape["width"], shape["vocab"]
        published *= 1e12 / (96 * layers * width**2 * (1 + seq / (6 * width) + vocab / (16 * layers * width)))
    elif source["form"] == "palm":
        published *= 1e12 * tokens / plan["flops"]["model_per_step"]
    speed = [1e3 * tokens / ranks / time[key] for key in ("step_ms", "step_ms_high", "step_ms_low")]
    ratio = (source | row).get("ratio", 1)
    crest, speed = speed[0], [s / ratio for s in speed]
    return result | {"ranks": ranks, "published": published, "crest": crest, "ratio": ratio, "predicted": speed[0],
                     "low": speed[1], "high": speed[2], "difference": speed[0] / published - 1, "fits": plan["fit"]["fits"],
                     "gib": plan["memory"]["planned_bytes"] / 2**30, "source_of_time": time["source"],
                     "exposed": time["collectives_ms"] / time["step_ms"],
                     "bubble": (time.get("pipeline") or {}).get("bubble", 0)}


def cause(data, row, result):
    """What is not known of the row, and the largest part of the prediction that nobody measured."""
    source = data["source"][row["source"]]
    parts = [of["cause"] for of in (row, source) if "cause" in of]
    if result["source_of_time"] == "data sheet":
        parts.append("no step of this GPU was measured")
    if result["exposed"] > 0.1:
        parts.append(f"exposed collectives ({100 * result['exposed']:.0f}%)")
    if result["bubble"] > 0.1:
        parts.append(f"bubble ({100 * result['bubble']:.0f}%)")
    if not result["fits"]:
        parts.append(f"the plan does not fit ({result['gib']:.0f} GiB), so the recipe differs")
    return "; ".join([*parts, f"not known: {source['guess']}"])


def search(data, models):
    """The fastest settings for a source's model by crest tune, as its JSON."""
    s = data["search"]
    path = models[s["model"]]
    command = [CREST, "tune", "--model", path, *shlex.split(s["flags"]), "--search-seconds", "0", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: {done.stderr.strip()}")
    command = [CREST, "plan", "--model", path, *shlex.split(s["long"]), "--json"]
    plan = subprocess.run(command, capture_output=True, text=True)
    if plan.returncode:
        sys.exit(f"{shlex.join(command)}: {plan.stderr.strip()}")
    return json.loads(done.stdout) | {"long": json.loads(plan.stdout)}


def search_text(data, found, rows, results):
    s = data["search"]
    text = f"\n## {s['name']}\n\n`crest tune` for the same GPUs and global batch, by prediction alone:\n\n"
    text += f"```text\ncrest tune --model {s['model']}.toml {s['flags']} --search-seconds 0\n```\n\n"
    text += textwrap.fill(
        f"Of {found['combinations']} combinations, {found['predicted']} fit and were predicted, {found['refused_by_memory']} "
        f"were planned and do not fit. The others were not planned: {found['pruned_by_memory']} by a bound of memory or a "
        f"smaller plan that does not fit, {found['pruned_by_time']} by a bound of time, {found['pruned_by_recompute']} because "
        f"less recomputation fits, {found['not_allowed']} not allowed together. Stages are cut by FLOPs, all "
        f"layers recompute alike.", 100) + "\n\n"
    text += "| | mesh | schedule | shard | micro batch | recompute | tokens/s of a GPU | bubble | GiB |\n|---|---|---|---|---|---|---|---|---|\n"
    for place, c in enumerate(found["candidates"][:5], 1):
        at = c["settings"]
        text += (f"| {place} | {at['mesh'].replace(',', ', ')} | {at.get('schedule-pipeline', '')} | {at.get('shard', '')} | {at['batch']} | {at['recompute']} | "
                 f"{c['tokens_per_second'] / found['ranks']:,.0f} | {100 * c['bubble']:.0f}% | {c['planned_bytes'] / 2**30:.0f} |\n")
    for row, r in zip(rows, results):
        if row["source"] == s["source"] and r.get("ranks") == found["ranks"]:
            text += (f"| Meta | {s['choice']} | {r['predicted']:,.0f} predicted, {r['published']:,.0f} published | "
                     f"{100 * r['bubble']:.0f}% | {r['gib']:.0f} |\n")
    time, ranks = found["long"]["time"], found["ranks"]
    low, high = (1e-12 * time["model_flops_per_second"] / ranks * time["step_ms"] / time[f"step_ms_{end}"] for end in ("high", "low"))
    long = (f" `crest plan {s['long']}` predicts {1e-12 * time['model_flops_per_second'] / ranks:.0f} ({low:.0f} to {high:.0f}), "
            f"and {found['long']['memory']['planned_bytes'] / 2**30:.0f} GiB without recomputation.")
    return text + "\n" + textwrap.fill(s["text"] + long, 100, break_long_words=False, break_on_hyphens=False) + "\n"


def order_text(data, wrong):
    """The pairs in another order than published, with their causes."""
    text = ""
    for a, b in wrong:
        recipes = {a["recipe"], b["recipe"]}
        cause = [o["cause"] for o in data["order"] if o["model"] == a["model"] and set(o["recipes"]) == recipes]
        both = [f"{100 * (b[of] / a[of] - 1):+.1f}%" for of in ("published", "predicted")]
        line = f"- {a['model']}, {b['recipe']} to {a['recipe']}: published {both[0]}, predicted {both[1]}. {cause[0] if cause else 'No cause is known.'}"
        text += textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"
    return text and "\nPairs in another order:\n\n" + text


def page(data, rows, results, meshes=None):
    text = HEAD + "\n"
    good = [r for r in results if "why" not in r]
    within = [sum(abs(r["difference"]) <= limit for r in good) for limit in (0.10, 0.25)]
    inside = sum(r["low"] <= r["published"] <= r["high"] for r in good)
    crest = [sum(abs(r["crest"] / r["published"] - 1) <= limit for r in good) for limit in (0.10, 0.25)]
    found = (f"{within[0]} of {len(good)} rows are within 10%, {within[1]} within 25%. Without the ratios of programs, "
             f"{crest[0]} and {crest[1]} are. {inside} published speeds lie inside the range.")
    pairs = [(a, b) for a, b in itertools.combinations(good, 2) if (a["source"], a["model"]) == (b["source"], b["model"])]
    right = [(a["published"] < b["published"]) == (a["predicted"] < b["predicted"]) for a, b in pairs]
    found += f" Of {len(pairs)} pairs of rows of one source and model, {sum(right)} come in the published order."
    text += textwrap.fill(found, 100) + "\n" + order_text(data, [pair for pair, is_right in zip(pairs, right) if not is_right])
    for key, source in data["source"].items():
        text += f"\n## {source['name']}\n\n{source['link']}. Flags of all rows:\n\n"
        text += f"```text\n--device {source['device']} {source['flags']}\n```\n\n"
        ratios = {}
        for row, r in zip(rows, results):
            if row["source"] == key and "ratio_of" in source | row and "ratio" in r:
                ratios.setdefault((source | row)["ratio_of"], []).append(r["ratio"])
        for of, values in ratios.items():
            between = " to ".join(f"{v:.2f}" for v in sorted({min(values), max(values)}))
            text += textwrap.fill(f"Ratio {between}: {of}.", 100) + "\n\n"
        text += "| model | GPUs | recipe | published | Crest | its program | range | difference | likely cause |\n"
        text += "|---|---|---|---|---|---|---|---|---|\n"
        for row, r in zip(rows, results):
            if row["source"] != key:
                continue
            if "why" in r:
                text += f"| {r['model']} | | {r['recipe']} | {row['figure']} | none | | | | {r['why']} |\n"
                continue
            text += (f"| {r['model']} | {r['ranks']} | {r['recipe']} | {r['published']:,.0f} | {r['crest']:,.0f} | "
                     f"{r['predicted']:,.0f} | {r['low']:,.0f} to {r['high']:,.0f} | {percent(r['difference'])} | {cause(data, row, r)} |\n")
        if meshes and key == data["search"]["source"]:
            text += search_text(data, meshes, rows, results)
    return text


def main():
    given, data, rows = given_rows(__doc__, "published.toml", ["source", "model"])
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        models = write_models(data, folder)
        found = None if given.only or given.json else pool.submit(search, data, models)
        results = list(pool.map(lambda row: run(data, models, row), rows))
        found = found and found.result()
    print(json.dumps(results, indent=1) if given.json else page(data, rows, results, found), end="")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures the last accepted commit against the working tree: scripts/ledger.py [--base COMMIT] (make ledger).

Builds the base in a temporary worktree, then runs `crest` of both, interleaved, over ten small rows on the CPU. A round is
old, new and old again: what old differs from itself is the noise floor (docs/concepts/measuring.md). Prints a row of ratios
new / old each, and adds one line to docs/results/ledger.jsonl. Exit code: 1 when a row is slower beyond the noise,
2 when something could not be built or run."""
import argparse
import datetime
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NANO = "--model nano --vocab 2048 --batch 4"
MICRO = "--model micro --vocab 2048 --batch 2 --seq 128"
# Name and flags of crest bench with its samples; about a second a turn on two cores.
ROWS = {
    "nano step fp32": f"{NANO} --precision fp32 --samples 6",
    "nano step fp32, naive attention": f"{NANO} --precision fp32 --attention naive --samples 6",
    "nano step bf16": f"{NANO} --precision bf16 --samples 10",
    "nano forward bf16": f"{NANO} --precision bf16 --phase forward --samples 24",
    "nano step bf16, vocabulary of GPT-2": "--model nano --batch 1 --seq 128 --precision bf16 --samples 8",
    "llama-nano step bf16": "--model llama-nano --vocab 2048 --batch 4 --precision bf16 --samples 10",
    "micro step fp32": f"{MICRO} --precision fp32 --samples 6",
    "micro step bf16": f"{MICRO} --precision bf16 --samples 10",
}
PREPARE, SAMPLE = "data prepare", "sample nano"
NAMES = [*ROWS, PREPARE, SAMPLE]
RESAMPLES = 2000


class Failed(Exception):
    pass


class Unknown(Failed):
    """A program does not know a flag of the row."""


def output(command, **options):
    done = subprocess.run(command, text=True, capture_output=True, **options)
    if done.returncode:
        kind = Unknown if done.returncode == 2 else Failed
        raise kind(f"{' '.join(map(str, command))}\n{done.stderr.strip()[-2000:]}")
    return done.stdout


def git(*words):
    return output(["git", "-C", str(ROOT), *words]).strip()


def changed():
    """Whether the working tree differs from its commit in what is compiled."""
    return bool(git("status", "--porcelain", "--", "src", "cmake", "devices", "experiments",
                    "CMakeLists.txt", "CMakePresets.json"))


def find_base(name):
    if name:
        return git("rev-parse", "--verify", name + "^{commit}")
    for main in ("origin/main", "main"):
        try:
            base = git("merge-base", "HEAD", git("rev-parse", "--quiet", "--verify", main))
            break
        except Failed:
            continue
    else:
        raise Failed("there is no branch main: name a commit (make ledger BASE=COMMIT)")
    if base == git("rev-parse", "HEAD") and not changed():
        base = git("rev-parse", "--verify", "HEAD^")  # on main itself: what the last commit did
    return base


def build_base(commit):
    """The program of a commit; kept in build/ledger, so that a base is built once."""
    kept = ROOT / "build/ledger" / commit / "crest"
    if kept.exists():
        return kept
    tree = ROOT / "build/ledger/tree"
    shutil.rmtree(tree, ignore_errors=True)  # of a run that was killed
    git("worktree", "prune")
    print(f"building {commit[:12]} in {tree.relative_to(ROOT)} ...", file=sys.stderr)
    git("worktree", "add", "--detach", str(tree), commit)
    try:
        cuda = os.environ.get("CREST_CUDA", "OFF")
        subprocess.run(["cmake", "--preset", "release", "-DCREST_TESTS=OFF", f"-DCREST_CUDA={cuda}"], cwd=tree,
                       check=True, stdout=subprocess.DEVNULL)
        jobs = ["-j", os.environ["JOBS"]] if os.environ.get("JOBS") else []
        subprocess.run(["ninja", "-C", "build/release", *jobs, "crest"], cwd=tree, check=True,
                       stdout=subprocess.DEVNULL)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / "build/release/crest", kept)
    except subprocess.CalledProcessError as error:
        raise Failed(f"the base {commit[:12]} does not build: {error}") from None
    finally:
        git("worktree", "remove", "--force", str(tree))
    return kept


class Program:
    """A binary with a folder for what it writes; time() is one turn of a row, in milliseconds."""

    def __init__(self, path, folder):
        self.path, self.folder = str(path), folder
        folder.mkdir()
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("CREST_", "OMP_", "GOMP_"))}
        self.environment |= {"CREST_STORE": str(folder / "runs.db"), "CREST_CACHE": str(folder / "cache")}

    def run(self, *words):
        return output([self.path, *words], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL)

    def prepare(self, text, out):
        self.run("data", "prepare", str(text), "--tokenizer", "bpe:1024", "--out", out)

    def make_run(self, text):
        if not (self.folder / "run").exists():
            self.prepare(text, "data")
            self.run("train", "--data", "data", "--model", "nano", "--batch", "1", "--steps", "1", "--val-every", "0",
                     "--device", "cpu", "--out", "run", "--no-store", "--quiet")

    def time(self, row, text):
        if row == PREPARE:
            start = time.perf_counter()
            self.prepare(text, "prepared")
            seconds = time.perf_counter() - start
            shutil.rmtree(self.folder / "prepared", ignore_errors=True)
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
            return seconds * 1e3
        if row == SAMPLE:
            self.make_run(text)
            said = json.loads(self.run("sample", "--run", "run", "--device", "cpu", "--precision", "bf16", "--seed", "1",
                                       "--prompt", "The", "--max-tokens", "240", "--ignore-end", "--json"))
            return sum(s["prompt_seconds"] + s["decode_seconds"] for s in said["samples"]) * 1e3
        said = json.loads(self.run("bench", *ROWS[row].split(), "--device", "cpu", "--warmup", "2", "--no-mfu",
                                   "--no-store", "--json"))
        return said[0]["step_ms_median"]


def write_text(path, size=3_000_000):
    """Invented words by Zipf's law, the same every time."""
    draw = random.Random(1)
    words = ["".join(draw.choice("etaoinshrdlucmfw") for _ in range(draw.randint(2, 9))) for _ in range(4000)]
    weights = [1 / n for n in range(1, len(words) + 1)]
    parts, length = [], 0
    while length < size:
        line = " ".join(draw.choices(words, weights, k=12)) + ".\n"
        parts.append(line)
        length += len(line)
    path.write_text("".join(parts))


def ratio_of(above, below, draws):
    """Ratio of medians and its 95% interval: bootstrap over rounds, as src/base/stats/ab.h does."""
    ratios = sorted(statistics.median(above[i] for i in d) / statistics.median(below[i] for i in d) for d in draws)
    return (statistics.median(above) / statistics.median(below), ratios[int(0.025 * len(ratios))],
            ratios[int(0.975 * len(ratios))])


def measure(row, old, new, text, rounds, least):
    """Rounds of old, new and old again; the order turns, so that nobody always runs first or after the same."""
    times = {"old": [], "new": [], "again": []}
    order = ["old", "new", "again"]
    for r in range(-1, rounds):  # round -1 warms up: page cache, files that the row needs
        start = max(r, 0) // 2 % 3
        turn = order[start:] + order[:start]
        for who in turn if r % 2 == 0 else reversed(turn):
            ms = (new if who == "new" else old).time(row, text)
            if r >= 0:
                times[who].append(ms)
    rng = random.Random(1)
    draws = [[rng.randrange(rounds) for _ in range(rounds)] for _ in range(RESAMPLES)]
    ratio, low, high = ratio_of(times["new"], times["old"], draws)
    _, self_low, self_high = ratio_of(times["again"], times["old"], draws)
    floor = max(abs(self_low - 1), abs(self_high - 1))
    bar = max(floor, least)
    verdict = "slower" if low > 1 and ratio - 1 > bar else "faster" if high < 1 and 1 - ratio > bar else "equal"
    return {"row": row, "old_ms": round(statistics.median(times["old"]), 3),
            "new_ms": round(statistics.median(times["new"]), 3), "ratio": round(ratio, 4), "low": round(low, 4),
            "high": round(high, 4), "floor": round(floor, 4), "verdict": verdict}


def judge(row, old, new, text, options):
    """A row that differs is measured once more: ten rows have ten chances to be unlucky."""
    try:
        old.time(row, text)
    except Unknown:
        new.time(row, text)
        return {"row": row, "verdict": "new"}  # the base does not know a flag of it
    result = measure(row, old, new, text, options.rounds, options.least / 100)
    if result["verdict"] != "equal":
        first = result["ratio"]
        result = measure(row, old, new, text, options.rounds, options.least / 100) | {"first_ratio": first}
    return result


def machine(program):
    try:
        said = json.loads(program.run("devices", "--json"))
        cpu = said["devices"][-1]
        return {"cpu": said["environment"]["cpu_model"], "class": cpu.get("isa", ""), "cores": said["environment"]["cores_usable"]}
    except (Failed, KeyError, IndexError, TypeError, ValueError):
        return {"cpu": "", "class": "", "cores": os.cpu_count()}


def line_of(result):
    if result["verdict"] == "new":
        return f"{result['row']:<36} the base does not know it"
    again = f" (first {result['first_ratio']:.3f})" if "first_ratio" in result else ""
    return (f"{result['row']:<36} {result['old_ms']:>9.2f} {result['new_ms']:>9.2f}  {result['ratio']:.3f}"
            f"  {result['low']:.3f}..{result['high']:.3f}  {100 * result['floor']:>4.1f}%  {result['verdict']}{again}")


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--base", help="commit to compare with (default: where this branch left main)")
    parse.add_argument("--new", help="program of the working tree (default: build/release/crest)")
    parse.add_argument("--old", help="program to compare with, instead of building a commit")
    parse.add_argument("--rows", default="", help="only rows whose name contains this text")
    parse.add_argument("--rounds", type=int, default=12)
    parse.add_argument("--least", type=float, default=1.0, help="percent below which nothing is called a difference")
    parse.add_argument("--history", default=str(ROOT / "docs/results/ledger.jsonl"), help="file that gets a line; '' none")
    options = parse.parse_args()
    rows = [name for name in NAMES if options.rows in name]
    if not rows or options.rounds < 3:
        parse.error("no such row: " + ", ".join(NAMES) if not rows else "--rounds: 3 or more")
    base = None if options.old else find_base(options.base)
    old_path = pathlib.Path(options.old).resolve() if options.old else build_base(base)
    new_path = pathlib.Path(options.new or ROOT / "build/release/crest").resolve()
    for path in (old_path, new_path):
        if not path.exists():
            raise Failed(f"{path} is not there: make build")
    entry = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "base": base}
    if base:  # programs that were named may be of any commit
        entry |= {"commit": git("rev-parse", "HEAD"), "changed": changed()}
    with tempfile.TemporaryDirectory(prefix="crest-ledger-") as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        if PREPARE in rows or SAMPLE in rows:
            write_text(text)
        old, new = Program(old_path, folder / "old"), Program(new_path, folder / "new")
        entry |= machine(new) | {"load": round(os.getloadavg()[0], 2), "rounds": options.rounds, "rows": []}
        print(f"{entry['cpu']}, {entry['class']}, {entry['cores']} cores; load {entry['load']}; {options.rounds} rounds")
        print(f"{'row':<36} {'old ms':>9} {'new ms':>9}  ratio  {'95%':<12}  noise  new is", flush=True)
        for row in rows:
            entry["rows"].append(judge(row, old, new, text, options))
            print(line_of(entry["rows"][-1]), flush=True)
    if options.history:
        with open(options.history, "a") as file:
            file.write(json.dumps(entry) + "\n")
    slower = [r["row"] for r in entry["rows"] if r["verdict"] == "slower"]
    noisy = sum(r.get("floor", 0) > 0.05 for r in entry["rows"])
    if noisy:
        print(f"{noisy} of {len(rows)} rows have a noise above 5%: measure again when the machine is quiet")
    print(f"slower: {', '.join(slower)}" if slower else "no row is slower beyond the noise")
    return 1 if slower else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        print(f"ledger: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)

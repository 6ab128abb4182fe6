#!/usr/bin/env python3
"""Runs the tests of a build with coverage (make coverage) and prints how many lines of each folder ran:
scripts/coverage.py BUILD [CTEST ARGUMENTS]. BUILD/coverage.json has the figures of every file."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAYERS = [line.partition(":")[0] for line in (ROOT / "src/layers.txt").read_text().splitlines()
          if ":" in line and not line.startswith("#")]


def tool(name):
    for candidate in (name + "-14", name):
        if shutil.which(candidate):
            return candidate
    sys.exit(f"coverage: {name} is missing; scripts/install-deps.sh coverage installs it")


def folder_of(path):
    """The folder of src/layers.txt that a file is in; paths begin below the part."""
    folder = path.parent
    while folder.as_posix() not in LAYERS and folder != folder.parent:
        folder = folder.parent
    return folder.as_posix()


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    profiles = build / "profiles"
    shutil.rmtree(profiles, ignore_errors=True)
    profiles.mkdir()
    # %m: processes of one program add up in one file.
    environment = os.environ | {"LLVM_PROFILE_FILE": str(profiles / "%m.profraw")}
    tests = subprocess.run(["ctest", "--test-dir", str(build), "--output-on-failure", "-j", os.environ.get("JOBS", "1"),
                            *sys.argv[2:]], env=environment)
    raw = [str(p) for p in profiles.glob("*.profraw")]
    if not raw:
        sys.exit("coverage: no test wrote a profile")
    subprocess.run([tool("llvm-profdata"), "merge", "-sparse", *raw, "-o", str(build / "tests.profdata")], check=True)
    programs = [build / "crest", *sorted(p for p in (build / "tests").glob("test_*") if os.access(p, os.X_OK) and p.is_file())]
    objects = [str(programs[0])] + [word for p in programs[1:] for word in ("-object", str(p))]
    said = subprocess.run([tool("llvm-cov"), "export", "-summary-only", "-instr-profile", str(build / "tests.profdata"),
                           *objects], check=True, capture_output=True, text=True).stdout
    (build / "coverage.json").write_text(said)
    folders = {}
    for file in json.loads(said)["data"][0]["files"]:
        path = (build / file["filename"]).resolve()  # ccache may have made it relative to the build
        if not path.is_relative_to(ROOT / "src"):
            continue
        row = folders.setdefault(folder_of(pathlib.Path(*path.relative_to(ROOT / "src").parts[1:])), {"files": 0, "none": 0, "lines": 0, "ran": 0})
        lines = file["summary"]["lines"]
        row["files"] += 1
        row["none"] += lines["covered"] == 0 and lines["count"] > 0
        row["lines"] += lines["count"]
        row["ran"] += lines["covered"]
    print(f"{'folder of src/':<16} {'files':>6} {'lines':>7} {'ran':>7} {'':>7}  files of which nothing ran")
    total = {key: sum(row[key] for row in folders.values()) for key in ("files", "none", "lines", "ran")}
    for name in [*(n for n in LAYERS if n in folders), "all"]:
        row = total if name == "all" else folders[name]
        share = 100 * row["ran"] / row["lines"] if row["lines"] else 100
        print(f"{name:<16} {row['files']:>6} {row['lines']:>7} {row['ran']:>7} {share:>6.1f}%  {row['none'] or ''}")
    return tests.returncode


if __name__ == "__main__":
    sys.exit(main())

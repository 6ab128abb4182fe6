#!/usr/bin/env python3
"""Runs clang-tidy 14 with the rules of .clang-tidy: scripts/tidy.py BUILD (make tidy), where BUILD was built by clang.

Checks the .cpp files that differ from BASE=COMMIT and those next to headers that do, most changed lines first, until
TIDY_SECONDS=180 are over. Renamed files have not changed. TIDY_ALL=1 checks all files, however long it takes. Other
headers are checked with the files that include them. Without BASE: where this branch left main, or on main itself the
20th commit before."""
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOL = "clang-tidy-14"
COMMITS_ON_MAIN = 20  # what was sent in one go, and more
# Files that are compiled together have no command of their own. clang-tidy takes that of a similar path, which may be of
# another part.
INCLUDES = [f"--extra-arg=-I{folder}" for folder in [*(p for p in sorted((ROOT / "src").iterdir()) if p.is_dir()), ROOT / "tests"]]
INCLUDES.append(f'--extra-arg=-DCREST_TEST_DIR="{ROOT / "tests"}"')


def git(*words, check=True):
    done = subprocess.run(["git", "-C", str(ROOT), *words], text=True, capture_output=True)
    if check and done.returncode:
        sys.exit(f"tidy: git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def find_base():
    if base := os.environ.get("BASE"):
        return base
    head = git("rev-parse", "HEAD")
    for main in ("origin/main", "main"):
        base = git("merge-base", "HEAD", main, check=False)
        if base and base != head:
            return base
    return git("rev-list", "--first-parent", "-n", str(COMMITS_ON_MAIN + 1), "HEAD").split()[-1]


def changed_files():
    """Each .cpp file with its changed lines and those of its header, most first."""
    lines = {}
    words = iter(git("diff", "-M", "-l10000", "--numstat", "-z", "--diff-filter=d", find_base(), "--", "src",
                     "tests").split("\0"))
    for word in words:
        if not word:
            continue
        added, removed, path = word.split("\t")
        if not path:  # renamed: the old path and the new one follow
            next(words)
            path = next(words)
        if added not in ("-", "0") or removed not in ("-", "0"):
            lines[path] = int(added) + int(removed)
    for path in git("ls-files", "--others", "--exclude-standard", "--", "src", "tests").splitlines():
        lines[path] = (ROOT / path).read_bytes().count(b"\n")
    files = {}
    for path, count in lines.items():
        file = pathlib.Path(path).with_suffix(".cpp")
        if path.endswith((".cpp", ".h")) and (ROOT / file).exists():
            files[str(file)] = files.get(str(file), 0) + count
    return sorted(files, key=lambda file: (-files[file], file))


def main():
    if not shutil.which(TOOL):
        sys.exit("tidy: clang-tidy 14 is missing; scripts/install-deps.sh tidy installs it")
    build = sys.argv[1] if len(sys.argv) > 1 else "build/sanitize"
    everything = os.environ.get("TIDY_ALL") == "1"
    files = git("ls-files", "--", "src/*.cpp", "tests/*.cpp").splitlines() if everything else changed_files()
    apart = []
    end = time.monotonic() + (float("inf") if everything else float(os.environ.get("TIDY_SECONDS", "180")))

    def check(file):
        if time.monotonic() > end:
            return None
        done = subprocess.run([TOOL, "-p", build, "--quiet", *INCLUDES, file], cwd=ROOT, text=True, capture_output=True)
        if "-warnings-as-errors]" in done.stdout:
            print(done.stdout, flush=True)
            return False
        if done.returncode:  # with the options of another file it may not compile
            apart.append(file)
        return True

    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS") or 1)) as pool:
        results = list(pool.map(check, files))
    left = results.count(None)
    if apart:
        print(f"tidy: not checked, since they do not compile with the options of another file: {' '.join(apart)}")
    print(f"tidy: {len(files) - left} files checked" + (f", {left} with fewer changes left: time is up" if left else ""))
    if False in results:
        sys.exit("tidy: the findings are above (.clang-tidy says which rules hold)")


if __name__ == "__main__":
    main()

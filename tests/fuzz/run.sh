#!/bin/sh
# Builds the fuzz targets and runs each for SECONDS (default 10) on a corpus of malformed files made here.
# Usage: tests/fuzz/run.sh [SECONDS]. Prints "fuzz NAME: N runs, 0 crashes" a target; fails on the first crash.
set -eu
seconds=${1:-10}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/fuzz
mkdir -p "$build"
command -v clang++ >/dev/null || { echo "fuzz: clang++ is missing; install it: apt-get install clang libomp-dev" >&2; exit 1; }

# The parsers themselves carry the coverage and the sanitizers, not only the targets.
(cd "$root" && cmake --preset fuzz -DCREST_SANITIZE=fuzzer-no-link,address,undefined >"$root/build/fuzz-configure.log" 2>&1) ||
  { cat "$root/build/fuzz-configure.log" >&2; exit 1; }
names=
targets=
for file in "$here"/*.cpp; do
  name=$(basename "$file" .cpp)
  names="$names $name"
  targets="$targets fuzz_$name"
done
# shellcheck disable=SC2086
ninja -C "$build" $targets >"$build/build.log" 2>&1 || { tail -50 "$build/build.log" >&2; exit 1; }

status=0
for name in $names; do
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  python3 "$here/seeds.py" "$name" "$corpus" "$corpus.dict"
  log=$build/$name.log
  # No input of 8 KiB may take 10 s (of a busy machine) or 1 GB (most of it the sanitizer's), whatever it says.
  if OMP_NUM_THREADS=1 "$build/tests/fuzz_$name" -max_total_time="$seconds" -max_len=8192 -timeout=10 \
      -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$build/crash-$name-" -dict="$corpus.dict" "$corpus" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz $name: $runs runs, 0 crashes"
  else
    echo "fuzz $name: crashed; the input is $(ls -t "$build"/crash-"$name"-* 2>/dev/null | head -1)" >&2
    tail -40 "$log" >&2
    status=1
  fi
done
exit $status

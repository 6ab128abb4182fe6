#!/bin/sh
# Runs each fuzz target (make fuzz builds them) for SECONDS (default 10) on a corpus of malformed files made here, JOBS at
# a time. Usage: tests/fuzz/run.sh [SECONDS]. Prints "fuzz NAME: N runs, 0 crashes" a target; fails when one crashes.
set -eu
seconds=${1:-10}
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build/sanitize
out=$build/fuzz

# The target NAME, in a shell of its own below.
if [ $# = 2 ]; then
  name=$2
  program=$build/tests/fuzz_$name corpus=$out/$name log=$out/$name.log
  [ -x "$program" ] || { echo "fuzz: $program is missing; build it first: make fuzz" >&2; exit 1; }
  mkdir -p "$corpus"
  python3 "$here/seeds.py" "$name" "$corpus" "$corpus.dict"
  # No input of 8 KiB may take 10 s (of a busy machine), 64 MB in one piece or 1 GB (most of it the sanitizer's), whatever
  # it says. Malformed.LargeInputs* has bounds by the size of an input.
  if OMP_NUM_THREADS=1 "$program" -max_total_time="$seconds" -max_len=8192 -timeout=10 -rss_limit_mb=1024 \
      -malloc_limit_mb=64 -print_final_stats=1 -artifact_prefix="$out/crash-$name-" -dict="$corpus.dict" "$corpus" \
      >"$log" 2>&1; then
    echo "fuzz $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, 0 crashes"
    exit 0
  fi
  # shellcheck disable=SC2012
  echo "fuzz $name: crashed; the input is $(ls -t "$out"/crash-"$name"-* 2>/dev/null | head -1)" >&2
  tail -40 "$log" >&2
  exit 1
fi
mkdir -p "$out"
ulimit -s 32768  # as in tests/CMakeLists.txt
cd "$here"
printf '%s\n' *.cpp | sed 's/\.cpp$//' | xargs -P "${JOBS:-1}" -I NAME sh "$here/run.sh" "$seconds" NAME

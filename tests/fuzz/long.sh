#!/bin/sh
# Runs fuzz targets until each has RUNS executions: tests/fuzz/long.sh OUT [RUNS=10000000] [TARGET...]
# In turns of FUZZ_SLICE=45 seconds, so that it can be stopped at any time and goes on where it was; FUZZ_WORKERS=1
# processes of a target at a time, which share what they find; FUZZ_BUDGET: seconds after which no turn starts. Counts
# start again when a target's program changed. OUT/fuzz.md is the table of all targets; FUZZ_BUILD: the folder of the
# programs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1
[ $# -gt 0 ] && shift
runs=${1:-10000000}
[ $# -gt 0 ] && shift
slice=${FUZZ_SLICE:-45} workers=${FUZZ_WORKERS:-1} budget=${FUZZ_BUDGET:-100000000}
start=$(date +%s)
programs=${FUZZ_BUILD:-$here/../../build/sanitize/tests}
mkdir -p "$out/fuzz"
ulimit -s 32768  # as in tests/CMakeLists.txt
export OMP_NUM_THREADS=1 ASAN_OPTIONS=malloc_context_size=0:quarantine_size_mb=8
[ $# -gt 0 ] || set -- $(cd "$here" && ls ./*.cpp | sed 's|^\./||; s|\.cpp$||')

# A number of libFuzzer's statistics of all workers, one a line.
of() { sed -n "s/^stat::$1: *//p" "$log".*; }

table() {
  {
    echo "| target | executions | crashes | exec/s | seconds | inputs kept | peak RSS (MB) |"
    echo "|---|---|---|---|---|---|---|"
    for state in "$out"/fuzz/*.state; do
      name=$(basename "$state" .state)
      read -r _ done_ seconds rss <"$state"
      echo "| \`$name\` | $done_ | 0 | $((done_ / (seconds ? seconds : 1))) | $seconds | $(ls "$out/fuzz/$name" | wc -l) | $rss |"
    done
  } >"$out/fuzz.md"
}

busy=1
while [ "$busy" = 1 ]; do
  busy=0
  for name in "$@"; do
    program=$programs/fuzz_$name state=$out/fuzz/$name.state corpus=$out/fuzz/$name log=$out/fuzz/$name.log
    [ -x "$program" ] || { echo "fuzz: $program is missing; build it first: make fuzz FUZZ_SECONDS=1" >&2; exit 1; }
    hash=$(sha256sum "$program" | cut -c1-16)
    was='' done_=0 seconds=0 rss=0
    [ ! -e "$state" ] || read -r was done_ seconds rss <"$state"
    [ "$was" = "$hash" ] || done_=0 seconds=0 rss=0
    [ "$done_" -lt "$runs" ] && [ $(($(date +%s) - start)) -lt "$budget" ] || continue
    busy=1
    mkdir -p "$corpus"
    python3 "$here/seeds.py" "$name" "$corpus" "$out/fuzz/$name.dict"
    case $name in # these formats take more to say anything
    foreign | json_files | toml_files | tokenizer) length=2048 ;;
    *) length=1024 ;;
    esac
    begin=$(date +%s)
    rm -f "$log".*
    pids=''
    for worker in $(seq "$workers"); do
      "$program" -runs=$(((runs - done_ + workers - 1) / workers)) -max_total_time="$slice" -max_len=$length -entropic=0 \
        -reload=0 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=64 -print_funcs=0 -print_final_stats=1 \
        -dict="$out/fuzz/$name.dict" \
        -artifact_prefix="$out/crash-$name-" "$corpus" >"$log.$worker" 2>&1 &
      pids="$pids $!"
    done
    worker=0
    for pid in $pids; do
      worker=$((worker + 1))
      wait "$pid" && continue
      echo "fuzz $name: crashed after $done_ executions; the input is $(ls -t "$out"/crash-"$name"-* | head -1)" >&2
      tail -40 "$log.$worker" >&2
      exit 1
    done
    peak=$(of peak_rss_mb | sort -n | tail -1)
    [ "$peak" -le "$rss" ] || rss=$peak
    executed=$(of number_of_executed_units | awk '{n += $1} END {print n}')
    echo "$hash $((done_ + executed)) $((seconds + workers * ($(date +%s) - begin))) $rss" >"$state"
    table
  done
done
cat "$out/fuzz.md"

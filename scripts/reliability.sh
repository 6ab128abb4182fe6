#!/usr/bin/env bash
# The long reliability checks behind docs/reference/reliability.md; `make test` and `make fuzz` run short ones of the same tests.
#   scripts/reliability.sh kills [COUNT=1000]          SIGKILLs during saves: 0 lost
#   scripts/reliability.sh flips [COUNT=10000]         flipped bits in a checkpoint: 0 missed
#   scripts/reliability.sh faults [PAIRS=1000] [ALLOCATIONS=300]  calls, allocations that fail: 0 lost, 0 crashes
#   scripts/reliability.sh soak [MINUTES=30] [SECONDS=20]  training killed every SECONDS against one that never was
#   scripts/reliability.sh fuzz [RUNS=10000000] [TARGET...]  libFuzzer, until each target has RUNS executions
#   scripts/reliability.sh ranks [COUNT=100]           COUNT kills and COUNT stops of a rank during training: all named, 0 lost
#   scripts/reliability.sh adversary [COUNT=10]        the tests of the adversary's table (docs/reference/reliability.md), COUNT times
# Results go to build/reliability/ (RELIABILITY_OUT): a PART.md each, and what the programs said. The parts need
# `ninja -C build/release crest test_checkpoint` (faults: test_cli, test_store and test_train, too) or
# `make fuzz FUZZ_SECONDS=1` once. `fuzz` continues where it was stopped.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${RELIABILITY_OUT:-$root/build/reliability}
mkdir -p "$out"
export OMP_NUM_THREADS=1 GOMP_SPINCOUNT=4000 CREST_STORE=$out/runs.db

need() { [ -x "$1" ] || { echo "reliability: $1 is missing; build it first: $2" >&2; exit 1; }; }

# The machine and the version, for every table.
where() {
  echo "$(date -u +%Y-%m-%d), commit $(git -C "$root" rev-parse --short HEAD)$(git -C "$root" diff --quiet HEAD -- src tests || echo ' with changes')," \
    "$(nproc --all) x $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(. /etc/os-release && echo "$PRETTY_NAME"), Linux $(uname -r | cut -d- -f1)."
}

# Tests of tests/PROGRAM with their count; the lines that they print, which begin with a number, are the result.
long_test() {
  local part=$1 name=$2 test=$3 variable=$4 count=$5 program=$root/build/release/tests/test_$2
  need "$program" "ninja -C build/release test_$name"
  (cd "$out" && env "$variable=$count" "$program" --gtest_filter="$test") >"$out/$part.log" 2>&1 ||
    { tail -30 "$out/$part.log" >&2; exit 1; }
  { grep -E '^[0-9]+ [a-z]' "$out/$part.log"; where; } | tee "$out/$part.md"
}

faults() {
  long_test pairs checkpoint 'Faults.Pairs*' CREST_FAULT_PAIRS "$1"
  long_test resume-pairs train 'RunFaults.Pairs*' CREST_FAULT_PAIRS "$1"
  long_test store-faults store 'StoreFaults.*' CREST_STORE_FAULTS all
  long_test allocations cli 'OutOfMemory.*' CREST_ALLOCATION_FAULTS "$2"
  long_test system-faults cli 'SystemFaults.*' CREST_SYSTEM_FAULTS all
}

recipe=(--model nano --batch 4 --seq 128 --threads 1 --lr 1e-3 --schedule constant --steps 10000000
  --save-every 50 --keep 2 --val-every 2000 --val-batches 4 --quiet --no-store)

newest() { ls "$1/checkpoints" 2>/dev/null | grep '^step-' | sort | tail -1; }

soak() {
  local minutes=$1 seconds=$2 folder=$out/soak kills=0 lost=0 step=0 now pid start=$SECONDS
  crest=$root/build/release/crest
  need "$crest" "make build"
  rm -rf "$folder" && mkdir -p "$folder"
  cd "$folder"
  "$root/scripts/demo-corpus.sh" text.txt
  "$crest" data prepare text.txt --tokenizer bpe:1024 --out data 2>/dev/null
  : >log
  while ((SECONDS - start < 60 * minutes)); do
    if [ -n "$(newest killed)" ]; then
      "$crest" train --resume killed --quiet --no-store 2>>log &
    else
      "$crest" train "${recipe[@]}" --data data --out killed --overwrite 2>>log &
    fi
    pid=$!
    sleep "$seconds"
    kill -KILL $pid || { echo "reliability: training ended by itself:" >&2; tail -5 log >&2; exit 1; }
    wait $pid 2>/dev/null || true
    kills=$((kills + 1))
    now=$(newest killed)
    now=$((10#${now#step-}))
    if ((now < step)); then lost=$((lost + 1)); fi
    step=$now
  done
  # The end of the killed run, saved where it stands; then as many steps in one piece.
  "$crest" train --resume killed --stop-after 1 --quiet --no-store 2>>log
  step=$(newest killed)
  echo "reliability: $kills kills, $lost times an older checkpoint; now $((10#${step#step-})) steps in one piece" >&2
  "$crest" train "${recipe[@]}" --data data --out straight --stop-after $((10#${step#step-})) 2>>log
  for file in model.safetensors optimizer.safetensors state.json; do
    cmp "killed/checkpoints/$step/$file" "straight/checkpoints/$step/$file"
  done
  for run in killed straight; do # without what a clock wrote
    sed -E 's/"(step_ms|tokens_per_second|wait_ms)":[^,}]*//g' $run/log.jsonl >$run.losses
  done
  cmp killed.losses straight.losses
  if grep -i damaged log; then exit 1; fi
  { echo "$kills SIGKILLs, one every $seconds s, in $minutes minutes of training: $lost checkpoints lost, none damaged. After" \
      "$((10#${step#step-})) steps weights, moments, state and the losses of all steps are those of the run in one piece."
    sha256sum "killed/checkpoints/$step/model.safetensors" "straight/checkpoints/$step/model.safetensors"
    where; } | tee "$out/soak.md"
}

# The tests of what an adversary tries, several times: what depends on a race shows.
adversary() {
  local count=$1 program filter
  for program in cli data train core host; do
    need "$root/build/release/tests/test_$program" "ninja -C build/release crest test_$program"
    case $program in
    cli) filter='Streams.*:RunFolder.*:Variables.*' ;;
    data) filter='*PrepareKilled*:PrepareReplacing.*:PreparedTokenizers.*:Prepare.Cache*:Corpus.Content*' ;;
    train) filter='FreshFolder.*:RunFaults.AnInterrupted*' ;;
    core) filter='TomlString.*:ContentHash.*' ;;
    host) filter='OpenmpThreads.*' ;;
    esac
    (cd "$out" && "$root/build/release/tests/test_$program" --gtest_filter="$filter" --gtest_repeat="$count") \
      >"$out/adversary-$program.log" 2>&1 || { grep -a -A20 'Failure' "$out/adversary-$program.log" | tail -40 >&2; exit 1; }
  done
  { echo "All tests of the adversary's table passed, $count times."; where; } | tee "$out/adversary.md"
}

part=${1:-}
[ $# -gt 0 ] && shift
[[ ${1:-1} =~ ^[1-9][0-9]*$ && ($part == fuzz || ${2:-1} =~ ^[1-9][0-9]*$) ]] || part=usage # counts, minutes, seconds
case $part in
kills) long_test kills checkpoint Faults.RandomKills CREST_KILLS "${1:-1000}" ;;
flips) long_test flips checkpoint Checkpoint.FlippedBitsAreFoundAndThePreviousUsed CREST_FLIPS "${1:-10000}" ;;
faults) faults "${1:-1000}" "${2:-300}" ;;
soak) soak "${1:-30}" "${2:-20}" ;;
ranks) long_test ranks cli LostRanks.OneAfterTheOther CREST_RANK_LOSSES "${1:-100}" ;;
adversary) adversary "${1:-10}" ;;
fuzz) exec sh "$root/tests/fuzz/long.sh" "$out" "$@" ;;
*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

#!/usr/bin/env bash
# The long reliability checks behind docs/reliability.md; `make test` and `make fuzz` run short ones of the same tests.
#   scripts/reliability.sh kills [COUNT=1000]          SIGKILLs during saves: 0 lost
#   scripts/reliability.sh flips [COUNT=10000]         flipped bits in a checkpoint: 0 missed
#   scripts/reliability.sh soak [MINUTES=30] [SECONDS=20]  training killed every SECONDS against one that never was
#   scripts/reliability.sh fuzz [RUNS=10000000] [TARGET...]  libFuzzer, until each target has RUNS executions
# Results go to build/reliability/ (RELIABILITY_OUT): a PART.md each, and what the programs said. The parts need
# `ninja -C build/release crest test_checkpoint` or `make fuzz FUZZ_SECONDS=1` once. `fuzz` continues where it was stopped.
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

# A test of tests/checkpoint with its count; the line that it prints is the result.
checkpoint_test() {
  local part=$1 test=$2 variable=$3 count=$4 program=$root/build/release/tests/test_checkpoint
  need "$program" "ninja -C build/release test_checkpoint"
  (cd "$out" && env "$variable=$count" "$program" --gtest_filter="$test") >"$out/$part.log" 2>&1 ||
    { tail -30 "$out/$part.log" >&2; exit 1; }
  { grep -E '^[0-9]+ (kills|flipped)' "$out/$part.log"; where; } | tee "$out/$part.md"
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

part=${1:-}
[ $# -gt 0 ] && shift
[[ ${1:-1} =~ ^[1-9][0-9]*$ && ($part != soak || ${2:-1} =~ ^[1-9][0-9]*$) ]] || part=usage # counts, minutes, seconds
case $part in
kills) checkpoint_test kills Faults.RandomKills CREST_KILLS "${1:-1000}" ;;
flips) checkpoint_test flips Checkpoint.FlippedBitsAreFoundAndThePreviousUsed CREST_FLIPS "${1:-10000}" ;;
soak) soak "${1:-30}" "${2:-20}" ;;
fuzz) exec sh "$root/tests/fuzz/long.sh" "$out" "$@" ;;
*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

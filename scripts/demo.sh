#!/bin/sh
# Trains a small GPT on real text for two minutes, lets it write, then measures what its levers do on this machine and
# writes a report: the end of `make demo`.
# CORPUS=FILE takes another text, SECONDS_TO_TRAIN another time, MODEL another preset, SECONDS_A_CELL another time for
# each of the recipes that are measured.
set -eu
cd "$(dirname "$0")/.."
crest=build/release/crest
seconds=${SECONDS_TO_TRAIN:-120}
model=${MODEL:-nano}
cell=${SECONDS_A_CELL:-8}
vocab=2048
# All that the demo measures is recorded here, anew each time.
export CREST_STORE=.cache/demo.db

step() { printf '\n== %s\n   %s\n' "$1" "$2" >&2; }
run() {
  step "$1" "$(shift; printf '%s ' "$@")"
  shift
  "$@"
}

if [ -n "${CORPUS:-}" ]; then
  corpus=$CORPUS data=.cache/demo-data-own
  rm -rf "$data"
else
  corpus=.cache/kjv.txt data=.cache/demo-data
  [ -s "$corpus" ] || run "Making the corpus: the King James Bible as plain text" scripts/demo-corpus.sh "$corpus"
fi
if [ ! -e "$data/meta.json" ] || [ -n "$(find "$corpus" -newer "$data/meta.json")" ]; then
  rm -rf "$data"
  run "Training a tokenizer on it and writing shards" \
    "$crest" data prepare "$corpus" --tokenizer "bpe:$vocab" --out "$data"
fi

status=0
rm -f "$CREST_STORE" "$CREST_STORE-wal" "$CREST_STORE-shm"
run "Training $model for $seconds seconds (Ctrl-C saves and stops)" \
  "$crest" train --data "$data" --model "$model" --max-seconds "$seconds" --out runs/demo --overwrite || status=$?
# 130: interrupted after saving. What was learnt so far can still be sampled.
[ "$status" = 0 ] || [ "$status" = 130 ] || exit "$status"

run "What it writes" "$crest" sample --run runs/demo --prompt "In the beginning"

# Whoever stopped the training does not want to wait for measurements.
report=
if [ "$status" = 0 ]; then
  run "Measuring a training step of it in eight recipes (the next minutes are best left to it)" \
    "$crest" bench --model "$model" --vocab "$vocab" --precision fp32,bf16 --attention naive,flash --fusion off,on \
    --max-seconds "$cell" --yes
  run "Why the plainest of them and the default differ" \
    "$crest" compare --model "$model" --vocab "$vocab" --max-seconds "$((2 * cell))" \
    --a "--precision fp32 --attention naive --fusion off" --b "--precision bf16 --attention flash --fusion on"
  report=runs/demo/report.html
  run "Writing the report" "$crest" report --all -o "$report"
fi

cat <<END

The loss curve is in runs/demo/loss.svg, every step in runs/demo/log.jsonl.${report:+ The report, a page for any browser:

  $PWD/$report
}
Try next:

  $crest sample --run runs/demo --prompt "And the king said" --seed 2
  $crest program --model $model --batch 4
  $crest plan --model gpt2-124M --batch 4 --seq 1024

The first writes something else, the second prints the training step as the list of instructions that it is, the third
says what training GPT-2 would take in memory and arithmetic.
END
exit "$status"

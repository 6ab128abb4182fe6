#!/bin/sh
# Trains a small GPT on real text for two minutes and lets it write: the end of `make demo`.
# CORPUS=FILE takes another text, SECONDS_TO_TRAIN another time, MODEL another preset.
set -eu
cd "$(dirname "$0")/.."
crest=build/release/crest
seconds=${SECONDS_TO_TRAIN:-120}
model=${MODEL:-nano}

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
    "$crest" data prepare "$corpus" --tokenizer bpe:2048 --out "$data"
fi

status=0
run "Training $model for $seconds seconds (Ctrl-C saves and stops)" \
  "$crest" train --data "$data" --model "$model" --max-seconds "$seconds" --out runs/demo --overwrite || status=$?
# 130: interrupted after saving. What was learnt so far can still be sampled.
[ "$status" = 0 ] || [ "$status" = 130 ] || exit "$status"

run "What it writes" "$crest" sample --run runs/demo --prompt "In the beginning"

cat <<END

The loss curve is in runs/demo/loss.svg, every step in runs/demo/log.jsonl. Try next:

  $crest sample --run runs/demo --prompt "And the king said" --seed 2
  $crest program --model $model --batch 4
  $crest plan --model gpt2-124M --batch 4 --seq 1024

The first writes something else, the second prints the training step as the list of instructions that it is, the third
says what training GPT-2 would take in memory and arithmetic.
END
exit "$status"

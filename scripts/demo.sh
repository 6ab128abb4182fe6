#!/bin/sh
# `make demo`: builds Crest, trains a small GPT on real text for about two minutes, lets it write,
# compares its step with the plainest one, and writes a report.
# CORPUS=FILE uses another text, MODEL another preset, SECONDS_TO_TRAIN and SECONDS_TO_MEASURE other
# times.
set -eu
cd "$(dirname "$0")/.."
crest=build/release/crest
seconds=${SECONDS_TO_TRAIN:-120}
model=${MODEL:-nano}
measure=${SECONDS_TO_MEASURE:-30}
vocab=2048
# The demo's own run database, made anew each time.
export CREST_STORE=.cache/demo.db

if [ -n "${CORPUS:-}" ]; then
  corpus=$CORPUS data=.cache/demo-data-own text="$CORPUS"
else
  corpus=.cache/kjv.txt data=.cache/demo-data text="the King James Bible"
fi

stage() { printf '\n== %s\n' "$*"; }
# The words of a command as they can be pasted into a shell.
quoted() {
  for word; do
    case $word in
      *[!A-Za-z0-9_./:,=+-]* | '') printf " '%s'" "$(printf '%s' "$word" | sed "s/'/'\\\\''/g")" ;;
      *) printf ' %s' "$word" ;;
    esac
  done
}
show() { printf '$%s\n' "$(quoted "$@")"; }
run() {
  show "$@"
  "$@"
}

row() { printf '  %s %-10s%-52s%s\n' "$@"; }
echo "From a text to a model that writes, in six stages:"
echo
row 1 build "Crest; missing packages are listed, then installed" "5 to 15 minutes, once"
row 2 prepare "$text: a tokenizer and tokens" "seconds, once"
row 3 train "a model of the preset $model" "about $seconds seconds"
row 4 sample "text from that model" "seconds"
row 5 compare "its training step with the plainest one" "about $((2 * measure)) seconds"
row 6 report "all figures on one page" "seconds"
echo
echo "Ctrl-C in stage 3 saves, samples and ends. To repeat a command, paste it after:"
echo "\$ export CREST_STORE=$CREST_STORE"

stage "1 build"
run make --no-print-directory build

stage "2 prepare $text"
[ -n "${CORPUS:-}" ] || [ -s "$corpus" ] || run scripts/demo-corpus.sh "$corpus"
# Prepared again when the text is another file or a newer one.
if [ -n "${CORPUS:-}" ] || [ ! -e "$data/meta.json" ] || [ -n "$(find "$corpus" -newer "$data/meta.json")" ]; then
  run "$crest" data prepare "$corpus" --tokenizer "bpe:$vocab" --overwrite --out "$data"
else
  echo "already in $data"
fi

stage "3 train $model for about $seconds seconds"
status=0
rm -f "$CREST_STORE" "$CREST_STORE-wal" "$CREST_STORE-shm"
run "$crest" train --data "$data" --model "$model" --max-seconds "$seconds" --out runs/demo --overwrite || status=$?
# 130: interrupted after saving, so that it can be sampled.
[ "$status" = 0 ] || [ "$status" = 130 ] || exit "$status"

stage "4 sample"
run "$crest" sample --run runs/demo --prompt "In the beginning" --max-tokens 120

report=
if [ "$status" = 0 ]; then
  stage "5 compare the plainest training step (A: fp32, naive attention, no fusion) with that of stage 3 (B)"
  comparison=runs/demo/compare.txt
  set -- "$crest" compare --model "$model" --vocab "$vocab" --max-seconds "$measure" \
    --a "--precision fp32 --attention naive --fusion off" --b ""
  echo "\$$(quoted "$@") >$comparison"
  "$@" >"$comparison"
  # The first sentences and what was changed; the rest is in the file.
  awk 'NF == 0 && ++empty == 2 {exit} {print}' "$comparison"
  echo "The tables behind these sentences: $comparison"

  stage "6 report"
  report=runs/demo/report.html
  run "$crest" report --all -o "$report"
fi

# As many steps again: those of the run, of which there are fewer after Ctrl-C.
steps=$(sed -n 's/^{"step": *\([0-9]*\).*/\1/p' runs/demo/log.jsonl | tail -1)
cat <<END

Done. The model is in runs/demo, its loss curve in runs/demo/loss.svg. To go on:
  $crest sample --run runs/demo --prompt 'And the king said' --seed 2   # another text
  $crest train --resume runs/demo --steps $((2 * steps))           # more training; Ctrl-C saves
  $crest plan --model gpt2-124M --batch 4 --seq 1024     # what GPT-2 would need
END
[ -z "$report" ] || echo "The report, for any browser: $PWD/$report"
exit "$status"

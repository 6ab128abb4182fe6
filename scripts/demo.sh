#!/bin/sh
# `make demo`: builds Crest, trains a small GPT on real text for two minutes, lets it write, measures
# what makes its step fast on this machine, and writes a report.
# CORPUS=FILE uses another text, SECONDS_TO_TRAIN another time, MODEL another preset, SECONDS_A_CELL
# another time for each recipe that is measured.
set -eu
cd "$(dirname "$0")/.."
crest=build/release/crest
seconds=${SECONDS_TO_TRAIN:-120}
model=${MODEL:-nano}
cell=${SECONDS_A_CELL:-8}
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

measuring=$(((10 * cell + 59) / 60))
cat <<END
From a text to a model that writes, in six stages:

  1 build      Crest; missing packages are listed and installed     5 to 15 minutes, once
  2 prepare    $text: a tokenizer and tokens                        seconds, once
  3 train      the model $model                                     $seconds seconds
  4 sample     what it writes                                       seconds
  5 measure    a training step in eight recipes                     $measuring to $((2 * measuring)) minutes
  6 report     all figures on one page                              seconds

Ctrl-C in stage 3 saves, samples and ends. To repeat a command, paste it after:
\$ export CREST_STORE=$CREST_STORE
END

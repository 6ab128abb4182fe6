#!/bin/sh
# Draws the picture of README.md: scripts/readme-figure.sh [CREST] [SVG]
# Trains as the demo does, profiles a step of the same model, and puts two figures of the report on
# them, the loss and the time by operation class, into one. Takes about two minutes.
set -eu
cd "$(dirname "$0")/.."
crest=${1:-build/release/crest} out=${2:-docs/images/readme.svg}
data=.cache/demo-data work=build/readme-figure
[ -x "$crest" ] || { echo "readme-figure: no $crest: run make build" >&2; exit 2; }
[ -e "$data/meta.json" ] || { echo "readme-figure: no $data: run make demo" >&2; exit 2; }
rm -rf "$work" && mkdir -p "$work" "$(dirname "$out")"
export CREST_STORE="$work/runs.db"

"$crest" train --data "$data" --model nano --max-seconds "${SECONDS_TO_TRAIN:-120}" --out "$work/run"
"$crest" profile --model nano --vocab 2048 --name CPU >"$work/profile.txt"
"$crest" report "$work/run" CPU -o "$work/report.md"

# The file of the figure with this title, in the report.
figure() {
  file=$(sed -n "s/^!\[$1\](<\(.*\)>)\$/\1/p" "$work/report.md" | head -1)
  [ -n "$file" ] || { echo "readme-figure: $work/report.md has no figure '$1'" >&2; exit 1; }
  echo "$work/$file"
}
loss=$(figure 'Loss by step')
time=$(figure 'Time by operation class')
size() { sed -n '1s/.*viewBox="0 0 \([0-9]*\) \([0-9]*\)".*/\1 \2/p' "$1"; }
# at Y FILE: the figure as a part of another one.
at() {
  set -- "$1" "$2" $(size "$2")
  sed "1s/<svg xmlns=\"[^\"]*\"/<svg x=\"16\" y=\"$1\" width=\"$3\" height=\"$4\"/" "$2"
}
set -- $(size "$loss") $(size "$time")
{
  echo "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"fig\" viewBox=\"0 0 $(($1 + 32)) $(($2 + $4 + 40))\" role=\"img\">"
  echo '<title>The loss of a training run, and the time of one of its steps by operation class</title>'
  echo '<rect class="paper" width="100%" height="100%" rx="6"/>'
  at 12 "$loss"
  at "$(($2 + 28))" "$time"
  echo '</svg>'
} >"$out"
echo "$out: $(wc -c <"$out") bytes"

#!/bin/sh
# The study on a GPU machine: Crest and PyTorch train the same model on the same data; compare.py judges.
#   CREST="build/cuda/crest" studies/loss_curve/run.sh DATA OUT [WORK]
# DATA: made by corpus.py. OUT gets loss_curve.svg, .md, .json, log.txt and runs.tar.gz; WORK (default /tmp/loss_curve)
# what is large. Exit code: 0 within, 1 outside, 2 not judged. Needs PyTorch and numpy, no network. The variables below
# make it smaller; STAGES may leave out what an earlier call with the same WORK did.
set -u
[ $# -ge 2 ] || { sed -n 2,7p "$0" >&2; exit 2; }
data=$1 out=$2 work=${3:-/tmp/loss_curve}
CREST=${CREST:-build/cuda/crest} PYTHON=${PYTHON:-python3}
MODEL=${MODEL:-gpt2-124M} BATCH=${BATCH:-8} SEQ=${SEQ:-1024} STEPS=${STEPS:-2000} WARMUP=${WARMUP:-100}
DEVICE=${DEVICE:-cuda} VAL_EVERY=${VAL_EVERY:-$((STEPS / 10))} WINDOW=${WINDOW:-50} TORCH_SECONDS=${TORCH_SECONDS:-420}
STAGES=${STAGES:-crest torch compare} TORCH_FLAGS=${TORCH_FLAGS:-}
# NAME:WEIGHTS:ORDER, in the order of importance: what the time limit cuts off is left out of the comparison.
RUNS=${RUNS:-repeat-1:1:1337 repeat-2:1:1337 weights-2:2:1337 repeat-3:1:1337:nudge weights-3:3:1337}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out" "$work/torch" || exit 2
exec 3>&1
shape="--model $MODEL --batch $BATCH --seq $SEQ --steps $STEPS --lr 6e-4 --min-lr 6e-5 --warmup $WARMUP"
shape="$shape --val-every $VAL_EVERY --val-batches 20"
say() { echo "run.sh: $*" | tee -a "$out/log.txt" >&3; }
vocab=$("$PYTHON" -c "import json, sys; print(json.load(open(sys.argv[1]))['vocab_size'])" "$data/meta.json") || exit 2

# The last lines are what a reader needs when a program fails; everything is in log.txt.
logged() {
  what=$1 limit=$2 start=$(date +%s)
  shift 2
  timeout -k 10 "$limit" "$@" >"$work/last.txt" 2>&1
  code=$?
  cat "$work/last.txt" >>"$out/log.txt"
  if [ $code -ne 0 ]; then tail -n 15 "$work/last.txt" >&3; fi
  say "$what: exit code $code after $(($(date +%s) - start)) s"
  return $code
}

crest_run() {
  policy=$1
  rm -rf "${work:?}/$policy"
  logged "crest, $policy" 180 $CREST train --device "$DEVICE" $shape --vocab "$vocab" --precision bf16 \
    --policy "$policy" --init "$work/init" --data "$data" --seed 1337 --save-every 0 --quiet --out "$work/$policy"
  rm -rf "$work/$policy/checkpoints"
}

for stage in $STAGES; do
  case $stage in
    crest)
      logged weights 120 "$PYTHON" "$here/init_weights.py" --model "$MODEL" --vocab "$vocab" --seed 1 \
        "$work/init" || exit 2
      crest_run autocast
      crest_run pure
      ;;
    torch)
      rm -f "$work"/torch/*.csv
      flags=
      for run in $RUNS; do flags="$flags --run $run"; done
      logged pytorch "$TORCH_SECONDS" "$PYTHON" "$here/torch_train.py" --data "$data" $shape \
        --device "$DEVICE" $TORCH_FLAGS $flags --out "$work/torch"
      grep -E 'steps in' "$work/last.txt" >&3
      ;;
  esac
done

# Runs that got to the end; a header and a line for each step.
flags=
for policy in autocast pure; do
  [ -s "$work/$policy/log.jsonl" ] && [ "$(grep -c '"loss"' "$work/$policy/log.jsonl")" = "$STEPS" ] &&
    flags="$flags --crest $work/$policy"
done
for run in $RUNS; do
  file=$work/torch/${run%%:*}.csv
  [ -s "$file" ] && [ "$(wc -l <"$file")" = $((STEPS + 1)) ] || { say "incomplete: ${run%%:*}"; continue; }
  case ${run%%:*} in
    repeat*) flags="$flags --repeat $file" ;;
    weights*) flags="$flags --other $file" ;;
    *) flags="$flags --shuffled $file" ;;
  esac
done
(cd "$work" && find . -maxdepth 2 \( -name '*.csv' -o -name log.jsonl -o -name config.toml \
  -o -name environment.json \) | tar czf - -T -) >"$out/runs.tar.gz"
case $STAGES in *compare*) ;; *) exit 0 ;; esac
"$PYTHON" "$here/compare.py" $flags --window "$WINDOW" --out "$out" --title "$MODEL, batch $BATCH x $SEQ, bf16" \
  >"$work/last.txt" 2>&1
code=$?
tee -a "$out/log.txt" <"$work/last.txt"
exit $code

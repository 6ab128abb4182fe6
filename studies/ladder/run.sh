#!/usr/bin/env bash
# The precision ladder and two model sizes, profiled and compared: what docs/results/h200 shows of them.
#   studies/ladder/run.sh [--crest BINARY] [--out DIR] [--device cuda] [--model gpt2-124M] [--large gpt2-1558M] [--batch 16]
# A: fp32, naive attention, vocabulary 50257. B: tf32. C: bf16 autocast. D: flash attention. E: vocabulary padded to 128.
# OUT gets ladder.db, the reports and comparisons (.md, .html, .json), the export runs.jsonl, and a line a rung in closure.md:
# how well the profiler's records explain the step that is not profiled. Where PyTorch and a GPU are there, its step is
# traced beside ours (studies/peers/torch_gpt2.py) and compared with rung E.
set -eu
cd "$(dirname "$0")/../.."
crest=build/release/crest out=build/ladder device=cuda model=gpt2-124M large=gpt2-1558M batch=16
while [ $# -gt 0 ]; do
  case "$1" in
    --crest) crest=$2 ;; --out) out=$2 ;; --device) device=$2 ;; --model) model=$2 ;; --large) large=$2 ;; --batch) batch=$2 ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
mkdir -p "$out"
store=$out/ladder.db
rm -f "$store"*
export GOMP_SPINCOUNT=4000 CREST_STORE=$store

profile() { # NAME FLAGS...
  local name=$1
  shift
  echo "profile $name: $*"
  "$crest" profile --device "$device" --name "$name" "$@" --json >"$out/$name.json"
  python3 - "$out/$name.json" "$name" >>"$out/closure.md" <<'END'
import json, statistics, sys
p = json.load(open(sys.argv[1]))
p = p.get("profile", p)
step = statistics.median(p["step_ms"])
print(f"| {sys.argv[2]} | {p['method']} | {step:.3f} | {p['span_ms']:.3f} | {p['busy_ms']:.3f} | {p['idle_ms']:.3f} | "
      f"{p['recording_ms']:.3f} | {p['launches']} | {100 * (p['busy_ms'] + p['idle_ms']) / step:.1f}% |")
END
  rm "$out/$name.json"
}
compare() { # A B
  "$crest" compare "$1" "$2" >"$out/$1-$2.txt"
  "$crest" compare "$1" "$2" --json >"$out/$1-$2.json"
  sed -n '1,3p' "$out/$1-$2.txt"
}

printf '| run | method | step ms | records ms | busy | idle | recording | launches | closure |\n|---|---|---|---|---|---|---|---|---|\n' >"$out/closure.md"
recipe="--model $model --batch $batch"
tf32=tf32
[ "$device" != cpu ] || tf32=fp32 # a trial of this script without a GPU
# shellcheck disable=SC2086 # lists of flags
{
  profile A $recipe --precision fp32 --attention naive --fusion off --pad-vocab 1
  profile B $recipe --precision $tf32 --attention naive --fusion off --pad-vocab 1
  profile C $recipe --precision bf16 --policy autocast --attention naive --fusion off --pad-vocab 1
  profile D $recipe --precision bf16 --policy autocast --attention flash --fusion off --pad-vocab 1
  profile E $recipe --precision bf16 --policy autocast --attention flash --fusion off --pad-vocab 128
  profile E-fused $recipe --precision bf16
  profile large --model "$large" --batch "$batch" --precision bf16
}
for pair in "A B" "B C" "C D" "D E" "E E-fused" "A E-fused"; do compare ${pair% *} ${pair#* }; done
compare E-fused large
"$crest" report A B C D E E-fused -o "$out/ladder.html" -o "$out/ladder.md" --title "Precision ladder, $model"
"$crest" report E-fused large -o "$out/sizes.html" -o "$out/sizes.md" --title "$model and $large"

if [ "$device" != cpu ] && python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
  python3 studies/peers/torch_gpt2.py --size "${model#gpt2-}" --batch "$batch" --vocab 50304 --precision bf16 --compile \
    --trace "$out/torch.json" | tee "$out/torch.txt"
  "$crest" compare "$out/torch.json" E-fused >"$out/torch-E-fused.txt" || true
fi
"$crest" runs export --all -o "$out/runs.jsonl" >/dev/null
cat "$out/closure.md"

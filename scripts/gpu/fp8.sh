#!/bin/sh
# Checks and measures --precision fp8 on one GPU of compute capability 8.9 or newer.
#   fp8.sh PART..    ops steps resume weights speed fusion loss profile blocks; without PART all but loss
# SIZES ("gpt2-1558M 16;gpt2-124M 64"), SAMPLES and SECONDS_EACH (the limit of a measurement) shorten speed, weights and fusion;
# loss trains on DATA (of `crest data prepare`) with SEEDS, STEPS and the settings of each of RUNS ("bf16;fp8").
# CREST and TEST_OPS name the programs (build/cuda/crest, build/cuda/tests/test_ops; of a bundle `RUN crest`), OUT the
# folder for results. Each command has a time limit of its own, so that one that hangs costs no more than that.
set -u
here=$(cd "$(dirname "$0")/../.." && pwd)
CREST=${CREST:-$here/build/cuda/crest} TEST_OPS=${TEST_OPS:-$here/build/cuda/tests/test_ops} OUT=${OUT:-build/fp8}
mkdir -p "$OUT"
failed=0
[ -s "$OUT/text.txt" ] || cat "$here"/docs/*/*.md >"$OUT/text.txt"
t() {
  limit=$1
  shift
  echo "\$ $*"
  timeout -s KILL "$limit" "$@" 2>&1 || { echo "FAILED ($?): $*"; failed=1; }
}
crest() { limit=$1; shift; t "$limit" $CREST "$@"; }

# Losses of two logs, step by step.
compare() {
  python3 - "$1/log.jsonl" "$2/log.jsonl" "$3" <<'EOF' || failed=1
import json, sys
a, b = ([json.loads(l) for l in open(f)] for f in sys.argv[1:3])
a, b = ([r for r in x if "loss" in r] for x in (a, b))
limit, worst = float(sys.argv[3]), 0
for x, y in zip(a, b):
    d = abs(x["loss"] - y["loss"]) / y["loss"]
    worst = max(worst, d)
    print(f'step {x["step"]}: {x["loss"]:.6f} {y["loss"]:.6f} ({100 * d:.4f}%), norm {x["grad_norm"]:.5f} {y["grad_norm"]:.5f},'
          f' vanished {x.get("fp8_vanished")} {y.get("fp8_vanished")}, saturated {x.get("fp8_saturated")} {y.get("fp8_saturated")}')
ok = len(a) == len(b) > 0 and worst <= limit
print(f'{"passed" if ok else "FAILED"}: largest difference {100 * worst:.4f}%, allowed {100 * limit}%')
sys.exit(not ok)
EOF
}

# Whether two runs of nano left the same weights.
same() {
  if cmp "$OUT/$1/checkpoints/step-000010/model.safetensors" "$OUT/$2/checkpoints/step-000010/model.safetensors"; then
    echo "passed: the weights are bitwise identical"
  else
    echo "FAILED: the weights differ"
    failed=1
  fi
}

# Ten steps of nano, deterministic: name of the run, flags.
nano() {
  name=$1
  shift
  crest 100 train "$OUT/text.txt" --model nano --batch 8 --device cuda --precision fp8 --steps 10 --lr 1e-3 \
    --deterministic --out "$OUT/$name" --overwrite --quiet --no-store "$@"
}

SIZES=${SIZES:-gpt2-124M 64;gpt2-355M 32;gpt2-774M 16;gpt2-1558M 16;llama-1B 4 --seq 4096}
SAMPLES=${SAMPLES:-12} SECONDS_EACH=${SECONDS_EACH:-170}
RUNS=${RUNS:-bf16;fp8;fp8 --fp8-gradients e4m3} SEEDS=${SEEDS:-1 2} STEPS=${STEPS:-2000}

# The settings of both sides, interleaved, for each size: ms, tokens/s, memory and the ratio.
pairs() {
  echo "$SIZES" | tr ';' '\n' >"$OUT/sizes"
  while read -r model batch rest; do
    crest "$SECONDS_EACH" bench --model "$model" --batch "$batch" $rest --device cuda $1 --ab "$2" \
      --samples "$SAMPLES" --store "$OUT/crest.db" </dev/null
  done <"$OUT/sizes"
}

# Mean of the last 200 training losses, and the last validation, of each run.
late() {
  python3 - "$OUT" <<'EOF' || failed=1
import glob, json, sys
for f in sorted(glob.glob(sys.argv[1] + "/loss-*/log.jsonl")):
    rows = [json.loads(l) for l in open(f)]
    loss = [r["loss"] for r in rows if "loss" in r][-200:]
    val = [r["val_loss"] for r in rows if "val_loss" in r][-1:]
    lost = [(r["fp8_saturated"], r["fp8_vanished"]) for r in rows if "fp8_vanished" in r][-1:]
    print(f, f"{sum(loss) / len(loss):.5f}", val, lost)
EOF
}

part() {
  echo "== $1"
  case $1 in
    ops) t 300 $TEST_OPS --gtest_brief=1 --gtest_filter='*quantize*:*linear_fp8*:*amax_history*:*take_counts*:*_norm_*:*update*:*adamw*' ;;
    steps) # the GPU against the CPU's emulation, and against bf16
      for run in "cuda fp8" "cpu fp8" "cuda bf16"; do
        set -- $run
        crest 200 train "$OUT/text.txt" --model nano --batch 8 --device "$1" --precision "$2" --steps 10 --lr 1e-3 \
          --out "$OUT/$1-$2" --overwrite --quiet --no-store
      done
      compare "$OUT/cuda-fp8" "$OUT/cpu-fp8" 0.002
      compare "$OUT/cuda-fp8" "$OUT/cuda-bf16" 0.01 ;;
    resume) # in one piece and in two: the same bits
      for cut in 10 4; do nano cut-$cut --stop-after $cut; done
      crest 100 train --resume "$OUT/cut-4" --device cuda --quiet --no-store
      same cut-10 cut-4 ;;
    weights) # --fp8-weights update: the bits of weights that are kept, in one piece and in two; speed
      for made in keep update; do
        nano $made --fp8-weights $made
        nano micro-$made --fp8-weights $made --grad-accumulation 2
      done
      nano update-cut --fp8-weights update --stop-after 4
      crest 100 train --resume "$OUT/update-cut" --device cuda --quiet --no-store
      same keep update
      same micro-keep micro-update
      same update update-cut
      pairs '--precision fp8 --fp8-weights again' '--fp8-weights update'
      pairs '--precision fp8 --fp8-weights keep --grad-accumulation 4' '--fp8-weights update' ;;
    speed) pairs '--precision bf16' '--precision fp8' ;;
    fusion) pairs '--precision fp8 --disable-pass quantization' '--precision fp8' ;;
    loss)
      echo "$RUNS" | tr ';' '\n' >"$OUT/runs"
      for seed in $SEEDS; do
        n=0
        while read -r settings; do
          n=$((n + 1))
          crest 120 train --data "$DATA" --model gpt2-124M --batch 16 --device cuda --precision $settings --lr 6e-4 \
            --warmup 100 --steps "$STEPS" --seed "$seed" --out "$OUT/loss-$n-seed-$seed" --overwrite --quiet \
            --no-store --save-every 0 </dev/null
        done <"$OUT/runs"
      done
      late ;;
    profile)
      for p in fp8 bf16; do
        crest 120 profile --model gpt2-1558M --batch 16 --device cuda --precision $p --by kernel --top 40 \
          --store "$OUT/crest.db"
      done
      crest 120 profile --model gpt2-1558M --batch 16 --device cuda --precision fp8 --by instruction --top 60 \
        --store "$OUT/crest.db"
      crest 170 compare --model gpt2-1558M --batch 16 --device cuda --a '--precision bf16' --b '--precision fp8' \
        --by class --samples 12 --store "$OUT/crest.db" ;;
    blocks) # --fp8-recipe block: which kernels run, the GPU against the CPU's emulation and against bf16, speed
      blocks='--precision fp8 --fp8-recipe block --fp8-gradients e4m3'
      crest 60 program --model gpt2-124M --batch 8 --device cuda $blocks >"$OUT/blocks.prog"
      grep -o 'cuda\.linear_fp8[a-z_.]*\|cuda\.quantize_blocks[a-z_.]*' "$OUT/blocks.prog" | sort | uniq -c
      for run in cuda cpu; do
        crest 200 train "$OUT/text.txt" --model nano --batch 8 --device $run $blocks --steps 10 --lr 1e-3 \
          --out "$OUT/$run-blocks" --overwrite --quiet --no-store
      done
      crest 200 train "$OUT/text.txt" --model nano --batch 8 --device cuda $blocks --steps 10 --lr 1e-3 \
        --kernel linear_fp8=cuda.linear_fp8.dequantized --out "$OUT/dequantized" --overwrite --quiet --no-store
      crest 200 train "$OUT/text.txt" --model nano --batch 8 --device cuda --precision bf16 --steps 10 --lr 1e-3 \
        --out "$OUT/cuda-bf16" --overwrite --quiet --no-store
      compare "$OUT/cuda-blocks" "$OUT/cpu-blocks" 0.002
      compare "$OUT/cuda-blocks" "$OUT/dequantized" 0.002
      compare "$OUT/cuda-blocks" "$OUT/cuda-bf16" 0.01
      pairs '--precision bf16' "$blocks"
      pairs '--precision fp8' "$blocks"
      pairs "$blocks --disable-pass quantization" "$blocks" ;;
    *) echo "unknown part '$1'" >&2; exit 2 ;;
  esac
}
[ $# -gt 0 ] || set -- ops steps resume weights speed fusion profile blocks
for p; do part "$p"; done
exit $failed

#!/bin/sh
# Checks and measures SwiGLU in the matmuls beside it, on a GPU of compute capability 9.0.
#   swiglu.sh build DIR   where nvcc is: swiglu.so, and swiglu_delays.so with injected delays
#   DIR/swiglu.sh PART..  on the GPU machine: check repeat time (the kernels alone, with PyTorch), ops train step profile
# CREST and TEST_OPS name the programs that the last four need, OUT the folder for results. Each command has a time limit.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" = build ]; then
  dir=${2:?a folder to build into} && mkdir -p "$dir" && root=$here/../..
  make_so() {
    name=$1 && shift
    nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -O3 -I"$root/src/base" -I"$root/src/step" -I"$root/src/devices" \
      -DCREST_HAVE_CUDA=1 -Xcompiler -fPIC -shared -o "$dir/$name.so" "$@" "$root/scripts/gpu/swiglu.cu"
  }
  make_so swiglu
  make_so swiglu_delays -DCREST_HOPPER_DELAYS
  cp "$here/swiglu.py" "$here/swiglu.sh" "$dir/"
  exit
fi
cd "$here"
export PYTHONUNBUFFERED=1
OUT=${OUT:-.} CREST=${CREST:-crest} TEST_OPS=${TEST_OPS:-test_ops}
t() { limit=$1; shift; timeout -s KILL "$limit" "$@" 2>&1 || echo "FAILED ($?): $*"; }
python() { limit=$1; shift; t "$limit" python3 -W ignore swiglu.py "$@" | tail -60; }
step="--device cuda --precision bf16 --no-store"
llama="--model llama-1B --batch 4 --seq 4096"
for part; do
  echo "== $part"
  case $part in
    check) python 40 check ./swiglu.so ;;
    repeat) python 40 repeat ./swiglu_delays.so ;;
    time) python 40 time ./swiglu.so ;;
    ops) t 60 $TEST_OPS --gtest_brief=1 --gtest_filter='*swiglu*:*linear_dx_sum*' ;;
    train) # ten steps of a small Llama with the pass and without it
      [ -s "$OUT/text.txt" ] || seq -f 'line %g of a text for ten steps' 20000 >"$OUT/text.txt"
      for pass in swiglu none; do
        [ $pass = none ] && without="--disable-pass swiglu" || without=
        t 60 $CREST train "$OUT/text.txt" --model llama-nano --batch 8 --device cuda --precision bf16 --steps 10 --lr 1e-3 \
          --out "$OUT/run-$pass" --overwrite --quiet --no-store $without
      done
      for pass in swiglu none; do grep -o '"loss": *[0-9.]*' "$OUT/run-$pass/log.jsonl" | tr '\n' ' '; echo; done ;;
    step)
      t 60 $CREST bench $step $llama --samples 12 --no-mfu --ab '--disable-pass swiglu'
      t 40 $CREST bench $step --model cs336-small --batch 64 --samples 20 --no-mfu --ab '--disable-pass swiglu' ;;
    profile)
      t 30 $CREST profile $step $llama --top 40 --sort gap >"$OUT/profile-swiglu.txt"
      t 30 $CREST profile $step $llama --top 40 --sort gap --disable-pass swiglu >"$OUT/profile-without.txt"
      grep -E 'mlp|step|ln_2' "$OUT/profile-swiglu.txt" "$OUT/profile-without.txt" ;;
    *) echo "unknown part '$part'" >&2; exit 2 ;;
  esac
done

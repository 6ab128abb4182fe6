#!/bin/sh
# Crest and the PyTorch twin on the CPU in fp32: 20 steps of a tiny model on the same data must give the same losses.
#   CREST=build/release/crest PYTHON=python3 studies/loss_curve/check_cpu.sh TEXT...
set -eu
[ $# -ge 1 ] || { sed -n 2,3p "$0" >&2; exit 2; }
CREST=${CREST:-build/release/crest} PYTHON=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shape="--model nano --batch 4 --seq 128 --steps 20 --warmup 5 --lr 6e-4 --min-lr 6e-5 --val-every 10 --val-batches 5"
$CREST data prepare "$@" --tokenizer bpe:1024 --out "$work/data" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
"$PYTHON" "$here/init_weights.py" --model nano --vocab 1024 --seed 1 "$work/init"
$CREST train --device cpu $shape --vocab 1024 --precision fp32 --init "$work/init" --data "$work/data" --seed 1337 \
  --save-every 0 --quiet --out "$work/crest"
"$PYTHON" "$here/torch_train.py" --device cpu --data "$work/data" $shape --precision fp32 --no-compile \
  --run twin:1:1337 --out "$work"
"$PYTHON" - "$here" "$work" <<'END'
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np
from compare import read_crest, read_torch
work = Path(sys.argv[2])
crest, twin = read_crest(work / "crest"), read_torch(work / "twin.csv", "repeat")
train = np.abs(crest.losses - twin.losses).max()
val = max(abs(a[1] - b[1]) for a, b in zip(crest.val, twin.val))
print(f"largest difference over {len(twin.losses)} steps: {train:.2e}; validation: {val:.2e} (allowed: 1e-5)")
assert len(crest.losses) == len(twin.losses) and len(crest.val) == len(twin.val)
sys.exit(0 if max(train, val) <= 1e-5 else 1)
END

#!/usr/bin/env bash
# Crest and PyTorch train GPT-2 124M for 2,000 steps on the same text: studies/loss_curve/run.sh DATA OUT (on a GPU; about
# four minutes on an H200). DATA: made by corpus.py; CREST: the command to start crest (default crest).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=$1 out=$2 crest=${CREST:-crest} steps=${STEPS:-2000}
mkdir -p "$out"
for seed in 1 2; do
  python3 "$here/init_weights.py" "$out/init-$seed" --seed $seed --vocab "$(python3 -c "import json; print(json.load(open('$data/meta.json'))['vocab_size'])")"
  $crest train --device cuda --data "$data" --model gpt2-124M --batch 8 --seq 1024 --precision bf16 --steps "$steps" \
    --lr 6e-4 --min-lr 6e-5 --warmup 100 --val-every 0 --save-every 0 --init "$out/init-$seed" --seed 1337 \
    --out "$out/crest-seed-$seed" --overwrite --quiet
done
python3 "$here/torch_train.py" --data "$data" --out "$out" --steps "$steps" \
  --run repeat-1:1:1337 --run repeat-2:1:1337 --run seed-2:2:1337
python3 "$here/compare.py" --crest "$out"/crest-seed-{1,2}/log.jsonl --torch "$out"/{repeat-1,repeat-2,seed-2}.csv --out "$out"

#!/usr/bin/env bash
# Experiments of the lab that compare with PyTorch on one GPU of 140 GB, in five minutes: PyTorch's processes start and
# compile together and are measured one after another (docs/results/h200).
#   studies/lab_peers/run.sh [--crest BINARY] [--out DIR] [--python PYTHON]
# OUT gets runs.jsonl, peers.jsonl (PyTorch's lines), adamw.jsonl and beams.jsonl.
set -eu
cd "$(dirname "$0")/../.."
crest=build/release/crest out=build/lab_peers python=python3
while [ $# -gt 0 ]; do
  case "$1" in
    --crest) crest=$2 ;; --out) out=$2 ;; --python) python=$2 ;;
    *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
mkdir -p "$out/peers"
export CREST=$crest CREST_STORE=$out/lab.db CREST_PYTHON=$python CREST_PEERS=$out/peers TORCHINDUCTOR_COMPILE_THREADS=3
peers=$PWD/studies/peers
for name in torch_context.py device_memory.py; do ln -sf "$peers/$name" "$out/peers/$name"; done
for name in torch_gpt2.py torch_transient.py; do ln -sf "$peers/together.py" "$out/peers/$name"; done

lab() { "$crest" lab run "$1" --device cuda --scale full --rounds "$2" || echo "$1 failed" >&2; }
lab wave-quantization 2
lab alignment-sweep 2
lab context-memory 1
"$python" studies/lab_peers/jobs.py "$python" >"$out/jobs"
OMP_NUM_THREADS=2 "$python" "$peers/together.py" "$out/jobs" "$out/peers.jsonl" --deadline 100
export TOGETHER=$out/peers.jsonl
lab tf32-memory 2
lab memory-peak 1
lab torch-compile 1
lab precision-ladder 1
unset TOGETHER
"$python" "$peers/adamw.py" --device cuda --model gpt2-124M --vocab 50304 --rounds 2 --steps 8 >"$out/adamw.jsonl"
"$python" "$peers/beams.py" --device cuda --model gpt2-124M --vocab 50257 --beams 1,5 >"$out/beams.jsonl"
"$crest" runs export --limit 0 --overwrite -o "$out/runs.jsonl"

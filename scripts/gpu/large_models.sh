#!/bin/bash
# Steps of Qwen2.5 shapes in recipes for 80 GB (docs/results/h200/large_models.md).
#   scripts/gpu/large_models.sh CREST OUT [ROW...]
# CREST is a program with the CUDA backend, OUT a folder for a JSON file of each row; without ROWs, all of them. A row
# starts a model anew: 15 s for 7B, 35 s for 14B. Rows without --offload need up to 130 GiB: micro steps do not depend on
# --offload optimizer.
set -u
[ $# -ge 2 ] || { sed -n 2,6p "$0" >&2; exit 2; }
crest=$1 out=$2
shift 2
wanted=" $* " models=$(mktemp -d)
trap 'rm -rf "$models"' EXIT
mkdir -p "$out"
python3 - "$models" <<'END'
import json, os, sys
sizes = {"0.5B": (896, 24, 14, 2, 4864, True, 151936), "1.5B": (1536, 28, 12, 2, 8960, True, 151936),
         "3B": (2048, 36, 16, 2, 11008, True, 151936), "7B": (3584, 28, 28, 4, 18944, False, 152064),
         "7Bhalf": (3584, 14, 28, 4, 18944, False, 152064), "14B": (5120, 48, 40, 8, 13824, False, 152064)}
for name, (width, layers, heads, kv_heads, ff, tied, vocab) in sizes.items():
    os.makedirs(os.path.join(sys.argv[1], name))
    json.dump(dict(architectures=["Qwen2ForCausalLM"], model_type="qwen2", hidden_act="silu", hidden_size=width, num_hidden_layers=layers,
                   num_attention_heads=heads, num_key_value_heads=kv_heads, intermediate_size=ff, tie_word_embeddings=tied, vocab_size=vocab,
                   max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1e6), open(os.path.join(sys.argv[1], name, "config.json"), "w"))
END
row() { # NAME COMMAND MODEL FLAG..
  local name=$1 command=$2 model=$3 s=$SECONDS
  shift 3
  case "$wanted" in "  " | *" $name "*) ;; *) return ;; esac
  timeout -s KILL 300 "$crest" $command --model "$models/$model" --seq 1024 --optimizer adamw-bf16-stochastic --grad-dtype bf16 \
    --no-store --json "$@" >"$out/$name.json" 2>"$out/$name.err"
  echo "$name: exit $? after $((SECONDS - s)) s"
}
bench="bench --no-mfu --warmup 2 --samples 2" full="--loss-chunk 8192"
row 14B-bf16-offload "profile --warmup 2 --samples 1" 14B --precision bf16 --batch 4 --grad-accumulation 8 --offload optimizer $full
row 14B-fp8 "$bench" 14B --precision fp8 --batch 4 --grad-accumulation 8 --fp8-weights again $full
row 14B-fp8-old "$bench" 14B --precision fp8 --batch 8 --grad-accumulation 4 --fp8-weights again --recompute full $full
row 7B-bf16-b16 "$bench" 7B --precision bf16 --batch 16 --grad-accumulation 2 $full
row 7B-bf16-b8 "$bench" 7B --precision bf16 --batch 8 --grad-accumulation 4 --recompute none $full
row 7B-bf16-travel "$bench" 7B --precision bf16 --batch 8 --grad-accumulation 4 --loss-chunk 2048 --offload activations=7 \
  --recompute layers=pointwise:7+activation:15+none:6
row 7B-bf16-old "$bench" 7B --precision bf16 --batch 4 --grad-accumulation 8 $full
row 7B-fp8 "$bench" 7B --precision fp8 --batch 16 --grad-accumulation 2 --fp8-weights again $full
row 7B-fp8-old "$bench" 7B --precision fp8 --batch 8 --grad-accumulation 4 --fp8-weights again --loss-chunk 2048 \
  --recompute layers=full:8+selective:4+activation:16
for how in none activations activations=all; do
  row "7Bhalf-$how" "$bench --phase backward" 7Bhalf --precision bf16 --batch 8 --offload $how $full
done
row 3B-bf16 "$bench" 3B --precision bf16 --batch 16 --grad-accumulation 6 --recompute none $full
row 3B-bf16-old "$bench" 3B --precision bf16 --batch 16 --grad-accumulation 4 $full
row 3B-fp8 "$bench" 3B --precision fp8 --batch 16 --grad-accumulation 6 --fp8-weights keep $full
row 1.5B-bf16 "$bench" 1.5B --precision bf16 --batch 32 --grad-accumulation 6 --recompute none $full
row 1.5B-bf16-old "$bench" 1.5B --precision bf16 --batch 32 --grad-accumulation 4 $full
row 1.5B-fp8 "$bench" 1.5B --precision fp8 --batch 32 --grad-accumulation 6 --fp8-weights keep $full
row 0.5B-bf16 "$bench" 0.5B --precision bf16 --batch 64 --grad-accumulation 6 --recompute none $full
row 0.5B-bf16-whole "$bench" 0.5B --precision bf16 --batch 64 --grad-accumulation 8 --recompute none $full # 512 sequences
row 0.5B-bf16-old "$bench" 0.5B --precision bf16 --batch 32 --grad-accumulation 4 $full
row 0.5B-fp8 "$bench" 0.5B --precision fp8 --batch 64 --grad-accumulation 6 --fp8-weights keep $full
row 0.5B-fp8-old "$bench" 0.5B --precision fp8 --batch 32 --grad-accumulation 4 --fp8-weights keep $full

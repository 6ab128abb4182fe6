#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in one command: operations, parity with PyTorch, runs, resume, sampling, refusals,
# ranks, memory checker. Prints a line a part and writes OUT/summary.md.
#   tests/gpu.sh [--build DIR] [--out DIR] [--gpus N] [--only PART,..] [--skip PART,..]
# With --gpus 2 only what needs several GPUs: the parts nccl-*. --only nccl is all of them, too.
# DIR is a build with the CUDA backend and its tests (make all-targets on a GPU machine, or make cuda elsewhere, carried
# here: docs/develop/kernels.md). Takes about 10 minutes on an H200; `sanitizer` is most of it.
set -u
cd "$(dirname "$0")/.."
build=build/release out=build/gpu only="" skip="" gpus=1
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2 ;; --out) out=$2 ;; --only) only=$2 ;; --skip) skip=$2 ;; --gpus) gpus=$2 ;;
    *) echo "gpu.sh: unknown option $1 (--build DIR, --out DIR, --gpus N, --only PARTS, --skip PARTS)" >&2; exit 2 ;;
  esac
  shift 2
done
crest=$build/crest tests=$build/tests
[ -d "$tests" ] || tests=$build # a bundle
[ -x "$crest" ] || { echo "gpu.sh: no $crest: build first (docs/how-to/gpu.md)" >&2; exit 2; }
mkdir -p "$out/logs"
export GOMP_SPINCOUNT=4000 CREST_TEST_DEVICE=cuda
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
summary=$out/summary.md failed=0

wanted() {
  case ",$skip," in *",$1,"*) return 1 ;; esac
  if [ -z "$only" ]; then
    case "$1" in nccl-*) [ "$gpus" -gt 1 ]; return ;; *) [ "$gpus" = 1 ]; return ;; esac
  fi
  case "$1" in nccl-*) case ",$only," in *",nccl,"*) return 0 ;; esac ;; esac
  case ",$only," in *",$1,"*) return 0 ;; *) return 1 ;; esac
}
# part NAME WHAT COMMAND...: one row of the summary; the last line of the log says what was seen.
part() {
  local name=$1 what=$2 start=$SECONDS result
  shift 2
  wanted "$name" || return 0
  if "$@" >"$out/logs/$name.log" 2>&1; then result=passed; else result=FAILED failed=1; fi
  local seen
  seen=$(grep -E '^\[  (PASSED|FAILED)|tests? ran|^seen:|ERROR SUMMARY' "$out/logs/$name.log" | tail -3 | tr '\n' ' ' | tr -s ' ' | tr '|' '/')
  printf '%-12s %-7s %4d s  %s\n' "$name" "$result" $((SECONDS - start)) "$seen"
  echo "| $name | $what | $result | $((SECONDS - start)) s | $seen |" >>"$summary"
}

text() { # some English for runs: the Bible where it is installed, else this repository's own documents
  if command -v bible >/dev/null; then bible gen1:1-rev22:21 2>/dev/null; else cat README.md docs/*.md docs/*/*.md src/README.md; fi >"$work/text.txt"
  [ -s "$work/text.txt" ] || cat README.md docs/*.md docs/*/*.md >"$work/text.txt"
  "$crest" data prepare "$work/text.txt" --out "$work/data" >/dev/null
}
train() { "$crest" train --device cuda --data "$work/data" --batch 8 --seed 3 "$@"; }
hash_of() { sha256sum "$(ls -d "$1"/checkpoints/step-* | tail -1)/model.safetensors" | cut -c1-16; }

same_bits() { # five deterministic runs, one hash
  local i list=""
  for i in 1 2 3 4 5; do
    train --deterministic --steps 40 --out "$work/same$i" >/dev/null || return 1
    list="$list $(hash_of "$work/same$i")"
  done
  echo "seen: hashes$list"
  [ "$(echo $list | tr ' ' '\n' | sort -u | wc -l)" = 1 ]
}
resume() { # 40 steps at once against 20 and 20
  local p
  for p in "--precision bf16" "--precision fp32" "--precision fp16 --grad-accumulation 2"; do
    rm -rf "$work/whole" "$work/cut"
    train $p --steps 40 --out "$work/whole" >/dev/null || return 1
    train $p --steps 40 --stop-after 20 --out "$work/cut" >/dev/null || return 1
    "$crest" train --device cuda --resume "$work/cut" >/dev/null || return 1
    echo "$p: $(hash_of "$work/whole") $(hash_of "$work/cut")"
    [ "$(hash_of "$work/whole")" = "$(hash_of "$work/cut")" ] || return 1
  done
  echo "seen: equal hashes in 3 settings"
}
interchange() { # a checkpoint of the GPU evaluated on both, then continued on the CPU
  train --steps 60 --out "$work/run" >/dev/null || return 1
  local a b
  a=$("$crest" eval --run "$work/run" --data "$work/data" --device cuda --precision fp32 --batches 4 --json | grep -m1 '"loss"' | tr -dc '0-9.')
  b=$("$crest" eval --run "$work/run" --data "$work/data" --device cpu --precision fp32 --batches 4 --json | grep -m1 '"loss"' | tr -dc '0-9.')
  echo "seen: loss of the same checkpoint: GPU $a, CPU $b"
  awk -v a="$a" -v b="$b" 'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }'
}
sample() {
  local a b
  [ -d "$work/run" ] || train --steps 60 --out "$work/run" >/dev/null || return 1
  a=$("$crest" sample --run "$work/run" --device cuda --precision fp32 --prompt "In the beginning" --max-tokens 300 --temperature 0) || return 1
  b=$("$crest" sample --run "$work/run" --device cpu --precision fp32 --prompt "In the beginning" --max-tokens 300 --temperature 0) || return 1
  printf '%s' "$a" >"$work/a" && printf '%s' "$b" >"$work/b"
  local same
  same=$(cmp "$work/a" "$work/b" | sed 's/.*byte \([0-9]*\).*/\1/')
  echo "seen: greedy text of GPU and CPU equal for ${same:-all} bytes"  # then a near tie of two logits may decide
  [ -n "$a" ] && [ "${same:-999}" -ge 60 ]
}
refusals() { # exit codes of what cannot be
  local code bad=0
  expect() { local want=$1; shift; "$@" >>"$work/refusals" 2>&1; code=$?; echo "exit $code (wanted $want): $*"; [ $code = "$want" ] || bad=1; }
  expect 3 "$crest" bench --device cuda --model gpt2-1558M --batch 512
  expect 4 "$crest" bench --device cuda:99 --model nano
  expect 4 env CUDA_VISIBLE_DEVICES= "$crest" bench --device cuda --model nano
  cat "$work/refusals"
  echo "seen: exit codes 3, 4, 4"
  return $bad
}
odd() { # shapes that no vector width divides
  local args
  for args in "--vocab 50257 --pad-vocab 1 --batch 3 --seq 65" "--batch 1 --seq 1" "--batch 5 --seq 33 --attention naive" \
    "--batch 2 --seq 65 --fusion off" "--batch 3 --seq 65 --recompute full --precision fp16" "--batch 3 --seq 65 --precision tf32"; do
    "$crest" bench --device cuda --model nano --samples 2 --no-mfu $args || return 1
  done
  echo "seen: 6 odd recipes ran"
}
memory() { # held bytes equal the plan
  "$crest" bench --device cuda --model gpt2-124M --batch 4 --samples 3 --no-mfu --json >"$work/bench.json" || return 1
  local planned held
  planned=$(grep -o '"planned_bytes": *[0-9]*' "$work/bench.json" | head -1 | tr -dc 0-9)
  held=$(grep -o '"measured_peak_bytes": *[0-9]*' "$work/bench.json" | head -1 | tr -dc 0-9)
  echo "seen: planned $planned, held $held bytes; $(grep -o '"device_peak_bytes": *[0-9]*' "$work/bench.json" | head -1)"
  [ -n "$planned" ] && [ "$planned" = "$held" ]
}
profile() { # CUPTI's records of the replayed graph: with what recording adds taken off the gaps, they
  # explain the step that is not profiled, to 2%
  local args
  for args in "--model gpt2-124M --batch 4" "--model gpt2-124M --batch 4 --attention naive --fusion off" "--model nano --batch 2 --grad-accumulation 2"; do
    "$crest" profile --device cuda $args --no-store --trace "$work/trace.json" --snapshot "$work/memory.pickle" --json \
      >"$work/profile.json" || return 1
    python3 - "$work/profile.json" "$args" <<'END' || return 1
import json, statistics, sys
p = json.load(open(sys.argv[1]))
p = p.get("profile", p)
step, profiled = statistics.median(p["step_ms"]), statistics.median(p["profiled_ms"])
unmapped = sum(k["ms"] for k in p["kernels"] if k["instr"] < 0)
print(f"{sys.argv[2]}: {p['method']}, step {step:.3f} ms, profiled {profiled:.3f}, span {p['span_ms']:.3f} = busy {p['busy_ms']:.3f} + "
      f"idle {p['idle_ms']:.3f} + recording {p['recording_ms']:.3f}, outside of instructions {unmapped:.3f} ms, {p['launches']} launches")
assert p["method"] == "cupti" and abs(p["busy_ms"] + p["idle_ms"] + p["recording_ms"] - p["span_ms"]) < 1e-3 * p["span_ms"]
assert abs((p["busy_ms"] + p["idle_ms"]) / step - 1) < 0.02, "the records do not explain the step"
assert p["recording_ms"] / p["launches"] < 3e-3, "recording adds more than 3 us a launch"
END
  done
  echo "seen: $(wc -c <"$work/trace.json") bytes of trace, $(wc -c <"$work/memory.pickle") of memory snapshot"
}
agree() { # NAME A B: the losses of ten steps in two logs, relative difference
  python3 - "$@" <<'END'
import json, sys
def losses(file):
    return {r["step"]: r["loss"] for r in map(json.loads, open(file)) if "loss" in r}
a, b = losses(sys.argv[2]), losses(sys.argv[3])
worst = max(abs(a[s] / b[s] - 1) for s in b)
print(f"{sys.argv[1]}: {len(a)} losses, from {b[min(b)]:.4f} to {b[max(b)]:.4f}, worst relative difference {worst:.1e}")
assert len(a) == len(b) == 10 and worst < 1e-3
END
}
optimizers() { # each on the GPU against the CPU, from the same weights over the same text: losses of ten steps in fp32, in which
  # rounding has not grown yet (later steps of a small model at a high learning rate are chaotic)
  local o d setting="--model nano --seq 128 --lr 3e-4 --precision fp32 --steps 10"
  for o in adamw adamw-unfused adamw-8bit sgd lion adafactor adafactor-momentum muon; do
    for d in cuda cpu; do "$crest" train --data "$work/data" --batch 8 --seed 3 $setting --device $d --optimizer $o --out "$work/$d-$o" >/dev/null || return 1; done
    agree "$o" "$work/cuda-$o/log.jsonl" "$work/cpu-$o/log.jsonl" || return 1
  done
  for o in adamw-bf16 adamw-bf16-kahan adamw-bf16-stochastic; do
    train $setting --precision bf16 --optimizer $o --out "$work/gpu-$o" >/dev/null || return 1
  done
  echo "seen: 7 optimizers agree with the CPU for ten steps, 3 with bf16 state ran"
}
ranks() { # two and four ranks that share the GPU against one with the whole batch: losses of ten steps in fp32
  local r how setting="--model nano --seq 128 --lr 3e-4 --precision fp32 --steps 10 --seed 3 --device cuda"
  for r in 1 2 4; do
    "$crest" train --data "$work/data" $setting --batch $((8 / r)) --data-parallel $r --out "$work/ranks$r" >/dev/null || return 1
  done
  for r in 2 4; do
    agree "$r ranks" "$work/ranks$r/log.jsonl" "$work/ranks1/log.jsonl" || return 1
  done
  for how in "--reduce each" "--reduce bucket --bucket 100kB" "--shard optimizer" "--shard weights --bucket 100kB"; do
    rm -rf "$work/ranks2"
    "$crest" train --data "$work/data" $setting --batch 4 --data-parallel 2 $how --out "$work/ranks2" >/dev/null || return 1
    agree "2 ranks, $how" "$work/ranks2/log.jsonl" "$work/ranks1/log.jsonl" || return 1
  done
  "$crest" bench --device cuda --model nano --data-parallel 2 --samples 3 --no-store || return 1
  t 60 "$crest" profile --device cuda --model nano --data-parallel 2 --samples 2 --no-store >/dev/null || return 1
  echo "seen: 2 and 4 ranks on one GPU agree with one, and 2 in 4 more ways"
}
offload() { # --offload: the same bits, the planned memory, and what the transfers take
  local p
  train --deterministic --precision bf16 --steps 10 --out "$work/device" --overwrite >/dev/null || return 1
  for p in activations activations=all optimizer+activations=2; do
    train --deterministic --precision bf16 --steps 10 --out "$work/host" --overwrite --offload "$p" >/dev/null || return 1
    [ "$(tensors_of "$work/device")" = "$(tensors_of "$work/host")" ] || { echo "seen: --offload $p: other bits"; return 1; }
  done
  for p in "--precision fp32" "--precision bf16 --optimizer adamw-8bit" "--precision bf16 --optimizer muon" "--precision bf16 --grad-accumulation 2"; do
    train --deterministic $p --steps 10 --out "$work/device" --overwrite >/dev/null || return 1
    train --deterministic $p --steps 10 --out "$work/host" --overwrite --offload optimizer --offload-piece 4MiB >/dev/null || return 1
    [ "$(tensors_of "$work/device")" = "$(tensors_of "$work/host")" ] || { echo "seen: $p: other bits"; return 1; }
  done
  for p in none optimizer activations activations=all; do
    t 120 "$crest" bench --device cuda --model gpt2-124M --batch 4 --precision bf16 --samples 10 --offload $p --no-store || return 1
  done
  t 120 "$crest" profile --device cuda --model gpt2-124M --batch 4 --precision bf16 --samples 5 --offload optimizer --by kernel --no-store >"$work/offload.out" || return 1
  grep -E "^limits|copy_(in|out)" "$work/offload.out"
  echo "seen: the same bits in 7 settings; $(grep -o 'host_link [0-9.]* .B/s' "$work/offload.out")"
}
comm() { # NCCL over all GPUs of this machine, values checked
  local n
  n=$(nvidia-smi -L | grep -c '^GPU')
  "$crest" comm all --backend nccl --ranks "$n" --sizes 1MB..64MB:x4 --no-store || return 1
  echo "seen: four collectives over $n GPU(s)"
}
# Ranks that are processes with a GPU each. t SECONDS COMMAND..: a hang costs little.
t() { timeout -s KILL "$@"; }
ranks_train() { # OUT RANKS FLAG..: ten steps of eight sequences, in fp32. RANKS may be a mesh, such as tensor=2
  local to=$1 n=${2##*=} ranks="--ranks $2"
  case $2 in *=*) ranks="--mesh $2" ;; esac
  shift 2
  rm -rf "$work/$to"
  t 60 "$crest" train --device cuda --data "$work/data" --model nano --seq 128 --lr 3e-4 --precision fp32 --steps 10 --seed 3 --no-store \
    --batch $((8 / n)) $ranks --watchdog 5 --out "$work/$to" "$@" >"$work/$to.out" 2>&1 || { cat "$work/$to.out"; return 1; }
}
nccl_loss() { # two GPUs against one with the whole batch: losses of ten steps
  local how
  ranks_train one 1 || return 1
  for how in "--reduce flat" "--reduce each" "--reduce overlap" "--reduce bucket --bucket 100kB" "--shard optimizer" \
 "--shard optimizer --reduce bucket --bucket 100kB" \
    "--shard optimizer --reduce bucket --bucket 100kB --gather forward" "--shard gradients --bucket 100kB" "--shard weights --bucket 100kB" \
    "--reduce bucket --bucket 1MB --comm-dtype bf16" "--reduce overlap --grad-accumulation 2 --batch 2" "--reduce bucket --graphs off"; do
    ranks_train two 2 $how || { echo "failed: $how"; return 1; }
    agree "$how" "$work/two/log.jsonl" "$work/one/log.jsonl" || return 1
  done
  echo "seen: 12 ways to sum on two GPUs agree with one GPU for ten steps"
}
tensors_of() { (cd "$1/checkpoints/step-000010" && sha256sum model.safetensors optimizer.safetensors | cut -c1-16 | tr '\n' ' '); }
nccl_mesh() { # two GPUs as ranks along tensor, context and pipeline against one: losses of ten steps
  local how micro n=0
  for micro in 1 4; do
    ranks_train one 1 --batch $((8 / micro)) --grad-accumulation $micro || return 1
    for how in "tensor=2" "tensor=2 --recompute full" "tensor=2 --tensor-overlap off" "context=2" \
      "context=2 --recompute full --shard weights" "pipeline=2" "pipeline=2 --schedule-pipeline interleaved:2" \
      "pipeline=2 --schedule-pipeline zero-bubble" "pipeline=2 --stages 1,3 --recompute full" "pipeline=2 --graphs off"; do
      case "$micro $how" in "1 pipeline=2 --sch"*) continue ;; esac # interleaved stages need two micro batches
      ranks_train two $how --batch $((8 / micro)) --grad-accumulation $micro || { echo "failed: $how"; return 1; }
      agree "--mesh $how, $micro micro batches" "$work/two/log.jsonl" "$work/one/log.jsonl" || return 1
      n=$((n + 1))
    done
  done
  echo "seen: $n recipes of two GPUs agree with one GPU for ten steps"
}
nccl_groups() { # communicators of a part of the ranks
  "$tests/test_comm" --gtest_filter='MeshGroups.Gpus*' --gtest_brief=1
}
nccl_bits() { # --deterministic: twice the same, and the same with shares of the optimizer, bit for bit
  local p how same list
  for p in "--precision fp32" "--precision bf16 --optimizer adamw" "--precision bf16 --optimizer adamw-8bit --grad-accumulation 2 --batch 2"; do
    list=""
    for how in "--reduce flat" "--reduce flat" "--reduce bucket --bucket 100kB" "--shard optimizer" \
      "--shard optimizer --offload optimizer --offload-piece 1MiB"; do
      ranks_train bits 2 --deterministic $p $how || return 1
      list="$list$(tensors_of "$work/bits")
"
      echo "$p $how: $(tensors_of "$work/bits")"
    done
    same=$(printf '%s' "$list" | sort -u | wc -l)
    [ "$same" = 1 ] || { echo "seen: $p: $same different results"; return 1; }
  done
  echo "seen: the same bits twice, in buckets, with shares and with state in host memory, in 3 settings"
}
nccl_copies() { # shards by copy engines and by NCCL: the same bits
  local how nccl="--kernel all_gather=*.communicator --kernel reduce_scatter=*.communicator"
  for how in "--shard optimizer --reduce bucket --bucket 100kB" "--shard optimizer --reduce bucket --bucket 100kB --gather forward" \
    "--shard optimizer --reduce bucket --bucket 100kB --gather forward --grad-accumulation 2 --batch 2" \
    "--shard gradients --bucket 100kB --grad-accumulation 2 --batch 2" "--shard weights --bucket 100kB" \
    "--shard weights --bucket 100kB --grad-accumulation 2 --batch 2 --graphs off"; do
    ranks_train copies 2 --precision bf16 --deterministic $how || return 1
    ranks_train nccl 2 --precision bf16 --deterministic $how $nccl || return 1
    echo "$how: $(tensors_of "$work/copies") $(tensors_of "$work/nccl")"
    [ "$(tensors_of "$work/copies")" = "$(tensors_of "$work/nccl")" ] || { echo "seen: $how: other bits"; return 1; }
  done
  echo "seen: copy engines and NCCL give the same bits in 6 settings"
}
nccl_resume() { # 2 ranks, 1 rank, 2 ranks against one rank all the time
  local shard run="$work/cut"
  ranks_train one 1 || return 1
  for shard in none optimizer; do
    ranks_train cut 2 --shard $shard --stop-after 4 || return 1
    t 60 "$crest" train --device cuda --resume "$run" --ranks 1 --batch 8 --grad-accumulation 1 --shard none --stop-after 3 >"$work/resume.out" 2>&1 || { cat "$work/resume.out"; return 1; }
    t 60 "$crest" train --device cuda --resume "$run" --ranks 2 --batch 4 --shard $shard >"$work/resume.out" 2>&1 || { cat "$work/resume.out"; return 1; }
    agree "2 -> 1 -> 2 ranks, --shard $shard" "$run/log.jsonl" "$work/one/log.jsonl" || return 1
  done
  echo "seen: 2 -> 1 -> 2 ranks continue as one rank does, with and without shares"
}
nccl_lost() { # KILLS, STOPS, FREEZES: see scripts/gpu/lost-ranks.py
  t 400 python3 scripts/gpu/lost-ranks.py "$crest" "$work/data" --kills "${KILLS:-10}" --stops "${STOPS:-3}" \
    --freezes "${FREEZES:-0}" || return 1 # each takes five minutes
  # More streams that wait for flags of other ranks.
  t 200 python3 scripts/gpu/lost-ranks.py "$crest" "$work/data" --kills 4 --stops 1 --model llama-nano --mesh tensor=2 --tensor-overlap rows
}
by_hand() { # CODE OUT "NAME=VALUE.. of rank 0" "of rank 1" FLAG..: two ranks that another program starts; CODE: of rank 0
  local want=$1 to=$2 first=$3 second=$4 port=$((20000 + RANDOM % 20000)) codes
  shift 4
  rm -rf "$work/$to"
  local common="MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"
  set -- "$crest" train --device cuda --data "$work/data" --model nano --seq 128 --lr 3e-4 --precision fp32 --steps 10 --seed 3 --no-store --batch 4 \
    --watchdog 5 --out "$work/$to" "$@"
  t 60 env $common $second "$@" >"$work/$to.1" 2>&1 &
  t 60 env $common $first "$@" >"$work/$to.0" 2>&1
  codes=$?
  wait $!
  [ $codes = "$want" ] || { echo "exit $codes (wanted $want)"; cat "$work/$to.0" "$work/$to.1"; return 1; }
}
nccl_start() { # torchrun, mpirun's variables, tasks that see one GPU each; and what is refused
  local code bad=0 torch="RANK=%s LOCAL_RANK=%s WORLD_SIZE=2 LOCAL_WORLD_SIZE=2"
  local mpi="OMPI_COMM_WORLD_RANK=%s OMPI_COMM_WORLD_LOCAL_RANK=%s OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2"
  ranks_train one 1 || return 1
  by_hand 0 torch "$(printf "$torch" 0 0)" "$(printf "$torch" 1 1)" || return 1
  agree "variables of torchrun" "$work/torch/log.jsonl" "$work/one/log.jsonl" || return 1
  by_hand 0 mpi "$(printf "$mpi" 0 0) CUDA_VISIBLE_DEVICES=0" "$(printf "$mpi" 1 1) CUDA_VISIBLE_DEVICES=1" || return 1
  agree "variables of mpirun, one GPU visible to each" "$work/mpi/log.jsonl" "$work/one/log.jsonl" || return 1
  if command -v torchrun >/dev/null; then
    rm -rf "$work/torchrun"
    t 90 torchrun --no-python --nproc-per-node 2 "$crest" train --device cuda --data "$work/data" --model nano --seq 128 --lr 3e-4 --precision fp32 \
      --steps 10 --seed 3 --no-store --batch 4 --out "$work/torchrun" || return 1
    agree torchrun "$work/torchrun/log.jsonl" "$work/one/log.jsonl" || return 1
  fi
  by_hand 4 same "$(printf "$mpi" 0 0) CUDA_VISIBLE_DEVICES=0" "$(printf "$mpi" 1 1) CUDA_VISIBLE_DEVICES=0" || bad=1
  grep -h "error" "$work/same.0"
  refuse() { local want=$1; shift; t 60 "$@" >"$work/refused" 2>&1; code=$?; cat "$work/refused"; [ $code = "$want" ] || { echo "exit $code (wanted $want): $*"; bad=1; }; }
  refuse 2 "$crest" bench --device cuda:1 --ranks 2 --model nano --samples 2 --no-store
  refuse 4 "$crest" bench --device cuda --ranks 9 --model nano --samples 2 --no-store
  [ $bad = 0 ] && echo "seen: torchrun's and mpirun's variables, one GPU a task; the same GPU twice, cuda:1 and too many ranks are refused"
}
nccl_bench() { # the ladder, and the memory that the plan names
  local how
  for how in "--reduce each" "--reduce flat" "--reduce overlap" "--reduce bucket --bucket 128MiB" "--shard optimizer" "--shard optimizer --reduce bucket --bucket 128MiB"; do
    t 90 "$crest" bench --device cuda --model gpt2-124M --batch 16 --ranks 2 $how --samples 20 --no-mfu --no-store --json >"$work/bench.json" || return 1
    python3 - "$how" "$work/bench.json" <<'END' || return 1
import json, sys
r = json.load(open(sys.argv[2]))
r = r[0] if isinstance(r, list) else r
m = r["memory"]
planned, held = m["planned_bytes"] / 2**20, m["measured_peak_bytes"] / 2**20
print(f"{sys.argv[1]}: {r['step_ms_median']:.3f} ms, planned {planned:.0f} MiB, held {held:.0f} MiB, of NCCL planned "
      f"{m['by_category'].get('library_context', 0) / 2**20:.0f} MiB: {m}")
assert abs(held - planned) < 200, "NCCL holds much more or less than planned"
END
  done
  echo "seen: $(grep -o '^--[^:]*: [0-9.]* ms' "$out/logs/nccl-bench.log" | tr '\n' ';')"
}
nccl_profile() { # the times of each rank explain its step, to 2%; where the second one costs time
  local ranks
  for ranks in 1 2; do
    t 60 "$crest" profile --device cuda --model gpt2-124M --batch 16 --ranks $ranks --store "$work/p.db" --name "ranks$ranks" --json >"$work/profile$ranks.json" || return 1
  done
  t 20 "$crest" compare ranks1 ranks2 --store "$work/p.db" || return 1
  python3 - "$work/profile2.json" <<'END' || return 1
import json, sys
for r in json.load(open(sys.argv[1]))["ranks"]:
    sum_ms = r["compute_ms"] + r["exposed_ms"] + sum(r["waiting_ms"]) + r["host_ms"] + r["idle_ms"]
    print(f"rank {r['rank']}: {sum_ms / r['step_ms']:.1%} of a step of {r['step_ms']:.3f} ms: {r}")
    assert abs(sum_ms / r["step_ms"] - 1) < 0.02
END
  echo "seen: the times of both ranks explain their steps"
}
lab() { # every experiment at the smallest scale
  "$crest" lab run --all --device cuda --scale tiny --budget 4m --store "$work/lab.db" || return 1
  "$crest" report --lab --store "$work/lab.db" -o "$out/lab.html" -o "$out/lab.md" --no-figures || return 1
  echo "seen: $("$crest" report --lab --store "$work/lab.db" --json | grep -m1 -E '[0-9]+ claims' | tr -d '"')"
}
# check TOOL FILTER: test_ops under compute-sanitizer, its cases divided over processes, since checks on the CPU and the
# instrumentation take most of the time.
check() {
  local n i pids=() bad=0
  n=$(($(nproc) / 2)); n=$((n < 1 ? 1 : n > 8 ? 8 : n))
  for ((i = 0; i < n; i++)); do
    OMP_NUM_THREADS=2 GTEST_TOTAL_SHARDS=$n GTEST_SHARD_INDEX=$i compute-sanitizer --tool "$1" --error-exitcode 9 \
      "$tests/test_ops" --gtest_filter="$2" --gtest_brief=1 >"$out/logs/$1.$i.log" 2>&1 &
    pids+=($!)
  done
  for i in "${!pids[@]}"; do wait "${pids[$i]}" || { bad=1; cat "$out/logs/$1.$i.log"; }; done
  echo "seen: $1 $(sed -n 's/^\[=*\] \([0-9]*\) tests\? from .* ran.*/\1/p' "$out/logs/$1".*.log | awk '{n += $1} END {print n + 0}') tests ran," \
    "$(sed -n 's/.*\(ERROR\|RACECHECK\) SUMMARY: \([0-9]*\) .*/\2/p' "$out/logs/$1".*.log | awk '{n += $1} END {print NR " processes, " n + 0 " errors"}')"
  return $bad
}
sanitizer() { # memcheck over every case; racecheck over some cases of each of our kernels. Not over those that order their shared
  # memory by means that racecheck does not follow: cuDNN's (it reports them, whatever calls them), and the gradient of
  # attention_sm90 with heads of 128, where a named barrier of a warpgroup and then an mbarrier stand between the last
  # read of a work item and the next write. scripts/gpu/attention_sm90.sh repeats that one a thousand times with delays.
  command -v compute-sanitizer >/dev/null || { echo "seen: no compute-sanitizer"; return 1; }
  check memcheck "${SANITIZE:-*cuda*}" || return 1
  check racecheck "${SANITIZE_RACES:-Ops/Check*cuda*batch3*:Ops/Check*cuda*odd*:Ops/Check*cuda*rows_61*:Ops/Check*cuda*padded*:Ops/Check*cuda*grouped*:Ops/Check*cuda*width_128*:Ops/Check*cuda_bias_grad_many*-*cudnn*:*cublaslt*:*generic*:*attention_grad_sm90_d128*}" || return 1
}

{
  echo "# tests/gpu.sh"
  echo
  echo "$(date -u +%Y-%m-%dT%H:%MZ), $("$crest" --version | head -1)"
  echo
  echo '```'
  "$crest" devices
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv 2>/dev/null
  echo '```'
  echo
  echo '| part | what | result | time | seen |'
  echo '|---|---|---|---|---|'
} >"$summary"
text || { echo "gpu.sh: preparing text failed" >&2; exit 1; }
part ops "every operation against the f64 reference, twice, and gradients" "$tests/test_ops" --gtest_filter='*cuda*' --gtest_brief=1
part backend "libraries, algorithm cache, fused bodies" "$tests/test_backend" --gtest_brief=1
part parity "logits, gradients and ten steps against PyTorch's fixtures" "$tests/test_parity" --gtest_brief=1
part run "executor, sampling, evaluation, weights" "$tests/test_run" --gtest_brief=1
part train "levers, faults, bitwise resume" "$tests/test_train"
part same_bits "--deterministic five times" same_bits
part resume "20 + 20 steps equal 40" resume
part interchange "checkpoints work on GPU and CPU" interchange
part sample "greedy sampling with the KV cache" sample
part refusals "what cannot be is refused" refusals
part odd "odd shapes" odd
part memory "arenas equal the plan" memory
part profile "crest profile by CUPTI" profile
part optimizers "every optimizer against the CPU" optimizers
part ranks "ranks that share the GPU against one" ranks
part offload "state in host memory: bits, memory, transfers" offload
part comm "collectives by NCCL" comm
part nccl-loss "two GPUs against one, every way to sum" nccl_loss
part nccl-mesh "two GPUs as tensor ranks and pipeline stages against one" nccl_mesh
part nccl-groups "two GPUs exchange along the axes of a mesh" nccl_groups
part nccl-bits "--deterministic on two GPUs: the same bits, with and without shares" nccl_bits
part nccl-copies "shards by copy engines: the bits of NCCL" nccl_copies
part nccl-resume "2 -> 1 -> 2 ranks" nccl_resume
part nccl-start "torchrun, mpirun, one GPU a task, refusals" nccl_start
part nccl-lost "ranks that are killed or stopped" nccl_lost
part nccl-bench "crest bench on two GPUs" nccl_bench
part nccl-profile "crest profile of two processes" nccl_profile
part lab "every experiment at scale tiny" lab
part sanitizer "compute-sanitizer: memcheck and racecheck" sanitizer
cat "$summary"
exit $failed

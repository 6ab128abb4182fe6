#!/usr/bin/env bash
# Trains on two machines that are none: network namespaces of this one, joined by a slow link.
#   scripts/two-hosts.sh [RANKS_PER_HOST=1] [RATE=200mbit] [DELAY=1ms]
# Shows that ranks without a secret are refused, what accumulation saves on such a link, that every rank ends with a
# message when the link is cut, and that the run then continues. It needs root, ip and tc (Debian: iproute2) and a
# kernel with veth and netem (or tbf, without the delay); where one of them is missing it says so and ends with code 0.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
crest=${CREST:-$root/build/release/crest}
each=${1:-1} rate=${2:-200mbit} delay=${3:-1ms}
[[ $each =~ ^[1-8]$ ]] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -x "$crest" ] || { echo "two-hosts: $crest is missing; build it first: ninja -C build/release crest" >&2; exit 1; }

skip() { echo "two-hosts: skipped: $1" >&2; exit 0; }
[ "$(id -u)" = 0 ] || skip "it needs root"
for tool in ip tc nsenter; do command -v $tool >/dev/null || skip "$tool is missing"; done

out=$(mktemp -d) a=crest-a-$$ b=crest-b-$$
clean() {
  for pid in $(jobs -p); do kill -KILL "$pid" 2>/dev/null || true; done
  wait 2>/dev/null || true
  ip netns del $a 2>/dev/null || true
  ip netns del $b 2>/dev/null || true
  rm -rf "$out"
}
trap clean EXIT
ip netns add $a 2>"$out/why" && ip netns add $b 2>"$out/why" || skip "no network namespace: $(cat "$out/why")"
on() { nsenter --net=/run/netns/"$1" "${@:2}"; }
ip link add veth0 netns $a type veth peer name veth0 netns $b 2>"$out/why" || skip "no veth: $(cat "$out/why")"
on $a ip address add 10.77.0.1/24 dev veth0
on $b ip address add 10.77.0.2/24 dev veth0
for host in $a $b; do
  on $host ip link set lo up && on $host ip link set veth0 up
  if on $host tc qdisc add dev veth0 root netem rate "$rate" delay "$delay" 2>"$out/why"; then
    link="$rate and $delay each way"
  else # a kernel without netem: no delay
    link="$rate each way"
    on $host tc qdisc add dev veth0 root tbf rate "$rate" burst 64kb latency 200ms 2>>"$out/why" ||
      skip "neither netem nor tbf: $(cat "$out/why")"
  fi
done

cd "$out"
export CREST_STORE=$out/runs.db CREST_CACHE=$out/cache OMP_WAIT_POLICY=passive
"$root/scripts/demo-corpus.sh" text.txt
"$crest" data prepare text.txt --tokenizer bytes --out data 2>/dev/null >/dev/null
size=$((2 * each)) port=29500
secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')

# launch NAME SECRET ARGUMENT...: crest train as all ranks; NAME.RANK.out, .err and .code get what they say.
launch() {
  local name=$1 secret=$2 rank host
  port=$((port + 1)) pids=()
  for ((rank = 0; rank < size; ++rank)); do
    host=$a && ((rank < each)) || host=$b
    (
      code=0
      on $host env RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$((rank % each)) LOCAL_WORLD_SIZE=$each MASTER_ADDR=10.77.0.1 \
        MASTER_PORT=$port ${secret:+CREST_SECRET=$secret} "$crest" train --threads 1 --json "${@:3}" \
        >"$name.$rank.out" 2>"$name.$rank.err" || code=$?
      echo $code >"$name.$rank.code"
    ) &
    pids+=($!)
  done
}
# finish NAME CODE: waits for all ranks; CODE is what each must end with ("!": anything but 0).
finish() {
  local rank code
  wait "${pids[@]}"
  for ((rank = 0; rank < size; ++rank)); do
    code=$(cat "$1.$rank.code")
    if [ "$2" = '!' ] && [ "$code" != 0 ]; then continue; fi
    [ "$code" = "$2" ] || { echo "two-hosts: $1: rank $rank ended with $code" >&2; cat "$1".*.err >&2; exit 1; }
  done
}
recipe=(--data data --model nano --batch 2 --seq 64 --precision fp32 --schedule constant --val-every 0)

launch secretless '' "${recipe[@]}" --out secretless --steps 1
finish secretless 2
grep -q 'no secret is set' secretless.1.err
echo "without a secret: refused ($(grep -o 'export CREST_SECRET=[^)]*)' secretless.1.err | head -1))"

echo "$size ranks on 2 hosts, $link, nano, micro batch of 2 x 64 tokens on each rank:"
for steps in 1 8; do
  launch accumulate$steps "$secret" "${recipe[@]}" --out accumulate$steps --grad-accumulation $steps \
    --steps $((steps == 1 ? 16 : 8)) --save-every 0 --quiet
  finish accumulate$steps 0
  ms=$(sed -n 's/.*"step_ms_median":\([0-9.]*\).*/\1/p' accumulate$steps.0.out)
  echo "  $steps micro step$( ((steps > 1)) && echo s || true): $ms ms a step, $(awk "BEGIN { printf \"%.1f\", $ms / $steps }") ms a micro step"
done

launch cut "$secret" "${recipe[@]}" --out cut --steps 1000000 --save-every 5 --watchdog 5
for ((i = 0; i < 600; ++i)); do
  [ "$(cat cut/log.jsonl 2>/dev/null | wc -l)" -ge 12 ] && break
  sleep 0.1
done
on $b ip link set veth0 down
start=$SECONDS
finish cut '!'
for ((rank = 0; rank < size; ++rank)); do
  grep -q 'crest: error: .*rank [0-9]* \(has not answered\|is gone\)' "cut.$rank.err" ||
    { echo "two-hosts: rank $rank does not say why it ended" >&2; cat "cut.$rank.err" >&2; exit 1; }
done
echo "link cut after step $(grep -c step cut/log.jsonl): all ranks ended within $((SECONDS - start)) s (--watchdog 5):"
for ((rank = 0; rank < size; ++rank)); do echo "  rank $rank: $(sed -n 's/^crest: error: //p' "cut.$rank.err")"; done

on $b ip link set veth0 up
launch resume "$secret" --resume cut --stop-after 5
finish resume 0
echo "link restored: $(grep -o '^stopped; saved at step [0-9]*' resume.0.err | head -1) after --resume"

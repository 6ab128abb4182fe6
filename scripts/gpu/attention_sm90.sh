#!/bin/sh
# Builds and measures the attention kernels for compute capability 9.0 by themselves.
#   attention_sm90.sh build DIR   where nvcc is: sm90.so, and sm90_delays.so with injected delays
#   DIR/attention_sm90.sh PART..  on the GPU machine: info check time row repeat packed dropout chunks ncu memcheck
# Each part has a time limit of its own, so that a kernel that hangs costs no more than that.
set -e
here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" = build ]; then
  dir=${2:?a folder to build into} && mkdir -p "$dir" && root=$here/../..
  make_so() {
    name=$1 && shift
    nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -O3 -I"$root/src/base" -I"$root/src/step" -I"$root/src/devices" \
      -DCREST_HAVE_CUDA=1 -Xcompiler -fPIC -shared -o "$dir/$name.so" "$@" "$root/scripts/gpu/attention_sm90.cu"
  }
  make_so sm90 -DWITH_DROPOUT
  make_so sm90_delays -DCREST_HOPPER_DELAYS
  cp "$here/attention_sm90.py" "$here/attention_sm90.sh" "$dir/"
  exit
fi
cd "$here"
export PYTHONUNBUFFERED=1
t() { limit=$1; shift; timeout "$limit" python3 -W ignore attention_sm90.py "$@" 2>&1 | tail -60 || true; }
for part; do
  echo "== $part"
  case $part in
    info) nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader ;;
    check) t 60 check ./sm90.so ;;
    time) t 60 time ./sm90.so ;;
    row) t 40 row ./sm90.so ;;
    repeat) t 60 repeat ./sm90_delays.so ;;
    packed) t 30 packed ./sm90.so ;;
    dropout) t 20 dropout ./sm90.so ;;
    chunks) t 40 chunks ./sm90.so ;;
    ncu)
      for k in grad_kernel forward_kernel; do
        timeout 90 ncu --clock-control none -k regex:$k -s 1 -c 1 --set full \
          python3 attention_sm90.py one ./sm90.so > "${OUT:-.}/ncu_$k.txt" 2>&1 || true
        grep -E "Duration|SM Frequency|Throughput|Issued Warp|No Eligible|Stall" "${OUT:-.}/ncu_$k.txt" | head -30
      done ;;
    memcheck)
      timeout 150 compute-sanitizer --tool memcheck python3 -W ignore attention_sm90.py small ./sm90.so 2>&1 |
        tail -15 || true ;;
    *) echo "unknown part '$part'" >&2; exit 2 ;;
  esac
done

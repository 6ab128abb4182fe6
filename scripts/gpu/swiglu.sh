#!/bin/sh
# Builds and measures the matmuls of SwiGLU for compute capability 9.0 by themselves.
#   swiglu.sh build DIR    where nvcc is: swiglu.so, and swiglu_delays.so with injected delays
#   DIR/swiglu.sh PART..   on the GPU machine: check repeat time
# Each part has a time limit of its own.
set -e
here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" = build ]; then
  dir=${2:?a folder to build into} && mkdir -p "$dir" && root=$here/../..
  make_so() {
    name=$1 && shift
    nvcc -std=c++20 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -O3 -I"$root/src" \
      -DCREST_HAVE_CUDA=1 -Xcompiler -fPIC -shared -o "$dir/$name.so" "$@" "$root/scripts/gpu/swiglu.cu"
  }
  make_so swiglu
  make_so swiglu_delays -DCREST_HOPPER_DELAYS
  cp "$here/swiglu.py" "$here/swiglu.sh" "$dir/"
  exit
fi
cd "$here"
export PYTHONUNBUFFERED=1
t() { limit=$1; shift; timeout -s KILL "$limit" python3 -W ignore swiglu.py "$@" 2>&1 | tail -60 || true; }
for part; do
  echo "== $part"
  case $part in
    check) t 40 check ./swiglu.so ;;
    repeat) t 40 repeat ./swiglu_delays.so ;;
    time) t 40 time ./swiglu.so ;;
    *) echo "unknown part '$part'" >&2; exit 2 ;;
  esac
done

#!/bin/sh
# Builds and measures the attention kernels on f32 and of wide heads by themselves.
#   flash.sh build DIR [SOURCE]  where nvcc is: flash.so, and before.so from another checkout
#   DIR/flash.sh PART..          on the GPU machine: info check f32 wide memcheck
# Each part has a time limit of its own.
set -e
here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" = build ]; then
  dir=${2:?a folder to build into} && mkdir -p "$dir" && root=$(cd "$here/../.." && pwd)
  make_so() {
    name=$1 && from=$2 && define=$3 && objects=
    all="-std=c++20 -I$from/src/base -I$from/src/step -I$from/src/devices -DCREST_HAVE_CUDA=1 -DCREST_EMULATION=0 $define"
    for f in "$from"/src/devices/backend/cuda/flash_f*.cu "$from"/src/devices/backend/cuda/flash_wide*.cu \
      "$from"/src/devices/backend/cuda/attention.cu "$from"/src/devices/backend/cuda/flash.cpp "$from"/src/devices/backend/cuda/kernel.cpp \
      "$from"/src/base/core/error.cpp "$from"/src/base/core/dtype.cpp "$from"/src/base/core/shape.cpp "$from"/src/step/program/attrs.cpp \
      "$here/flash.cu"; do
      object=$dir/$name.$(basename "$f").o
      case $f in
        *'*'* | */flash_forward.cu) continue ;;
        *.cu) compile="nvcc -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -O3 -Xcompiler -fPIC" ;;
        *) compile="c++ -O1 -fPIC -I$(dirname "$(command -v nvcc)")/../include" ;;
      esac
      $compile $all -c -o "$object" "$f"
      objects="$objects $object"
    done
    nvcc -shared -Xlinker -s -Xlinker -rpath='$ORIGIN' -o "$dir/$name.so" $objects -lfmt && rm $objects
  }
  make_so flash "$root" ""
  [ -z "$3" ] || make_so before "$3" -DBEFORE
  cp "$here/flash.py" "$here/flash.sh" "$dir/"
  exit
fi
cd "$here"
export PYTHONUNBUFFERED=1
before=; [ ! -e before.so ] || before=./before.so
t() { limit=$1; shift; timeout "$limit" python3 -W ignore flash.py "$@" 2>&1 | tail -80 || true; }
for part; do
  echo "== $part"
  case $part in
    info) nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader || true ;;
    check) t 35 check ./flash.so ;;
    f32) t 27 f32 ./flash.so $before ;;
    wide) t 27 wide ./flash.so $before ;;
    memcheck) timeout 150 compute-sanitizer --tool memcheck python3 -W ignore flash.py check ./flash.so 2>&1 | tail -15 ;;
    *) echo "unknown part '$part'" >&2; exit 2 ;;
  esac
done

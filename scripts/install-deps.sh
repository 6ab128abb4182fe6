#!/bin/sh
# Installs the Debian / Ubuntu packages that Crest needs: scripts/install-deps.sh [--list] [GROUP]...
# --list prints the required packages of these groups and installs nothing.
# Groups: build (the default), cuda, cudnn, format, python, fuzz, tidy, coverage.
# Does nothing, and needs no network, when they are all there. Runs apt-get as root, or through sudo.
# cuda: the headers of cudnn-frontend, where a CUDA toolkit and cuDNN's headers are; cudnn: the same, tried again.
set -eu
cd "$(dirname "$0")/.."

# ocl-icd-opencl-dev: Debian's libdnnl-dev only recommends it, but its CMake file requires it.
build="g++ make cmake ninja-build libdnnl-dev libfmt-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev
  libsqlite3-dev libgtest-dev librapidcheck-dev libutf8proc-dev libxxhash-dev ocl-icd-opencl-dev
  zlib1g-dev libzstd-dev liblzma-dev"
# faster rebuilds and links; the corpus of `make demo`; collectives between processes; crest watch
optional="ccache mold bible-kjv libgloo-dev libcivetweb-dev"
format="clang-format-14 python3"
tidy="clang-tidy-14"
python="python3-numpy python3-pytest" # for the tests of python/crest
coverage="llvm python3"
# libFuzzer's runtime must be of clang's version: 14 on Debian 12 and Ubuntu 22.04, the meta package elsewhere.
# shellcheck disable=SC1091
case "$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME:-}")" in
  bookworm | jammy) fuzz="clang libclang-rt-14-dev libomp-dev" ;;
  *) fuzz="clang libclang-rt-dev libomp-dev" ;;
esac

installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

missing_of() {
  for package in "$@"; do installed "$package" || printf '%s ' "$package"; done
}

cache=${CREST_CACHE:-.cache}

# Only the headers of the wheel are used, so it need not fit this Python or processor.
# CMakeLists.txt names the version, too.
frontend=nvidia-cudnn-frontend==1.32.0
frontend_sha256=c6006556017a4d1c914c52a556c71b1267f2d6a0500f742e7b4edef539878df0
cudnn_frontend() {
  deps=$cache/deps target=$cache/deps/cudnn-frontend-${frontend##*=}
  [ ! -e "$target/include/cudnn_frontend.h" ] || return 0
  nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" 2>/dev/null) || return 0
  python=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' 2>/dev/null || true)
  found=""
  for folder in "$(dirname "$nvcc")/../include" /usr/include "/usr/include/$(uname -m)-linux-gnu" \
    "$python/nvidia/cudnn/include"; do
    [ ! -e "$folder/cudnn.h" ] || found=$folder
  done
  [ -n "$found" ] || return 0
  stamp=$deps/cudnn-frontend-tried # without a network every later build would wait for it again
  [ "$1" = again ] || [ ! -e "$stamp" ] || return 0
  echo "Fetching the headers of $frontend" >&2
  rm -rf "$deps/wheel" && mkdir -p "$deps/wheel" && touch "$stamp"
  if python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
      --implementation cp --abi cp311 --platform manylinux_2_27_x86_64 -d "$deps/wheel" "$frontend" >&2 &&
    echo "$frontend_sha256  $(ls "$deps"/wheel/*.whl)" | sha256sum -c --quiet - >&2 &&
    python3 -m zipfile -e "$deps"/wheel/*.whl "$deps/wheel" >&2; then
    mkdir -p "$target" && mv "$deps/wheel/include" "$target/include"
  else
    echo "install-deps: going on without the headers of $frontend: no cuDNN attention kernels." >&2
    echo "Try again with:  sh scripts/install-deps.sh cudnn" >&2
  fi
  rm -rf "$deps/wheel"
}

list=""
[ "${1:-}" != --list ] || { list=yes && shift; }
wanted="" extra=""
for group in "${@:-build}"; do
  case "$group" in
    build) wanted="$wanted $build" extra="$extra $optional" ;;
    cuda) [ -n "$list" ] || cudnn_frontend once ;;
    cudnn) [ -n "$list" ] || cudnn_frontend again ;;
    format) wanted="$wanted $format" ;;
    fuzz) wanted="$wanted $fuzz" ;;
    tidy) wanted="$wanted $tidy" ;;
    python) wanted="$wanted $python" ;;
    coverage) wanted="$wanted $coverage" ;;
    *) echo "install-deps: unknown group '$group' (known: build, cuda, cudnn, format, python, fuzz, tidy, coverage)" >&2; exit 2 ;;
  esac
done

[ -n "$wanted" ] || exit 0
if [ -n "$list" ]; then
  # shellcheck disable=SC2086 # a list of words
  printf '%s\n' $wanted
  exit 0
fi
if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "install-deps: this is not Debian or Ubuntu; if the build misses something, these are Debian's names:" >&2
  echo "$wanted" >&2
  exit 0
fi
# shellcheck disable=SC2086 # lists of words
missing=$(missing_of $wanted)
# shellcheck disable=SC2086
missing_extra=$(missing_of $extra)
# Optional packages alone are tried once: without a network every later build would wait for it again.
stamp=$cache/optional-packages-tried
[ -n "$missing" ] || [ ! -e "$stamp" ] || missing_extra=""
[ -n "$missing$missing_extra" ] || exit 0

if [ "$(id -u)" = 0 ]; then
  as_root=""
elif command -v sudo >/dev/null 2>&1; then
  as_root="sudo"
elif [ -z "$missing" ]; then
  exit 0
else
  echo "install-deps: these packages are missing, and this user is not root and has no sudo:" >&2
  echo "  $missing" >&2
  echo "Ask an administrator to run:  apt-get install $missing" >&2
  exit 1
fi

# Hundreds of lines that nobody reads unless it fails.
log=$cache/apt-get.log
mkdir -p "$cache" && : >"$log"
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1
}

# shellcheck disable=SC2086
count=$(set -- $missing $missing_extra && echo $#)
{
  echo "Missing packages of Debian or Ubuntu ($count), now installed with ${as_root:+$as_root }apt-get (log: $log):"
  # shellcheck disable=SC2086
  echo $missing $missing_extra | fold -s -w 96 | sed 's/^/  /; s/ $//'
} >&2
if ! apt update -q; then
  echo "install-deps: apt-get update failed; trying with the package lists that are here." >&2
fi
install() {
  apt install -y -q --no-install-recommends "$@"
}
# All at once is fastest; when that fails, what is required alone.
# shellcheck disable=SC2086
if ! install $missing $missing_extra; then
  [ -z "$missing_extra" ] || echo "install-deps: going on without the optional packages: $missing_extra" >&2
  if [ -n "$missing" ] && { [ -z "$missing_extra" ] || ! install $missing; }; then
    tail -20 "$log" >&2
    echo "install-deps: apt-get could not install: $missing" >&2
    echo "Is there a network? Crest needs Debian 12 or Ubuntu 24.04 (or newer) for these packages." >&2
    exit 1
  fi
fi
touch "$stamp"

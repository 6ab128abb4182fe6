#!/bin/sh
# Formats the C++ and CUDA sources (scripts/format.sh), or lists what is not formatted and fails (--check).
# The version is pinned: releases of clang-format disagree with each other.
set -eu
cd "$(dirname "$0")/.."
if command -v clang-format-14 >/dev/null 2>&1; then
  tool=clang-format-14
elif clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
  tool=clang-format
else
  echo "format: clang-format 14 is missing; scripts/install-deps.sh format installs it" >&2
  exit 1
fi
sources() {
  find src tests -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0
}
if [ "${1:-}" != --check ]; then
  sources | xargs -0 "$tool" -i
  exit 0
fi
if said=$(sources | xargs -0 "$tool" --dry-run --Werror 2>&1); then
  echo "format: everything is formatted"
  exit 0
fi
bad=$(printf '%s\n' "$said" | sed -n 's/:[0-9]*:[0-9]*: error: .*//p' | sort -u)
printf 'format: not formatted (make format does it):\n%s\n' "${bad:-$said}" >&2
exit 1

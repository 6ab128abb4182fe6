#!/bin/sh
# Makes a program run on other machines: scripts/libraries.sh PROGRAM LIB LICENSES
# Copies what PROGRAM needs into LIB, stripped, and the licenses into LICENSES. The other machine has glibc, libstdc++ and
# libgcc_s: Debian's libstdc++ needs glibc 2.36, which Ubuntu 22.04 lacks. CUDA's libraries are opened at run time from
# the other machine. Fails if a file needs newer symbols than GLIBC_MAX (2.35) or GLIBCXX_MAX (3.4.30): Ubuntu 22.04's.
set -eu
program=$1 lib=$2 licenses=$3
glibc_max=${GLIBC_MAX:-2.35} glibcxx_max=${GLIBCXX_MAX:-3.4.30}
mkdir -p "$lib" "$licenses"
list=$(ldd "$program")
! echo "$list" | grep 'not found' >&2 || { echo "libraries.sh: these libraries are missing" >&2; exit 1; }
echo "$list" | awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' | while read -r library; do
  cp -L "$library" "$lib/"
  strip --strip-unneeded "$lib/$(basename "$library")" 2>/dev/null || true
  # The library's license is in its package. /lib is a link to /usr/lib: dpkg knows one of the two names.
  real=$(readlink -f "$library")
  owner=$(dpkg -S "$real" 2>/dev/null || dpkg -S "${real#/usr}" 2>/dev/null || true)
  package=$(echo "$owner" | head -1 | sed 's/:.*//')
  if [ -n "$package" ] && [ -e "/usr/share/doc/$package/copyright" ]; then
    cp -L "/usr/share/doc/$package/copyright" "$licenses/$package"
  else
    echo "libraries.sh: no license found for $library" >&2
  fi
done

failed=""
for file in "$program" "$lib"/*; do
  symbols=$(objdump -T "$file")
  for limit in "GLIBC_$glibc_max" "GLIBCXX_$glibcxx_max"; do
    kind=${limit%%_*}
    newest=$(echo "$symbols" | grep -o "\b${kind}_[0-9][0-9.]*" | sort -uV | tail -1)
    [ -n "$newest" ] && [ "$(printf '%s\n' "$limit" "$newest" | sort -V | tail -1)" != "$limit" ] || continue
    echo "libraries.sh: $file needs $newest, at most $limit:" \
      "$(echo "$symbols" | grep -F "($newest)" | awk '{print $NF}' | sort -u | head -3 | tr '\n' ' ')" >&2
    failed=yes
  done
done
[ -z "$failed" ] || {
  echo "libraries.sh: it would not start on a system of these limits (the default: Ubuntu 22.04). Build on Debian 12, avoid" \
    "these symbols, or raise the limits: GLIBC_MAX=$(ldd --version | sed -n '1s/.* //p') GLIBCXX_MAX=..." >&2
  exit 1
}

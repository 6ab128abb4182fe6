#!/bin/sh
# Is the release archive reproducible, and does it run elsewhere?
#   tests/tools/check_dist.sh [--build DIR] [--once] [--root DIR]    default build/release
# Makes it twice (--once: once), compares, unpacks it into another folder, and trains and samples there with an empty
# environment. --root: the same inside of a root file system (as root), e.g. of: debootstrap --variant=minbase trixie DIR
set -eu
build=build/release root="" once=""
while [ $# -gt 0 ]; do
  case "$1" in
    --build) build=$2 && shift 2 ;;
    --root) root=$2 && shift 2 ;;
    --once) once=1 && shift ;;
    *) echo "check_dist.sh: unknown word $1" >&2; exit 2 ;;
  esac
done
here=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d) elsewhere=""
trap 'rm -rf "$work" ${elsewhere:+"$elsewhere"}' EXIT
fail() { echo "check_dist: $*" >&2; exit 1; }

. "$here/tests/tools/limits.sh"
sh "$here/scripts/dist.sh" "$build" "$work/one"
if [ -z "$once" ]; then
  sleep 1 # times that leak into the archive differ
  sh "$here/scripts/dist.sh" "$build" "$work/two" >/dev/null
  cmp "$work"/one/*.tar.gz "$work"/two/*.tar.gz || fail "two archives of one build differ"
fi
mkdir "$work/unpacked" && tar -C "$work/unpacked" -xzf "$work"/one/*.tar.gz
folder=$(echo "$work"/unpacked/crest-*)
for file in LICENSE README.md INSTALL.txt bin/crest share/help.txt share/completions/crest.bash; do
  [ -s "$folder/$file" ] || fail "no $file"
done
sh "$here/scripts/image.sh" "$work"/one/*.tar.gz "$work/image" >/dev/null
sh "$here/tests/tools/check_image.sh" "$work/image" ${root:+"$root"}
# Of the system only glibc, libstdc++ and libgcc_s are used.
foreign=$(env -i ldd "$folder/bin/crest" | awk '$3 ~ /^\// {print $3}' | grep -v "^$folder/" |
  grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so' || true)
[ -z "$foreign" ] || fail "libraries of this machine are used: $foreign"
# Libraries are searched in no folder that depends on where a program runs: no entry is empty or relative.
for file in "$folder"/bin/* "$folder"/lib/*; do
  if readelf -d "$file" | sed -n 's/.*PATH).*\[\(.*\)\].*/\1/p' | tr ':' '\n' | grep -qvE '^(\$ORIGIN|/)'; then
    fail "$file searches the current folder for libraries: $(readelf -d "$file" | grep 'PATH)')"
  fi
done

cat >"$folder/try.sh" <<'END'
set -eu
cd "$1"
cp share/help.txt text.txt
GOMP_SPINCOUNT=4000 bin/crest train text.txt --out run --steps 2 --batch 1 --seq 64 --model nano --tokenizer bytes --device cpu --no-store --quiet --sample-every 0 >log.txt 2>&1 || { cat log.txt; exit 1; }
bin/crest sample --run run --prompt "crest" --max-tokens 4 --device cpu >>log.txt 2>&1 || { cat log.txt; exit 1; }
bin/crest plan --model gpt2-124M --device h200 >/dev/null
bin/crest lab list >/dev/null
rm -r run text.txt log.txt
END
path=/usr/sbin:/usr/bin:/sbin:/bin
env -i PATH=$path HOME="$folder/home" sh "$folder/try.sh" "$folder"
echo "ok: runs unpacked elsewhere with an empty environment${once:+ (made once)}"
if [ -n "$root" ]; then
  elsewhere=$(mktemp -d "$root/tmp/crest-dist-XXXXXX")
  cp -r "$folder" "$elsewhere/crest"
  env -i PATH=$path HOME=/tmp/$(basename "$elsewhere") chroot "$root" sh "/tmp/$(basename "$elsewhere")/crest/try.sh" "/tmp/$(basename "$elsewhere")/crest"
  echo "ok: runs in $root, $(sed -n 's/^PRETTY_NAME=//p' "$root/etc/os-release")"
fi

#!/bin/sh
# Is what scripts/image.sh made complete? tests/tools/check_image.sh FOLDER [ROOT]
# No container engine is needed: the Containerfile's instructions run in a folder that stands for the image. With ROOT, a
# root file system (debootstrap --variant=minbase bookworm ROOT), they run as root inside a copy of it, which then trains.
set -eu
context=$1 root=${2:-}
fail() { echo "check_image: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
file=$context/Containerfile
other=$(grep -vE '^(#.*|ARG [A-Z]+=[^ ]+|FROM \$\{[A-Z]+\}|LABEL .+|COPY .+ /.*/|RUN .+|ENV [A-Z]+=[^ ]+|WORKDIR /[^ ]+|ENTRYPOINT \["[^"]+"\])$' "$file" || true)
[ -z "$other" ] || fail "a line is no instruction in the form known here: $other"
[ "$(grep -vm 1 '^#\|^ARG' "$file")" = "$(grep '^FROM' "$file")" ] || fail "FROM is not the first instruction"
value() { sed -n "s|^$1 ||p" "$file"; }
sources=$(value COPY | sed 's| [^ ]*$||') target=$(value COPY | sed 's|.* ||')
entry=$(value ENTRYPOINT | sed 's/^\["\(.*\)"\]$/\1/')
for word in $sources "$target" "$(value RUN)" "$(value ENV)" "$(value WORKDIR)" "$entry"; do
  [ -n "$word" ] || fail "an instruction is missing"
done
[ -z "$root" ] || cp -ax "$root/." "$work"
copy() {
  mkdir -p "$work$target"
  for source in $sources; do
    [ -f "$context/$source" ] || fail "COPY of $source, which is not there"
    cp "$context/$source" "$work$target"
  done
}
copy
steps=$(value RUN)
if [ -n "$root" ]; then
  # As engines run it: with ENV, in WORKDIR, nothing else of this machine.
  mkdir -p "$work$(value WORKDIR)"
  # /proc, which tells a program where its libraries lie, is mounted for one step.
  in_image() {
    # shellcheck disable=SC2016
    unshare --mount sh -euc 'mount -t proc proc "$1/proc" && chroot "$1" env -i /bin/sh -c "$2"' sh "$work" \
      "cd '$(value WORKDIR)' && export '$(value ENV)' HOME=/root && $1"
  }
else
  # Absolute paths of the image are paths below $work; programs are this machine's.
  in_image() { sh -c "$(echo "$1" | sed "s|/tmp/crest|$work/tmp/crest|g; s|/opt/crest|$work/opt/crest|g")"; }
fi
printed=$(in_image "$steps") || fail "a step fails"
version=$(sed -n 's/.*image.version="\([^"]*\)".*/\1/p' "$file")
echo "$printed" | grep -q "^crest $version" || fail "the image has another version than its label: $printed"
[ -x "$work$entry" ] || fail "no program $entry"
[ ! -e "$work/tmp/crest" ] || fail "the archive stays in the image"
labeled=$(sed -n 's/.*archive.sha256="\([^"]*\)".*/\1/p' "$file")
[ "$labeled" = "$(sha256sum "$context"/crest-*.tar.gz | cut -d ' ' -f 1)" ] || fail "the label has another checksum"
if [ -n "$root" ]; then
  here=$(cd "$(dirname "$0")/../.." && pwd)
  cp "$here/README.md" "$work$(value WORKDIR)/input.txt"
  in_image "$entry train input.txt --steps 2 --batch 1 --seq 64 --model nano --quiet && crest sample --max-tokens 4" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "the entry point does not train"; }
fi
# A changed archive must not become an image.
copy
printf x >>"$(ls "$work$target"/crest-*.tar.gz)"
if in_image "$steps" >/dev/null 2>&1; then fail "a changed archive is accepted"; fi
where="a folder"
[ -z "$root" ] || where="$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$work/etc/os-release")"
echo "ok: the steps of $file in $where give crest $version (no image was built)"

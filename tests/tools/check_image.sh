#!/bin/sh
# Is what scripts/image.sh made complete? tests/tools/check_image.sh FOLDER
# No container engine is needed: the steps of the Containerfile run in a folder that stands for the image.
set -eu
context=$1
fail() { echo "check_image: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
file=$context/Containerfile
sources=$(sed -n 's|^COPY \(.*\) [^ ]*$|\1|p' "$file")
target=$(sed -n 's|^COPY .* \([^ ]*\)$|\1|p' "$file")
[ -n "$sources" ] || fail "nothing is copied"
mkdir -p "$work$target"
for source in $sources; do
  [ -f "$context/$source" ] || fail "COPY of $source, which is not there"
  cp "$context/$source" "$work$target"
done
steps=$(sed -n 's/^RUN //p' "$file")
[ -n "$steps" ] || fail "nothing is run"
# Absolute paths of the image are paths below $work; programs are this machine's.
steps=$(echo "$steps" | sed "s|/tmp/crest|$work/tmp/crest|g; s|/opt/crest|$work/opt/crest|g")
printed=$(sh -euc "$steps") || fail "a step fails"
version=$(sed -n 's/.*image.version="\([^"]*\)".*/\1/p' "$file")
echo "$printed" | grep -q "^crest $version" || fail "the image has another version than its label: $printed"
entry=$(sed -n 's/^ENTRYPOINT \["\(.*\)"\]$/\1/p' "$file")
[ -x "$work$entry" ] || fail "no program $entry"
[ ! -e "$work/tmp/crest" ] || fail "the archive stays in the image"
labeled=$(sed -n 's/.*archive.sha256="\([^"]*\)".*/\1/p' "$file")
[ "$labeled" = "$(sha256sum "$context"/crest-*.tar.gz | cut -d ' ' -f 1)" ] || fail "the label has another checksum"
# A changed archive must not become an image.
mkdir -p "$work$target"
for source in $sources; do cp "$context/$source" "$work$target"; done
printf x >>"$(ls "$work$target"/crest-*.tar.gz)"
if sh -euc "$steps" >/dev/null 2>&1; then fail "a changed archive is accepted"; fi
echo "ok: the steps of $file give crest $version (no image was built)"

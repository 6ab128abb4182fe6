#!/bin/sh
# Does the wheel install and run? tests/tools/check_wheel.sh WHEEL [PYTHON]     PYTHON: python3 with pip
# Installs it into a new environment that is not activated, without a network, and with an empty process environment:
# trains with the command, reads the version with the package. `auditwheel show` (in PATH) must agree with the tag.
set -eu
wheel=$(realpath "$1") python=${2:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "check_wheel: $*" >&2; exit 1; }

"$python" -m pip --version >/dev/null 2>&1 || { echo "check_wheel: not tried, $python has no pip"; exit 0; }
"$python" -m venv --without-pip "$work/env"
# The new environment runs the other one's pip: --python needs pip 22.3.
packages=$("$python" -c 'import os, pip; print(os.path.dirname(os.path.dirname(pip.__file__)))')
PYTHONPATH=$packages "$work/env/bin/python" -m pip --disable-pip-version-check install -q --no-index --no-deps "$wheel" \
  >"$work/pip" 2>&1 || {
  cat "$work/pip" >&2
  fail "pip does not install $wheel"
}
cd "$work"
bare() { env -i HOME="$work/home" CREST_CACHE="$work/cache" GOMP_SPINCOUNT=4000 "$@"; }
bare env/bin/crest --version >version.txt
bare env/bin/crest --help >text.txt
bare env/bin/crest train text.txt --out run --steps 2 --batch 1 --seq 64 --model nano --tokenizer bytes --device cpu --quiet \
  --sample-every 0 >log.txt 2>&1 || { cat log.txt; fail "it does not train"; }
bare env/bin/python -c '
import sys, crest
assert crest.program().startswith(sys.prefix), crest.program()
version = crest.command("--version")["version"]
assert open("version.txt").read().startswith(f"crest {version}\n")
assert [(r.kind, r.status) for r in crest.runs()] == [("train", "done")]
'
[ "$(bare env/bin/python -m crest --version)" = "$(cat version.txt)" ] || fail "python -m crest differs from crest"
# Of the system only glibc, libstdc++ and libgcc_s are used.
for program in env/lib/python3*/site-packages/crest/bin/crest; do
  foreign=$(env -i ldd "$program" | awk '$3 ~ /^\// {print $3}' | grep -v "^$work/" |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)\.so' || true)
  [ -z "$foreign" ] || fail "libraries of this machine are used: $foreign"
done
if command -v auditwheel >/dev/null; then
  tag=$(basename "$wheel" .whl | sed 's/.*-none-//')
  auditwheel show "$wheel" >audit.txt
  tr '\n' ' ' <audit.txt | grep -q "platform tag: *\"$tag\"" || { cat audit.txt; fail "auditwheel names another tag than $tag"; }
  audited=", auditwheel agrees"
fi
echo "ok: the wheel runs in an environment that is not activated${audited:-}"

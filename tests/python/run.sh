#!/bin/sh
# The tests of python/crest: tests/python/run.sh CREST. The interpreter is $CREST_PYTHON, else
# python3 in PATH or that of the system (make test installs its packages), whichever has NumPy and pytest. Exits with 77
# (skipped) and the reason if none has.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
has_both() {
  "$1" -c "import importlib.util as u, sys; sys.exit(not (u.find_spec('numpy') and u.find_spec('pytest')))" 2>/dev/null
}
python=""
for candidate in ${CREST_PYTHON:-python3 /usr/bin/python3}; do
  [ -n "$python" ] || ! has_both "$candidate" || python=$candidate
done
[ -n "$python" ] || {
  echo "skipped: ${CREST_PYTHON:-python3} lacks numpy or pytest; set CREST_PYTHON to an interpreter that has both"
  exit 77
}
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
ln -s "$(realpath "$1")" "$bin/crest"
# The package finds the program in PATH; plugins of other tools have no say here.
PATH=$bin:$PATH PYTHONPATH=$here/../../python PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 CREST_STORE="" \
  CUDA_VISIBLE_DEVICES="" GOMP_SPINCOUNT=4000 CREST_CACHE=$bin/cache "$python" -m pytest -q -p no:cacheprovider "$here"

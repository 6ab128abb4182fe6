#!/bin/sh
# The tests of python/crest: tests/python/run.sh CREST. The interpreter is $CREST_PYTHON, else python3.
# Exits with 77 (skipped) and the reason where it lacks NumPy or pytest.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${CREST_PYTHON:-python3}
command -v "$python" >/dev/null || { echo "skipped: there is no $python"; exit 77; }
for module in numpy pytest; do
  "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$module') is None)" || {
    echo "skipped: $python lacks $module; set CREST_PYTHON to an interpreter that has numpy and pytest"
    exit 77
  }
done
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
ln -s "$1" "$bin/crest"
# The package finds the program in PATH; plugins of other tools have no say here.
PATH=$bin:$PATH PYTHONPATH=$here/../../python PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 CREST_STORE="" \
  CUDA_VISIBLE_DEVICES="" GOMP_SPINCOUNT=4000 CREST_CACHE=$bin/cache "$python" -m pytest -q -p no:cacheprovider "$here"

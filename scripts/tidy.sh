#!/bin/sh
# Runs clang-tidy 14 with the rules of .clang-tidy: scripts/tidy.sh BUILD, where BUILD was configured for clang.
# Over the .cpp files that differ from main (BASE=COMMIT), and those next to headers that do; TIDY_ALL=1: over all.
# Other headers are checked with the files that include them.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/sanitize}
if command -v clang-tidy-14 >/dev/null 2>&1; then
  tool=clang-tidy-14
else
  echo "tidy: clang-tidy 14 is missing; scripts/install-deps.sh tidy installs it" >&2
  exit 1
fi
changed() {
  main=${BASE:-$(git rev-parse --quiet --verify origin/main || git rev-parse --verify main)}
  git diff --name-only --diff-filter=d "$(git merge-base HEAD "$main")" -- src tests
  git ls-files --others --exclude-standard -- src tests
}
if [ "${TIDY_ALL:-}" = 1 ]; then
  files=$(git ls-files -- 'src/*.cpp' 'tests/*.cpp')
else
  files=$(changed | sed 's/\.h$/.cpp/' | grep '\.cpp$' | sort -u | while read -r file; do [ ! -e "$file" ] || echo "$file"; done)
fi
[ -n "$files" ] || { echo "tidy: no file differs from main; TIDY_ALL=1 checks all"; exit 0; }
echo "tidy: $(echo "$files" | wc -l) files"
echo "$files" | xargs -P "${JOBS:-1}" -n 1 "$tool" -p "$build" --quiet 2>/dev/null ||
  { echo "tidy: the findings are above (.clang-tidy says which rules hold)" >&2; exit 1; }
echo "tidy: no findings"

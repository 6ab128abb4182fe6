#!/bin/sh
# Runs a command with what the thread sanitizer needs: scripts/tsan.sh COMMAND...
# Archer tells it which OpenMP threads wait for which. Libraries that were not compiled with it (oneDNN with its libgomp,
# Gloo, SQLite) are not followed, else every hand-over inside of them would look like a race.
set -eu
archer=$(ls /usr/lib/llvm-*/lib/libarcher.so 2>/dev/null | sort -V | tail -1)
[ -n "$archer" ] || { echo "tsan: libarcher.so is missing; scripts/install-deps.sh fuzz installs libomp-dev" >&2; exit 1; }
export OMP_TOOL_LIBRARIES="$archer"
export TSAN_OPTIONS="ignore_noninstrumented_modules=1:halt_on_error=0:second_deadlock_stack=1:history_size=4${TSAN_OPTIONS:+:$TSAN_OPTIONS}"
exec "$@"

#!/usr/bin/env bash
# Runs ninja: scripts/ninja.sh ARGUMENTS. On a terminal its status is one line. Elsewhere (a pipe, a
# log) it prints a line for each tenth of the work, and all that compilers and failed steps print.
set -o pipefail
[ ! -t 1 ] || exec ninja "$@"
printed=0
NINJA_STATUS='[%f/%t] ' ninja "$@" 2>&1 | while IFS= read -r line; do
  if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
    done=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    tenth=$((10 * done / all))
    [ "$tenth" -gt "$printed" ] || continue
    printed=$tenth
  fi
  printf '%s\n' "$line"
done

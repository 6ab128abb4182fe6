#!/bin/sh
# Whether this machine has an NVIDIA GPU to build for: prints AUTO or OFF; with `archs` the compute capabilities to
# compile for (those of its GPUs, else all that Crest supports).
capabilities=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sort -u | grep -E '^[0-9]+$')
if [ "$1" = archs ]; then
  [ -z "$capabilities" ] && capabilities='80 89 90 100 120'
  echo $capabilities | sed 's/\b90\b/90a/; s/ /;/g'
elif [ -n "$capabilities" ]; then
  echo AUTO
else
  echo OFF
fi

#!/bin/sh
# Prints how many compilers to run at once: one a core, but 1.5 GB of free memory for each.
cores=$(nproc 2>/dev/null || echo 2)
kib=$(awk '/^MemAvailable:/ {print $2}' /proc/meminfo 2>/dev/null)
by_memory=$((${kib:-3000000} / 1500000))
[ "$by_memory" -ge 1 ] || by_memory=1
[ "$cores" -le "$by_memory" ] && echo "$cores" || echo "$by_memory"

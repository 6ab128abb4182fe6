#!/bin/sh
# Collects a build into a folder that runs on another Linux machine of the same architecture (glibc as new as here):
#   scripts/bundle.sh [BUILD] [FOLDER]     defaults build/cuda and build/bundle
# FOLDER/bin: crest and the test programs, stripped; FOLDER/lib: the libraries they need besides glibc and CUDA's, which
# Crest opens at run time from the other machine. Start with FOLDER/run COMMAND...
set -eu
build=${1:-build/cuda} folder=${2:-build/bundle}
[ -x "$build/crest" ] || { echo "bundle.sh: no $build/crest: run make cuda" >&2; exit 2; }
for cache in "$build/CMakeCache.txt" "$build/../CMakeCache.txt"; do
  if grep -qs '^CREST_CUDA_CHECK:BOOL=ON' "$cache"; then
    echo "bundle.sh: the kernels in $build were compiled for a check only, too slow to measure: run make cuda CUDA_CHECK=OFF" >&2
    exit 2
  fi
done
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib"
cp "$build/crest" "$folder/bin/"
for test in "$build"/tests/test_*; do [ -x "$test" ] && [ -f "$test" ] && cp "$test" "$folder/bin/"; done
strip "$folder"/bin/*
for file in "$folder"/bin/*; do ldd "$file"; done | awk '$3 ~ /^\// {print $3}' | sort -u |
  grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' | while read -r library; do cp -L "$library" "$folder/lib/"; done
cat >"$folder/run" <<'EOF'
#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$here/bin:$PATH"
exec "$@"
EOF
chmod +x "$folder/run"
du -sh "$folder" | awk '{print "bundle: " $2 ", " $1}'

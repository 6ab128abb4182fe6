#!/bin/sh
# Makes a release archive that runs on another Debian or Ubuntu machine of this architecture, with a glibc as new as the
# archive's text says: scripts/dist.sh [BUILD] [FOLDER]     defaults build/release and build/dist
# crest-VERSION-linux-ARCH.tar.gz holds bin/crest, lib/ (scripts/libraries.sh), licenses, README, completions and the help
# of all commands. The same build gives the same bytes.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release} out=${2:-build/dist}
[ -x "$build/crest" ] || { echo "dist.sh: no $build/crest: run make build" >&2; exit 2; }
# Text files are sorted and named alike whatever this machine's language is.
export LC_ALL=C
version=$("$build/crest" --version | sed -n '1s/^crest //p')
name=crest-$version-linux-$(uname -m)
folder=$out/$name
rm -rf "$folder"
mkdir -p "$folder/share/completions"

# cmake's install gives the program its search path, $ORIGIN/../lib.
cmake --install "$build" --prefix "$folder" --strip >/dev/null
sh scripts/libraries.sh "$folder/bin/crest" "$folder/lib" "$folder/share/licenses"

cp LICENSE README.md "$folder/"
for shell in bash zsh fish; do "$folder/bin/crest" completions "$shell" >"$folder/share/completions/crest.$shell"; done
{
  "$folder/bin/crest" --help
  "$folder/bin/crest" --help | awk '/^  [a-z]/ {print $1}' | while read -r command; do
    printf '\n\n==== crest %s ====\n\n' "$command"
    "$folder/bin/crest" "$command" --help
  done
} >"$folder/share/help.txt"
glibc=$(objdump -T "$folder"/bin/crest "$folder"/lib/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1 | sed 's/GLIBC_//')
cat >"$folder/INSTALL.txt" <<END
Crest $version for Linux on $(uname -m), glibc $glibc or newer (ldd --version tells yours),
with libstdc++ of GCC 12 or newer (package libstdc++6).

Unpack it anywhere and run bin/crest; or make it known to your shell:
  export PATH=\$PWD/bin:\$PATH
  . share/completions/crest.bash        # bash; for others: crest.zsh, crest.fish
share/help.txt has the options of all commands, share/licenses the licenses of the libraries in lib/.
END

find "$folder" -type d -exec chmod 755 {} + && find "$folder" -type f -exec chmod 644 {} + && chmod 755 "$folder/bin/crest"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=ustar -C "$out" -cf "$out/$name.tar" "$name"
gzip -nf "$out/$name.tar"
du -h "$out/$name.tar.gz" | awk -v glibc="$glibc" '{print $2 ": " $1 ", needs glibc " glibc " or newer"}'

#!/bin/sh
# Makes the folder that a container engine builds an image from, without a network: scripts/image.sh ARCHIVE FOLDER
# ARCHIVE is of scripts/dist.sh. FOLDER gets the archive, SHA256SUMS and Containerfile. The base image must be on the
# machine already; it needs glibc as new as the archive's, and libstdc++ of GCC 12: debian:12-slim has both.
set -eu
archive=$1 folder=$2
[ -f "$archive" ] || { echo "image.sh: no archive $archive: run make dist" >&2; exit 2; }
file=$(basename "$archive")
name=${file%.tar.gz}
version=$(echo "$name" | sed 's/^crest-\(.*\)-linux-.*/\1/')
mkdir -p "$folder"
[ "$(dirname "$archive")" -ef "$folder" ] && { echo "image.sh: $folder already has the archive: give a folder of its own" >&2; exit 2; }
rm -f "$folder"/crest-*.tar.gz "$folder/SHA256SUMS" "$folder/Containerfile"
cp "$archive" "$folder/$file"
(cd "$folder" && sha256sum "$file" >SHA256SUMS)
sum=$(cut -d ' ' -f 1 "$folder/SHA256SUMS")
cat >"$folder/Containerfile" <<END
# Crest $version, from $file
#   podman build --network=none --pull=never -t crest:$version .
#   podman run --rm -v "\$PWD:/work" crest:$version train input.txt
# docker build needs -f Containerfile. Both need the base image first: podman pull debian:12-slim
ARG BASE=debian:12-slim
FROM \${BASE}
LABEL org.opencontainers.image.title="crest" org.opencontainers.image.version="$version" org.opencontainers.image.licenses="MIT" crest.archive.sha256="$sum"
COPY $file SHA256SUMS /tmp/crest/
RUN cd /tmp/crest && sha256sum -c SHA256SUMS && mkdir -p /opt/crest && tar -xzf $file --strip-components=1 -C /opt/crest && rm -r /tmp/crest && /opt/crest/bin/crest --version
ENV PATH=/opt/crest/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /work
ENTRYPOINT ["/opt/crest/bin/crest"]
END
echo "$folder/Containerfile: Crest $version, sha256 of the archive $sum"
echo "Build it:  podman build --network=none --pull=never -t crest:$version $folder"

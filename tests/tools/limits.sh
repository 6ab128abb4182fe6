# To be sourced. A system newer than Debian 12 makes archives and wheels for systems like itself: scripts/libraries.sh
# would refuse them.
glibc=$(ldd --version | sed -n '1s/.* 2\.//p')
[ "$glibc" -le 36 ] || export GLIBC_MAX="2.$glibc" GLIBCXX_MAX=3.4.99

#!/bin/sh
# Writes the demo's corpus, 4.2 MB of English: scripts/demo-corpus.sh FILE
# The King James Bible of Debian's bible-kjv, unwrapped: book and chapter headings, one verse a line, no numbers.
set -eu
out=$1
if ! command -v bible >/dev/null 2>&1; then
  echo "demo: the 'bible' command is missing; install the package bible-kjv, or name a text of your own:" >&2
  echo "  make demo CORPUS=my-text.txt" >&2
  exit 1
fi
mkdir -p "$(dirname "$out")"
# Input: "Genesis 1" between empty lines, "  1 First line of a verse", continuation lines at the margin.
bible -l79 Gen1:1-Rev22:21 </dev/null | LC_ALL=C awk '
  function flush() { if (verse != "") print verse; verse = "" }
  /^[ \t]*$/ { flush(); next }
  /^[1-3]?[A-Za-z ]+ [0-9]+$/ {
    flush()
    chapter = $NF
    book = $0; sub(/ [0-9]+$/, "", book)
    if (book != last) print (last == "" ? "" : "\n\n") toupper(book)
    last = book
    print "\nChapter " chapter "\n"
    next
  }
  /^ +[0-9]+ / { flush(); sub(/^ +[0-9]+ +/, ""); verse = $0; next }
  { sub(/^ +/, ""); verse = verse " " $0 }
  END { flush() }' >"$out.tmp"
size=$(wc -c <"$out.tmp")
if [ "$size" -lt 4000000 ]; then
  echo "demo: 'bible' gave $size bytes instead of 4 MB; is its data file there?" >&2
  exit 1
fi
mv "$out.tmp" "$out"

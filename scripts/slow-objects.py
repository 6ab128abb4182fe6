#!/usr/bin/env python3
"""Prints the ten objects that took longest to compile since a file was written: scripts/slow-objects.py SINCE BUILD..."""
import pathlib
import sys


def compiled(build, since):
    log = build / ".ninja_log"
    latest = {}  # of each object, its last compilation
    for line in log.read_text().splitlines() if log.exists() else []:
        if line.startswith("#") or not line.endswith(".o", 0, line.rfind("\t")):
            continue
        start, end, _, name, _ = line.split("\t")
        latest[name] = (int(end) - int(start)) / 1e3
    for name, seconds in latest.items():
        path = build / name
        if path.exists() and path.stat().st_mtime > since:
            yield seconds, str(path)


def main():
    since = pathlib.Path(sys.argv[1]).stat().st_mtime
    objects = [found for build in sys.argv[2:] for found in compiled(pathlib.Path(build), since)]
    for seconds, path in sorted(objects, reverse=True)[:10]:
        print(f"{seconds:.0f} s {path}")
    print(f"{len(objects)} objects, {sum(seconds for seconds, _ in objects):.0f} s in all")


if __name__ == "__main__":
    main()

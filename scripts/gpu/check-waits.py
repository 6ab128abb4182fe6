#!/usr/bin/env python3
"""Whether every kernel in compiled code waits for its predecessors before it touches global memory.

scripts/gpu/check-waits.py FILE...   objects, libraries or programs with device code; needs cuobjdump (CUDA toolkit)

Kernels of compute capability 9.0 and newer are looked at: the wait is the instruction ACQBULK. tests/backend/
launch_source.cpp checks the source; a compiler might still move a load over the wait.
"""
import re
import subprocess
import sys

TOUCHES = re.compile(r"\b(LDG|STG|LD|ST|ATOM|ATOMG|RED|REDG|LDGSTS|UTMALDG|UTMASTG|UTMAREDG|UBLKCP|UBLKRED)\b")


def check(path):
    sass = subprocess.run(["cuobjdump", "-sass", path], capture_output=True, text=True)
    if sass.returncode:
        sys.exit(f"check-waits: cuobjdump {path}: {sass.stderr.strip()}")
    bad, kernels, arch, name, done = [], 0, 0, None, True
    for line in sass.stdout.splitlines():
        if m := re.search(r"arch = sm_(\d+)", line):
            arch = int(m[1])
        elif m := re.search(r"Function : (\S+)", line):
            name, done = m[1], arch < 90
            kernels += arch >= 90
        elif name and not done and (m := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line)):
            if "ACQBULK" in m[1]:
                done = True
            elif TOUCHES.search(m[1].split()[1] if m[1].startswith("@") else m[1].split()[0]):
                bad.append(f"sm_{arch} {name}: {m[1].strip()} before its wait")
                done = True
    return kernels, bad


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.strip())
    kernels, bad = 0, []
    for path in sys.argv[1:]:
        n, found = check(path)
        kernels += n
        bad += found
    print("\n".join(bad))
    print(f"check-waits: {kernels} kernels, {len(bad)} that touch memory before they wait")
    if kernels == 0:
        sys.exit("check-waits: no kernel for compute capability 9.0 or newer was found")
    sys.exit(1 if bad else 0)


main()

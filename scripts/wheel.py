#!/usr/bin/env python3
"""Makes a wheel for `pip install`: scripts/wheel.py [PROGRAM] [FOLDER]     defaults build/cuda/crest, else
build/release/crest; build/wheel

crest_train-VERSION-py3-none-manylinux_2_35_ARCH.whl has the program, its libraries (scripts/libraries.sh), python/crest
and a command `crest`. CUDA's libraries come with the extra [cuda]. The same build gives the same bytes."""

import base64
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import zipfile

root = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = {  # of CUDA's libraries, by its major version
    12: ["nvidia-cublas-cu12>=12.8", "nvidia-cudnn-cu12>=9,<10", "nvidia-cuda-nvrtc-cu12>=12.8", "nvidia-cuda-cupti-cu12>=12.8",
         "nvidia-nccl-cu12>=2"],
    13: ["nvidia-cublas>=13,<14", "nvidia-cudnn-cu13>=9,<10", "nvidia-cuda-nvrtc>=13,<14", "nvidia-cuda-cupti>=13,<14",
         "nvidia-nccl-cu13>=2"],
}


def stop(message):
    print(f"wheel.py: {message}", file=sys.stderr)
    sys.exit(1)


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, cwd=root, **more)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def cuda_major(program):
    """The major version of CUDA in the program, else None."""
    symbols = run("nm", "-C", program)
    if " cudaGetDeviceCount" not in symbols:
        return None
    for compiler in (program.parent / "CMakeFiles", program.parent.parent / "CMakeFiles"):
        for file in compiler.glob("*/CMakeCUDACompiler.cmake"):
            for line in file.read_text().splitlines():
                if line.startswith('set(CMAKE_CUDA_COMPILER_VERSION "'):
                    return int(line.split('"')[1].split(".")[0])
    stop(f"{program} has CUDA, and its folder does not say which: give the program in its build folder")


def metadata(version, major):
    lines = ["Metadata-Version: 2.1", "Name: crest-train", f"Version: {version}",
             "Summary: Trains GPT-style transformers and explains every millisecond and every byte of a step",
             "License: MIT", "Requires-Python: >=3.9", "Provides-Extra: numpy", 'Requires-Dist: numpy; extra == "numpy"']
    if major:
        lines += ["Provides-Extra: cuda", *(f'Requires-Dist: {p}; extra == "cuda"' for p in PACKAGES[major])]
    readme = (root / "README.md").read_text()
    return "\n".join([*lines, "Description-Content-Type: text/markdown", "", readme])


def main():
    given = [pathlib.Path(a).resolve() for a in sys.argv[1:]]
    built = [root / "build/cuda/crest", root / "build/release/crest"]
    program = given[0] if given else next((p for p in built if p.exists()), built[-1])
    folder = given[1] if len(given) > 1 else root / "build/wheel"
    if not program.is_file():
        stop(f"there is no {program}: run make build")
    program = program.resolve()
    major = cuda_major(program)
    if major and major not in PACKAGES:
        stop(f"{program} is built with CUDA {major}; known are {', '.join(map(str, PACKAGES))}: add its packages to PACKAGES")
    version = json.loads(run(program, "--version", "--json"))["version"]
    info = f"crest_train-{version}.dist-info"
    machine = os.uname().machine
    tag = f"py3-none-manylinux_{os.environ.get('GLIBC_MAX', '2.35').replace('.', '_')}_{machine}"

    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "crest/bin").mkdir(parents=True)
    for file in [*(root / "python/crest").glob("*.py"), root / "python/crest/py.typed"]:
        shutil.copyfile(file, tree / "crest" / file.name)
    crest = tree / "crest/bin/crest"
    shutil.copyfile(program, crest)
    crest.chmod(0o755)
    run("strip", crest)
    # It finds its libraries by its RPATH, $ORIGIN/../lib; until they are copied, by that of the build.
    run("sh", root / "scripts/libraries.sh", crest, tree / "crest/lib", tree / info / "licenses")
    shutil.copyfile(root / "LICENSE", tree / info / "licenses/LICENSE")
    (tree / info / "METADATA").write_text(metadata(version, major))
    (tree / info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: crest\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (tree / info / "entry_points.txt").write_text("[console_scripts]\ncrest = crest._program:main\n")

    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct") or 0)
    date = max(time.gmtime(epoch)[:6], (1980, 1, 1, 0, 0, 0))
    wheel = folder / f"crest_train-{version}-{tag}.whl"
    level = int(os.environ.get("WHEEL_LEVEL", "9"))  # of compression: tests are in a hurry
    record = ""
    with zipfile.ZipFile(wheel, "w") as out:

        def add(name, data, mode=0o644):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            out.writestr(entry, data, compresslevel=level)

        names = sorted(p for p in tree.rglob("*") if p.is_file())
        for file in sorted(names, key=lambda p: (info in p.parts, p)):  # pip reads the end first
            name, data = file.relative_to(tree).as_posix(), file.read_bytes()
            add(name, data, 0o755 if file == crest else 0o644)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
        add(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    shutil.rmtree(tree)
    cuda = f"CPU and CUDA {major}, extra [cuda]" if major else "CPU only"
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB, {cuda}")


main()

#!/usr/bin/env python3
"""Checks src/layers.txt: every folder is in the part that the file says, every #include between folders
is allowed there, every allowed one is used, the lines have no cycle, and every folder has tests in
tests/FOLDER. Also that no two types of src/ have one name: the linker would take either's inline
functions for both; and that threads are started by core/thread.h, where no exception can end the
process. Prints what breaks this and exits with 1."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
NAMESPACE = re.compile(r"(?:inline )?namespace(?: ([\w:]+))? \{")
RAW_STRING = re.compile(r'R"(\w*)\(.*?\)\1"', re.DOTALL)
THREAD = re.compile(r"std::j?thread\b(?!::)")
TYPE = re.compile(r"(?:template ?<.*> )?(?:struct|class|union|enum class|enum)(?: alignas\(.*?\))? (\w+)"
                  r"(?: final)?(?: : [^;]*)? \{")


def types(text):
    """Names of the types that a formatted source defines outside of anonymous namespaces and of others."""
    inside = []
    for line in RAW_STRING.sub("", text).splitlines():
        opens, defines = NAMESPACE.match(line), TYPE.match(line)
        if opens:
            inside.append(opens[1])
        elif line.startswith("}  // namespace") and inside:
            inside.pop()
        elif defines and None not in inside:
            yield "::".join([*inside, defines[1]])


def read_layers(path):
    """{folder: set of folders it may include}, {folder: its part}, and the folders that may include all above (*)."""
    layers, parts, free, part = {}, {}, set(), None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if opens := re.fullmatch(r"(\w+) = \S.*", line):
            part = opens[1]
            continue
        head, bar, allowed = line.partition("|")
        folder, colon, job = head.partition(":")
        if not part or not bar or not colon or not job.strip():
            sys.exit(f"{path}:{number}: not of the form 'FOLDER: job | FOLDER FOLDER' below a line 'PART = job'")
        names = set(allowed.split())
        if names == {"*"}:
            names = set(layers)
            free.add(folder)
        for name in names - set(layers):
            sys.exit(f"{path}:{number}: {folder} may not include {name}, which has no line above")
        layers[folder], parts[folder] = names, part
    return layers, parts, free


def folder_of(path, layers):
    """The longest line that holds a file: backend/cpu/simd/norm.cpp is of backend/cpu."""
    parts = path.split("/")[:-1]
    while parts and "/".join(parts) not in layers:
        parts.pop()
    return "/".join(parts)


def main():
    layers, parts, free = read_layers(SRC / "layers.txt")
    wrong, used, defined = [], {folder: set() for folder in layers}, {}
    for file in sorted(SRC.rglob("*")):
        if file.suffix not in (".h", ".cpp", ".cu"):
            continue
        part, _, name = file.relative_to(SRC).as_posix().partition("/")
        folder = folder_of(name, layers)
        if parts.get(folder) != part:
            wrong.append(f"src/{part}/{name}: its folder has no line below {part}")
            continue
        text = file.read_text(errors="replace")
        if THREAD.search(text) and name != "core/thread.h":
            wrong.append(f"{name} has a std::thread: use Thread of core/thread.h")
        for type_name in types(text):
            other = defined.setdefault(type_name, name)
            if other != name:
                wrong.append(f"{name} and {other} both define {type_name}")
        for target in INCLUDE.findall(text):
            other = folder_of(target, layers)
            if not other or not (SRC / parts[other] / target).exists():
                continue
            used[folder].add(other)
            if other != folder and other not in layers[folder]:
                wrong.append(f"src/{part}/{name} includes {target}: {folder} -> {other}")
    for folder, allowed in layers.items():
        for other in sorted(allowed - used[folder]) if folder not in free else []:
            wrong.append(f"{folder} -> {other} is allowed and not used")
    for folder in layers:
        if "/" not in folder and not list((ROOT / "tests" / folder).glob("*.cpp")):
            wrong.append(f"{folder} has no tests in tests/{folder}")
    if wrong:
        print("\n".join(wrong))
        sys.exit(f"{len(wrong)} findings")
    print(f"layers: {len(layers)} folders in {len(set(parts.values()))} parts, every include is allowed; "
          f"{len(defined)} types, each defined once")


if __name__ == "__main__":
    main()

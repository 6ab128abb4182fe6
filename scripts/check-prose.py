#!/usr/bin/env python3
"""Checks Crest's prose: scripts/check-prose.py [--root DIR] [PATH...]

(a) phrases of scripts/banned-phrases.txt in Markdown, in comments and string literals of src/, in
    experiments/*.toml, scripts/*.sh, scripts/*.py and the Makefile;
(b) lines over 100 columns in Markdown (not tables, code blocks, HTML, link definitions, URLs) and
    comment lines of src/ and tests/ (not those indented by three columns: tables, code);
(c) relative words in 100 words of each folder, against scripts/prose-rates.txt (prose_rates.py).

Paths (files or folders) limit the check to them, without (c). Exits with 1 when something was found,
with 2 when it could not check."""
import argparse
import bisect
import os
import pathlib
import re
import sys

import prose_rates

COLUMNS = 100
HISTORY = ("CHANGELOG.md", "docs/results/")  # the places for history
GENERATED = ("<!-- crest report -->",)  # first lines of files that crest writes
CODE = (".h", ".cpp", ".cu", ".cuh")
SKIPPED = {"build", "runs", "__pycache__", "fixtures", "shared"}  # and hidden folders


def stop(message):
    print(f"check-prose: {message}", file=sys.stderr)
    sys.exit(2)


class Phrases:
    """The list as one regex for each kind of text, since one pass is fast and fifty are not."""

    def __init__(self, path):
        self.rows = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            where, colon, rest = line.partition(": ")
            regex, arrow, instead = rest.rpartition(" -> ")
            if where not in ("any", "output", "history") or not colon or not arrow or not instead.strip():
                stop(f"{path}:{number}: not of the form 'WHERE: REGEX -> what to write instead'")
            if re.search(r"(?<!\\)[A-Z]", regex):
                stop(f"{path}:{number}: write it in lower case, which matches upper case, too: {regex}")
            try:
                re.compile(regex)
            except re.error as error:
                stop(f"{path}:{number}: {error}: {regex}")
            self.rows.append((where, regex.strip().replace(" ", r"\s+"), instead.strip()))
        if not self.rows:
            stop(f"{path}: no phrase in it")
        self.compiled = {}

    def find(self, text, kinds):
        """(position, what is written, what to write instead) of each phrase."""
        if kinds not in self.compiled:
            parts = [rf"(?P<p{i}>{r})(?!\w)" for i, (where, r, _) in enumerate(self.rows) if where in kinds]
            self.compiled[kinds] = re.compile(r"(?<!\w)(?=\w)(?:" + "|".join(parts) + ")")
        # Lower case is several times as fast as re.IGNORECASE; where it changes lengths, only ASCII.
        lower = text.lower()
        if len(lower) != len(text):
            lower = text.encode().lower().decode()
        for match in self.compiled[kinds].finditer(lower):
            written = text[match.start():match.end()]
            yield match.start(), " ".join(written.split()), self.rows[int(match.lastgroup[1:])][2]


class Text:
    """Pieces of a file's prose after each other, and the line of each."""

    def __init__(self):
        self.parts, self.offsets, self.lines, self.size = [], [], [], 0

    def add(self, line, text, before=" "):
        """`before` joins it to the last piece: a blank in a paragraph, BREAK between two."""
        self.parts += [before, text]
        self.offsets.append(self.size + len(before))
        self.lines.append(line)
        self.size += len(before) + len(text)

    def drop_quote(self):
        if self.parts and self.parts[-1].endswith('"'):
            self.parts[-1] = self.parts[-1][:-1]
            self.size -= 1

    def text(self):
        return "".join(self.parts)

    def line_of(self, position):
        return self.lines[max(bisect.bisect_right(self.offsets, position) - 1, 0)]


BREAK = " \0 "  # no phrase goes across


def long_line(line):
    """Whether a line is too long and could be broken."""
    line = line.rstrip()
    if len(line) <= COLUMNS or re.search(r"https?://\S{20}", line):
        return False
    return " " in re.sub(r"^[\s*>#/.-]*(\d+\. )?", "", line[:COLUMNS])


def no_code(text):
    """Names of code, which are within backticks, are not prose."""
    return re.sub(r"`[^`]*`", "`", text)


NOT_WRAPPED = re.compile(r"[|<]|\[[^]]+\]:\s|!?\[[^]]*\]\([^)]*\)$")


def read_markdown(lines):
    """The prose and the numbers of lines that are too long."""
    text, long, fence = Text(), [], None
    between = BREAK
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        mark = re.match(r"(```+|~~~+)", stripped)
        if mark and (fence is None or stripped.startswith(fence)):
            fence, between = (mark.group(1) if fence is None else None), BREAK
            continue
        if fence is None and long_line(line) and not NOT_WRAPPED.match(stripped):
            long.append(number)
        # A line of a code block is a paragraph.
        text.add(number, line if fence else no_code(stripped), BREAK if fence else between)
        between = BREAK if not stripped or stripped.startswith(("|", "#")) else " "
    return text, long


def without_blocks(lines):
    """The same lines, with those of blocks of code empty."""
    kept, fence = [], False
    for line in lines:
        mark = line.lstrip().startswith("```")
        fence ^= mark
        kept.append("" if mark or fence else line)
    return kept


# Not one that is indented by three columns: a table or code.
COMMENT_LINE = re.compile(r"\s*(//|/\*)(?!   )")
TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"([A-Za-z]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                    r"|(?<![0-9A-Fa-f])'(?:\\[^'\n]{1,8}|[^'\\\n])'", re.DOTALL)


def read_code(source):
    """Comments and string literals of C++ and CUDA."""
    comments, literals = Text(), Text()
    line = position = end_of_comment = end_of_literal = 0
    for token in TOKENS.finditer(source):
        written, start = token.group(), token.start()
        line += source.count("\n", position, start)
        position = start
        if written.startswith("/"):
            # Comment lines under each other are one paragraph.
            joined = source[end_of_comment:start].strip() == ""
            for i, part in enumerate(written.split("\n")):
                comments.add(line + i + 1, no_code(part.strip("/* \t")), " " if joined or i else BREAK)
            end_of_comment = token.end()
        elif written[0] in '"R':
            # Literals with only white space between them are one.
            joined = source[end_of_literal:start].strip() == ""
            written = re.sub(r"\\[nrt]", "  ", written)
            if joined:
                literals.drop_quote()
                written = written[1:]
            for i, part in enumerate(written.split("\n")):
                literals.add(line + i + 1, part, "" if joined and not i else " " if i else BREAK)
            end_of_literal = token.end()
    return comments, literals


def read_lines(lines):
    """TOML, shell, Python, make: all of it, since names of code have no such phrases."""
    text = Text()
    for number, line in enumerate(lines, 1):
        text.add(number, line.strip().lstrip("#"))
    return text


def check(path, name, phrases, rates, report):
    if name.endswith((".md",) + CODE) or name == "Makefile" or is_script(name):
        source = path.read_text(errors="replace")
    else:
        return False
    lines = source.splitlines()
    if name.endswith(".toml"):  # the words of others
        lines = ["" if line.startswith("quote = ") else line for line in lines]
    kinds = ("any",) if name.startswith(HISTORY) else ("any", "history")

    def phrases_in(text, kinds):
        for position, written, instead in phrases.find(text.text(), kinds):
            report(name, text.line_of(position), f'"{written}": write {instead}')

    def long_lines(numbers):
        for number in numbers:
            report(name, number, f"{len(lines[number - 1].rstrip())} columns, at most {COLUMNS}")

    if name.endswith(".md"):
        if source.startswith(GENERATED):
            return False
        text, long = read_markdown(lines)
        phrases_in(text, kinds)
        long_lines(long)
        prose = without_blocks(lines)
        rates.count(name, re.sub(r"\]\([^)]*\)", "]", no_code("\n".join(prose))))
        text, _ = read_markdown(prose)
        rates.add_sentences(name, text.text(), text.line_of)
    elif name.endswith(CODE):
        if name.startswith(("src/", "tests/")):
            long_lines(n for n, line in enumerate(lines, 1)
                       if long_line(line) and COMMENT_LINE.match(line))
        if name.startswith("src/"):
            comments, literals = read_code(source)
            phrases_in(comments, kinds)
            rates.count(name, comments.text())
            phrases_in(literals, kinds + ("output",))
    else:
        phrases_in(read_lines(lines), kinds)
    return True


def is_script(name):
    folder, _, file = name.rpartition("/")
    return folder == "experiments" and file.endswith(".toml") or folder == "scripts" and file.endswith((".sh", ".py"))


def files_below(folder):
    if folder.is_file():
        yield folder
        return
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("."))
        for file in sorted(files):
            yield pathlib.Path(path) / file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--update-rates", action="store_true", help=f"write {prose_rates.RATES}")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    phrases = Phrases(root / "scripts/banned-phrases.txt")
    found, checked, rates = [], 0, prose_rates.Rates()
    for start in arguments.paths or ["."]:
        if not (root / start).exists():
            stop(f"no file or folder {start}")
        for path in files_below(root / start):
            name = path.relative_to(root).as_posix()
            checked += check(path, name, phrases, rates, lambda *finding: found.append(finding))
    for name, line, what in sorted(set(found)):
        print(f"{name}:{line}: {what}")
    risen = []
    if arguments.update_rates:
        rates.write(root / prose_rates.RATES)
    if not arguments.paths and (root / prose_rates.RATES).exists():
        rates.print_all()
        risen = rates.above(root / prose_rates.RATES)
        print("".join(f"{text}\n" for text in risen), end="")
    if found or risen:
        sys.exit(f"prose: {len(set(found)) + len(risen)} findings in {checked} files; "
                 "phrases: scripts/banned-phrases.txt")
    print(f"prose: {checked} files, nothing found")


if __name__ == "__main__":
    main()

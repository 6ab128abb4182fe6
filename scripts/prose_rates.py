"""Relative words (that, which, what, whose, those) in 100 words, by folder, and the longest sentences.

A text full of them has sentences that must be read twice. scripts/check-prose.py prints the rates of
comments of src/ and of Markdown next to MLX's 0.7, and fails when a folder is above its row of
scripts/prose-rates.txt."""
import math
import re

RATES = "scripts/prose-rates.txt"
MLX = 0.7  # in MLX's comments
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
RELATIVE = re.compile(r"(?<![\w-])(?:that|which|what|whose|those)(?![\w-])", re.IGNORECASE)
SENTENCE_ENDS = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*\[(-])|\s+- (?=[A-Z`*\[])")
HEADER = """# Relative words in 100 words: the most that a folder's comments or Markdown may have (check-prose.py).
# Written by scripts/check-prose.py --update-rates: rounded up to one decimal, at least MLX's 0.7.
"""


def folder_of(name):
    """The group of a file; empty where nothing is counted."""
    parts = name.split("/")
    if name.endswith(".md"):
        if parts[0] == "docs":
            return "docs/" + parts[1] if len(parts) > 2 else "docs"
        return parts[0] if len(parts) > 1 else "README, CONTRIBUTING, ..."
    return "/".join(parts[:3]) if parts[0] == "src" and len(parts) > 3 else ""


class Rates:
    def __init__(self):
        self.words, self.relatives, self.sentences = {}, {}, []

    def count(self, name, text):
        """`text`: prose without code, pieces apart by \\0."""
        folder = folder_of(name)
        if not folder or name == "CHANGELOG.md":
            return
        self.words[folder] = self.words.get(folder, 0) + len(WORD.findall(text))
        self.relatives[folder] = self.relatives.get(folder, 0) + len(RELATIVE.findall(text))

    def add_sentences(self, name, text, line_of):
        """Of documents, not of results, which are records."""
        if not name.endswith(".md") or name.startswith("docs/results/") or name == "CHANGELOG.md":
            return
        at = 0
        for piece in text.split("\0"):
            if "|" not in piece:
                start = at
                for sentence in SENTENCE_ENDS.split(piece):
                    start = text.find(sentence, start)
                    words = len(sentence.split())
                    if words:
                        at_line = line_of(start + len(sentence) - len(sentence.lstrip()))
                        self.sentences.append((words, name, at_line, " ".join(sentence.split())))
            at += len(piece) + 1

    def of(self, folder):
        return 100 * self.relatives[folder] / max(self.words[folder], 1)

    def print_all(self):
        print(f"relative words in 100 words (MLX: {MLX}):")
        for folder in sorted(self.words):
            print(f"  {self.of(folder):5.2f}  {folder}")
        for kind, of_kind in (("comments", lambda f: f.startswith("src/")),
                              ("Markdown without results", lambda f: not f.startswith(("src", "docs/results")))):
            folders = [f for f in self.words if of_kind(f)]
            if folders:
                share = sum(self.relatives[f] for f in folders) / max(sum(self.words[f] for f in folders), 1)
                print(f"  {100 * share:5.2f}  all {kind}")
        if self.sentences:
            print("longest sentences of documents:")
        for words, name, line, sentence in sorted(self.sentences, key=lambda s: (-s[0], s[1:]))[:10]:
            print(f"  {words} words, {name}:{line}: {sentence[:90]}{'...' if len(sentence) > 90 else ''}")

    def write(self, path):
        rows = (f"{max(math.ceil(self.of(f) * 10 - 1e-9) / 10, MLX):.1f}  {f}\n" for f in sorted(self.words))
        path.write_text(HEADER + "".join(rows))

    def above(self, path):
        """What rose: sentences."""
        if not path.exists():
            return []
        known, found = {}, []
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                rate, folder = line.split(None, 1)
                known[folder] = float(rate)
        for folder in sorted(self.words):
            if folder not in known:
                found.append(f"{RATES}: no row of {folder}: scripts/check-prose.py --update-rates adds it")
            elif self.of(folder) > known[folder] + 1e-9:
                found.append(f"{folder}: {self.of(folder):.2f} relative words in 100, at most {known[folder]:.1f} "
                             f"({RATES}): write two sentences, or an adjective")
        return found

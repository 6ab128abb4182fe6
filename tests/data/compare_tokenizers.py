#!/usr/bin/env python3
"""Compares Crest's tokenizers with Hugging Face `tokenizers` (pip install tokenizers) and writes the C++ tests' fixtures.

    compare_tokenizers.py write-text FILE                 the nasty text: all Unicode classes, spaces, controls, contractions
    compare_tokenizers.py train CORPUS VOCAB FILE         trains with Hugging Face; FILE gets the merges, one a line
    compare_tokenizers.py check TOKENIZER TEXT IDS        IDS: what Crest gave, one number a line; exit 1 when they differ
    compare_tokenizers.py unicode-table FILE              src/data/unicode_table.cpp: the classes that `tokenizers` knows
    compare_tokenizers.py fixtures FOLDER                 corpus.txt, nasty.txt, merges.txt, ids.txt for tests/data/tokenizer.cpp
"""
import random
import sys
import unicodedata
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

WORDS = "the a of don't I'll we've they're he'd I'm it's 'sample 'tis rock'n'roll O'Neill 3.14 1,000 x² ½ Ⅷ café naïve Straße".split()
SPACES = [" ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\t ", "\r\n", "\u00a0", " \u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x0c",
          "\x85", "\u1680", "\u180e", "\u200b", "\x1c", "\x1f"]


def assigned(code):
    # Code points of Unicode 15.0 and older only: the newest blocks differ between libraries' tables.
    c = chr(code)
    return unicodedata.category(c) not in ("Cn", "Cs", "Co")


def nasty_text(seed=1, size=6000, codes=None):
    r = random.Random(seed)
    classes = {}
    for code in range(0x20000):
        if assigned(code):
            classes.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    names = sorted(classes)
    parts = []
    while sum(map(len, parts)) < size:
        kind = r.randrange(8)
        if kind < 2:
            parts.append(r.choice(WORDS))
        elif kind < 4:
            parts.append(r.choice(SPACES) * r.choice([1, 1, 1, 2, 3]))
        elif kind == 4:
            parts.append("".join(r.choice(classes[r.choice(names)]) for _ in range(r.randint(1, 6))))
        elif kind == 5:
            c = r.choice(names)
            parts.append("".join(r.choice(classes[c]) for _ in range(r.randint(1, 4))))
        elif kind == 6:
            parts.append(r.choice(["👩‍👩‍👧‍👦", "🇪🇺", "e\u0301", "\ufeff", "'", "''", "'S", "'LL", "…", "——", "日本語", "한국어", "مرحبا", "हिन्दी", "!!?", "a" * 70,
                                   "=" * 100, "\x00", "\x7f", "\U0001f600" * 3]))
        else:
            parts.append(r.choice([" ", ""]) + r.choice(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'x"]))
    return "".join(parts)


def trained(text, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Crest's vocabulary ends with one special token; Hugging Face would put it first.
    trainer = trainers.BpeTrainer(vocab_size=vocab - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator([text], trainer)
    return t


def merges_of(t):
    import json
    return [m if isinstance(m, str) else " ".join(m) for m in json.loads(t.to_str())["model"]["merges"]]


def unicode_table():
    """The class of every code point as `tokenizers` (its Oniguruma) sees it, as runs: a letter and a count."""
    text = "".join(chr(c) for c in range(0x110000) if not 0xd800 <= c < 0xe000)
    kinds = {}
    for pattern, letter in ((r"\p{Lu}", "U"), (r"\p{Lt}", "U"), (r"\p{Ll}", "l"), (r"\p{Lm}", "o"), (r"\p{Lo}", "o"), (r"\p{M}", "m"),
                            (r"\p{N}", "n"), (r"\s", "s")):
        split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        kinds.update((c, letter) for part, _ in split.pre_tokenize_str(text) for c in part)
    runs, before, count = [], None, 0
    for code in range(0x110001):
        kind = kinds.get(chr(code), ".") if code < 0x110000 else None
        if kind != before and count:
            runs.append(before + (str(count) if count > 1 else ""))
            count = 0
        before, count = kind, count + 1
    letters = sum(k in "Ulo" for k in kinds.values())
    if letters != 141028:
        sys.exit(f"{letters} letters: this `tokenizers` is not of Unicode 16.0 (141028)")
    lines, line = [], ""
    for run in runs:
        if len(line) + len(run) > 110:
            lines.append(line)
            line = ""
        line += run
    lines.append(line)
    body = "\n".join(f'    "{x}"' for x in lines)
    return f"""// Classes of all code points of Unicode 16.0, written by tests/data/compare_tokenizers.py unicode-table.
#include "data/unicode.h"

namespace crest {{

// Runs in order of code points: a class and how many (nothing: one). s space, U upper or title case, l lower case, o
// other letters and modifiers, m mark, n number, . everything else and what is not assigned.
const char* const unicode_class_runs =
{body};

}}  // namespace crest
"""


def read_text(path):
    return Path(path).read_bytes().decode("utf-8")


def main():
    command, args = sys.argv[1], sys.argv[2:]
    if command == "write-text":
        Path(args[0]).write_bytes(nasty_text(7, 200000).encode())
    elif command == "train":
        Path(args[2]).write_text("\n".join(merges_of(trained(read_text(args[0]), int(args[1])))) + "\n")
    elif command == "check":
        t = Tokenizer.from_file(args[0])
        text = read_text(args[1])
        ids = [int(x) for x in Path(args[2]).read_text().split()]
        wanted = t.encode(text, add_special_tokens=False).ids
        for i, (a, b) in enumerate(zip(ids, wanted)):
            if a != b:
                print(f"token {i}: crest {a} {t.id_to_token(a)!r}, tokenizers {b} {t.id_to_token(b)!r}")
                return 1
        if len(ids) != len(wanted):
            print(f"crest gave {len(ids)} tokens, tokenizers {len(wanted)}")
            return 1
        print(f"{len(ids)} tokens are equal")
    elif command == "unicode-table":
        Path(args[0]).write_text(unicode_table())
    elif command == "fixtures":
        folder = Path(args[0])
        corpus = nasty_text(3, 9000)
        t = trained(corpus, 800)
        text = nasty_text(4, 6000)
        (folder / "corpus.txt").write_bytes(corpus.encode())
        (folder / "nasty.txt").write_bytes(text.encode())
        (folder / "merges.txt").write_text("\n".join(merges_of(t)) + "\n")
        (folder / "ids.txt").write_text("\n".join(map(str, t.encode(text).ids)) + "\n")
    return 0


sys.exit(main())

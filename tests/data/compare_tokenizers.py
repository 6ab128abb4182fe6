#!/usr/bin/env python3
"""Compares Crest's tokenizers with Hugging Face `tokenizers` (pip install tokenizers) and writes the C++ tests' fixtures.

    compare_tokenizers.py write-text FILE                 every code point, long runs, spaces, controls, contractions, emoji
    compare_tokenizers.py train CORPUS VOCAB FILE         trains with Hugging Face; FILE gets the merges, one a line
    compare_tokenizers.py check TOKENIZER TEXT IDS        IDS: what Crest gave, one number a line; exit 1 when they differ
    compare_tokenizers.py check-tiktoken RANKS RULE TEXT IDS   the same of a .tiktoken file, with tiktoken (pip install tiktoken)
    compare_tokenizers.py unicode-table FILE              src/data/unicode_table.cpp: the classes that `tokenizers` knows
    compare_tokenizers.py fixtures FOLDER                 corpus.txt, nasty.txt, merges.txt, ids.txt and those of other formats
                                                          and split rules, for tests/data/tokenizer*.cpp
"""
import base64
import json
import random
import sys
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

WORDS = "the a of don't I'll we've they're he'd I'm it's 'sample 'tis rock'n'roll O'Neill 3.14 1,000 x² ½ Ⅷ café naïve Straße".split()
SPACES = [" ", "  ", "   ", "\n", "\n\n", " \n", "\n ", "\t", "\t ", "\r\n", "\u00a0", " \u00a0", "\u2003", "\u3000", "\u2028", "\x0b", "\x0c",
          "\x85", "\u1680", "\u180e", "\u200b", "\x1c", "\x1f"]


CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
O200K = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]%s[\p{Ll}\p{Lm}\p{Lo}\p{M}]%s" + CONTRACTION + "?|"
REST = r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# The rules as the model's own tokenizer.json has them; cl100k's has no such file, so this is tiktoken's rule for Oniguruma.
RULES = {
    "llama3": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+" + REST,
    "cl100k": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+" + REST,
    "o200k": O200K % ("*", "+") + O200K % ("+", "*") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+" + REST.replace(r"\n]*", r"\n/]*", 1),
}
# And as tiktoken has them, where that differs.
TIKTOKEN_RULES = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
}
# What the rules differ in.
BITS = ["'", "'s", "'S", "'\u017f", "'LL", "'Ll", "'re", "'VE", "\r", "\n", "\r\n", " ", "  ", "\t", "/", "//", "/\n", "!", "?!", "a", "B", "Ab",
        "aB", "ABC", "abC", "\u01c5", "\u02b0", "中", "文", "\u0301", "\u0308", "e\u0301", "é", "1", "12", "1234", "٣", "Ⅷ", "½", "\u00a0", "\u2028",
        "\x00", "😀", "\u200d", "_", "$x", "\u212a", "\u0130", "ß", "\u10d0", "\u1c90", "가", "\u1100\u1161", "\u08d0\u0334", "\U0010ffff"]


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
    parts, counted, length = [], 0, 0
    while True:
        length += sum(map(len, parts[counted:]))
        counted = len(parts)
        if length >= size:
            break
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


def mixed_bits(seed, count):
    r = random.Random(seed)
    return "".join(r.choice(BITS) for _ in range(count))


def every_letter(seed):
    """Every code point that Python's Unicode knows, of all planes, some private ones, and long runs of one letter."""
    r = random.Random(seed)
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    codes += r.sample(range(0xe000, 0xf900), 500) + r.sample(range(0xf0000, 0x10fffe), 500)
    r.shuffle(codes)
    letters = "".join(chr(c) + (" " if r.random() < 0.2 else "") for c in codes)
    return letters + " ".join(c * n for c in ("a", " ", "\n", "\t ", "1", "é", "漢", "😀", "_", "\u0301", "aB") for n in (300, 5000))


def trained_with_rule(text, vocab, rule, nfc, ignore_merges):
    """As the tokenizer.json of Llama 3 (ignore_merges, a post-processor) and Qwen 2 (NFC, added tokens that are not special)."""
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if nfc:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(RULES[rule]), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator([text], trainer)
    t.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False), AddedToken("<|start|>", special=True, normalized=False)])
    t.add_tokens([AddedToken("<tool>", special=False, normalized=False), AddedToken("e\u0301X", special=False, normalized=True)])
    t.post_processor = processors.TemplateProcessing(single="<|start|> $A", special_tokens=[("<|start|>", t.token_to_id("<|start|>"))])
    return t


def bytes_of_alphabet():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


def ranks_of(t):
    known = bytes_of_alphabet()
    vocab = json.loads(t.to_str())["model"]["vocab"]
    return {bytes(known[c] for c in text): i for text, i in vocab.items()}


def tiktoken_encoding(ranks, rule):
    import tiktoken
    return tiktoken.Encoding(rule, pat_str=TIKTOKEN_RULES.get(rule) or RULES[rule], mergeable_ranks=ranks, special_tokens={})


def write_ids(path, ids):
    path.write_text("\n".join(map(str, ids)) + "\n")


def rule_fixtures(folder):
    corpus = nasty_text(3, 9000) + mixed_bits(5, 2000)
    text = nasty_text(6, 1500) + mixed_bits(8, 1200) + "<tool>\u00e9Xe\u0301X <tool>\n \n  "
    (folder / "rules.txt").write_bytes(text.encode())
    for rule, nfc, ignore_merges in (("llama3", False, True), ("qwen2", True, False), ("o200k", False, True), ("cl100k", False, False)):
        t = trained_with_rule(corpus, 420, rule, nfc, ignore_merges)
        t.save(str(folder / f"{rule}.json"), pretty=False)
        t.encode_special_tokens = True
        write_ids(folder / f"{rule}-ids.txt", t.encode(text, add_special_tokens=False).ids)
    # Ranks in an order that no training gives: tokens that merges do not reach.
    ranks = ranks_of(trained_with_rule(corpus, 420, "cl100k", False, False))
    long = [token for token in ranks if len(token) > 1]
    ranks.update(zip(long, random.Random(5).sample([ranks[token] for token in long], len(long))))
    with open(folder / "cl100k.tiktoken", "wb") as f:
        for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
            f.write(base64.b64encode(token) + b" " + str(rank).encode() + b"\n")
    write_ids(folder / "tiktoken-ids.txt", tiktoken_encoding(ranks, "cl100k").encode_ordinary(text))


def trained(text, vocab):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Crest's vocabulary ends with one special token; Hugging Face would put it first.
    trainer = trainers.BpeTrainer(vocab_size=vocab - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator([text], trainer)
    return t


def merges_of(t):
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


def compare(ids, wanted, name, spell):
    for i, (a, b) in enumerate(zip(ids, wanted)):
        if a != b:
            print(f"token {i}: crest {a} {spell(a)!r}, {name} {b} {spell(b)!r}")
            return 1
    if len(ids) != len(wanted):
        print(f"crest gave {len(ids)} tokens, {name} {len(wanted)}")
        return 1
    print(f"{len(ids)} tokens are equal")
    return 0


def read_ids(path):
    return [int(x) for x in Path(path).read_text().split()]


def read_text(path):
    return Path(path).read_bytes().decode("utf-8")


def main():
    command, args = sys.argv[1], sys.argv[2:]
    if command == "write-text":
        Path(args[0]).write_bytes((nasty_text(7, 60000) + mixed_bits(9, 20000) + every_letter(11)).encode())
    elif command == "train":
        Path(args[2]).write_text("\n".join(merges_of(trained(read_text(args[0]), int(args[1])))) + "\n")
    elif command == "check":
        t = Tokenizer.from_file(args[0])
        t.encode_special_tokens = True
        wanted = t.encode(read_text(args[1]), add_special_tokens=False).ids
        return compare(read_ids(args[2]), wanted, "tokenizers", t.id_to_token)
    elif command == "check-tiktoken":
        ranks = {base64.b64decode(line.split()[0]): int(line.split()[1]) for line in Path(args[0]).read_text().splitlines()}
        e = tiktoken_encoding(ranks, args[1])
        return compare(read_ids(args[3]), e.encode_ordinary(read_text(args[2])), "tiktoken", e.decode_single_token_bytes)
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
        write_ids(folder / "ids.txt", t.encode(text).ids)
        t.model.save(str(folder), "gpt2")
        rule_fixtures(folder)
    return 0


sys.exit(main())

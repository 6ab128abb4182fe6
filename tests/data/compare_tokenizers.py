#!/usr/bin/env python3
"""Compares Crest's tokenizers with Hugging Face `tokenizers` (pip install tokenizers) and writes the C++ tests' fixtures.

    compare_tokenizers.py write-text FILE                 every code point, long runs, spaces, controls, contractions, emoji
    compare_tokenizers.py train CORPUS VOCAB FILE         trains with Hugging Face; FILE gets the merges, one a line
    compare_tokenizers.py check TOKENIZER TEXT IDS        IDS: what Crest gave, one number a line; exit 1 when they differ
    compare_tokenizers.py check-tiktoken RANKS RULE TEXT IDS   the same of a .tiktoken file, with tiktoken (pip install tiktoken)
    compare_tokenizers.py write-kinds FOLDER              documents, and tokenizers of the kinds of Llama and StarCoder: tokenizer.json
                                                          and SentencePiece models (pip install sentencepiece)
    compare_tokenizers.py check-kinds FOLDER              what Crest gave for them: NAME.ids, NAME.texts
    compare_tokenizers.py unicode-table FILE              src/trainer/data/unicode_table.cpp: the classes that `tokenizers` knows
    compare_tokenizers.py fixtures FOLDER                 corpus.txt, nasty.txt, merges.txt, ids.txt and those of other formats
                                                          and split rules, for tests/data/tokenizer*.cpp
    compare_tokenizers.py kind-fixtures FOLDER            of these sentencepiece.model and sentencepiece-ids.txt only
"""
import base64
import io
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


SPECIAL_DOCUMENTS = ["", " ", "  ", "a", " a", "a ", " a ", "\t", "\n", "\r\n", "a\r\nb\r\n", "\n \n", " \n", "\x00", "\x00a\x1f\x7f", "\u2581", "\u2581\u2581a",
                     "a\u2581b", " \u2581 \u2581", "<s>", "a<s>b", "</s> <unk>", "<0x41>", "<0x0A>x", "<|tool|>x <|tool|>", "\ufffd", "\U0010ffff", "e\u0301",
                     "\u0301", "a\u0301\u0323\u0301b", "\u0130\u0049\u0131", "\u1e9e\u00df\ufb01\u2460\u00bd", "\u1100\u1161\u11a8 \uac01", "\u00a0a\u00a0", "\u3000a\u3000",
                     "a <|user|> \n b<|user|>c", "<|user|>", " <|user|>  <|user|>x ", "\u00e9\u3000<|user|>\t\u00a0y", " <|mask|> y", "e\u2003<|mask|><|mask|>",
                     "<|user|> <|mask|>", "a  <|left|> b", "\n <|left|>\n<|left|>",
                     "the", "the the", "thethe", "the_", "\u00bdthe\u00bd", "\u0663the", "\u2167the", "the\u200d", "the\u24d0", "the\u0301", "\ufe33the",
                     "(the)\ufffdthe", "a  don", "don't  don", "x=", "x = y==z", "e\u2581e", "\u2581the\u2581",
                     "1", "12 345", "a1b22c333", "\u0663\u0664", "\u2167x", "👩‍👩‍👧‍👦 🇪🇺 👍🏽", "The THE the", "aB" * 40, "\u03a3\u03c3\u03c2 \u039f\u0394\u039f\u03a3"]


def documents():
    """More than 2,000: unicode, combining marks, emoji, controls, long runs of spaces and letters, line breaks, nothing."""
    r = random.Random(21)
    out = list(SPECIAL_DOCUMENTS)
    out += [c * n for c in (" ", "a", "=", "\n", "\t", "\r\n", "ab", " a", "  b", "é", "漢", "😀", "\u2581", "1") for n in (2, 3, 5, 7, 16, 33, 100)]
    text = nasty_text(31, 150000)
    while len(out) < 1600:
        start, size = r.randrange(len(text)), r.choice([1, 3, 10, 30, 100, 400])
        out.append(text[start:start + size])
    # What normalizers change or move, and some of all else.
    known = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    letters = [c for c in known if c.lower() != c or unicodedata.normalize("NFKD", c) != c and not "가" <= c <= "힣" or unicodedata.combining(c)
               or r.random() < 0.03]
    r.shuffle(letters)
    out += ["".join(letters[i:i + 300]) for i in range(0, len(letters), 300)]
    out += [mixed_bits(seed, r.choice([2, 5, 20, 80])) for seed in range(400)]
    words = (" ".join(WORDS) + " the cat sat on the mat, and 1024 dogs didn't.").split()
    out += [r.choice(["", " "]) + r.choice([" ", "  ", "\n"]).join(r.choice(words) for _ in range(r.randint(1, 60))) for _ in range(200)]
    return out


MARK = "\u2581"


def plain_text(seed, count):
    """Words and a little of everything else."""
    r = random.Random(seed)
    words = (" ".join(WORDS) + " the cat sat on the mat, and 1024 dogs didn't see these trees over there. running walked walking talked").split()
    return "".join(r.choice([" ", " ", " ", "  ", "\n", ". "]) + (r.choice(words) if r.random() < 0.95 else r.choice(BITS)) for _ in range(count))


def train_sentencepiece(text, path, **options):
    import sentencepiece
    settings = dict(model_type="bpe", vocab_size=600, character_coverage=0.9995, byte_fallback=True, split_digits=True, add_dummy_prefix=True,
                    allow_whitespace_only_pieces=True, remove_extra_whitespaces=False, normalization_rule_name="identity", minloglevel=2)
    lines = [line for line in text.replace("\x00", "").split("\n") if line]
    model = io.BytesIO()  # a file's name would be in the model
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **(settings | options))
    path.with_suffix(".model").write_bytes(model.getvalue())


def bpe_of_sentencepiece(path, keep=1, **options):
    """As transformers converts it: the merges are all ways to divide a piece, by score; only the first part `keep` of them."""
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
    vocab = {sp.id_to_piece(i): i for i in range(sp.get_piece_size())}
    merges = []
    for piece, i in vocab.items():
        ways = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
        merges += [(sp.get_score(i), way) for way in sorted(ways, key=lambda w: (vocab[w[0]], vocab[w[1]]))]
    merges.sort(key=lambda m: -m[0])
    merges = merges[:int(len(merges) * keep)]
    t = Tokenizer(models.BPE(vocab, [way for _, way in merges], **(dict(unk_token="<unk>", fuse_unk=True, byte_fallback=True) | options)))
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<unk>", "<s>", "</s>")])
    return t


def mark_decoder(strip=1, bytes=True):
    return decoders.Sequence([decoders.Replace(MARK, " ")] + ([decoders.ByteFallback()] if bytes else []) + [decoders.Fuse()]
                             + ([decoders.Strip(" ", strip, 0)] if strip else []))


def kinds(folder):
    """Tokenizers by name, and the files that Crest reads."""
    corpus = plain_text(3, 20000) + "    if x:\n        y  =  1\n" * 20
    train_sentencepiece(corpus, folder / "sp-bpe")
    train_sentencepiece(corpus, folder / "sp-no-prefix", add_dummy_prefix=False, vocab_size=550)
    train_sentencepiece(corpus, folder / "sp-unknown", byte_fallback=False, character_coverage=0.99, vocab_size=250)
    n, p, made = normalizers, pre_tokenizers, {}

    def character(name, normalizer, pre_tokenizer, decoder, model="sp-bpe", **options):
        t = bpe_of_sentencepiece(folder / f"{model}.model", **options)
        if normalizer:
            t.normalizer = normalizer
        if pre_tokenizer:
            t.pre_tokenizer = pre_tokenizer
        t.decoder = decoder
        t.add_tokens([AddedToken("<|tool|>", special=False, normalized=False)])
        made[name] = t

    mark = n.Replace(" ", MARK)
    character("gemma", mark, p.Split(" ", "merged_with_previous"), mark_decoder(0))
    # Phi-3's: some added tokens take the white space beside them. Names with "special": they are found in texts, too.
    for name in ("strips", "strips-special"):
        character(name, n.Sequence([n.Prepend(MARK), mark]), None, mark_decoder())
        made[name].add_special_tokens([AddedToken("<|user|>", special=True, normalized=False, rstrip=True),
                                       AddedToken("<|mask|>", special=True, normalized=False, lstrip=True)])
        made[name].add_tokens([AddedToken("<|left|>", special=False, normalized=False, lstrip=True)])
    character("llama", n.Sequence([n.Prepend(MARK), mark]), None, mark_decoder())
    # Found only where no character of a word is beside them; not even "the" in "<thethe>", which is none itself.
    for name, normalizer, prefix in (("words", n.Sequence([n.Prepend(MARK), mark]), 1), ("words-lowercase", n.Sequence([n.Lowercase(), mark]), 0)):
        character(name, normalizer, None, mark_decoder(prefix))
        made[name].add_tokens([AddedToken("the", special=False, normalized=not prefix, single_word=True),
                               AddedToken("e", special=False, normalized=False, single_word=True),
                               AddedToken("th", special=False, normalized=False),
                               AddedToken("=", special=False, normalized=False, single_word=True),
                               AddedToken("don", special=False, normalized=False, single_word=True, lstrip=True)])
    for scheme, split in (("first", False), ("always", True), ("always", False), ("never", True)):
        character(f"metaspace-{scheme}-{split}", None, p.Metaspace(MARK, scheme, split), decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(MARK, scheme)])
                  if scheme == "always" and not split else mark_decoder(0 if scheme == "never" else 1))
    # Tokens that no merges make are found as whole words only.
    character("ignore-merges", None, p.Metaspace(MARK, "always", True), mark_decoder(1), keep=0.3, ignore_merges=True)
    character("normalized", n.Sequence([n.NFKC(), n.Lowercase(), n.Strip(), n.Replace(Regex(" {2,}"), " "), n.Prepend(MARK), mark]), None, mark_decoder())
    character("replaced", n.Sequence([n.NFD(), n.Replace("a", "bb"), n.Replace("\u0301", "x"), n.Strip(True, False), mark]), None, mark_decoder(0))
    character("unknown", n.Sequence([n.Prepend(MARK), mark]), None, mark_decoder(1, False), "sp-unknown", byte_fallback=False)
    character("unknown-single", n.Sequence([n.Prepend(MARK), mark]), None, mark_decoder(1, False), "sp-unknown", byte_fallback=False, fuse_unk=False)
    # A vocabulary without the mark of a space.
    vocab = {f"<0x{b:02X}>": b for b in range(256)} | {c: 256 + i for i, c in enumerate("aehnst")} | {"th": 262, "the": 263}
    t = Tokenizer(models.BPE(vocab, [("t", "h"), ("th", "e")], byte_fallback=True))
    t.normalizer, t.decoder = n.Sequence([n.Prepend(MARK), mark]), mark_decoder()
    made["no-mark"] = t
    for name, normalizer, steps, prefix in (("digits", None, [p.Digits(True)], False), ("digit-runs", None, [p.Digits(False)], True),
                                            ("prefix", None, [], True), ("lowercase", n.Sequence([n.NFKD(), n.Lowercase()]), [], False),
                                            ("nfkc", n.NFKC(), [], False), ("nfd", n.NFD(), [p.Digits(True)], True)):
        t = Tokenizer(models.BPE())
        if normalizer:
            t.normalizer = normalizer
        t.pre_tokenizer = p.Sequence(steps + [p.ByteLevel(add_prefix_space=prefix)]) if steps else p.ByteLevel(add_prefix_space=prefix)
        t.decoder = decoders.ByteLevel()
        t.train_from_iterator([corpus], trainers.BpeTrainer(vocab_size=500, initial_alphabet=p.ByteLevel.alphabet(), show_progress=False))
        t.add_special_tokens(["<|endoftext|>"])
        t.add_tokens([AddedToken("<|tool|>", special=False, normalized=False)])
        made[name] = t
    return made


def write_kinds(folder):
    for name, t in kinds(folder).items():
        t.save(str(folder / f"{name}.json"))
    (folder / "documents.txt").write_text(json.dumps(documents()))


def check_kinds(folder):
    import sentencepiece
    files = sorted([*folder.glob("*.model"), *(f for f in folder.glob("*.json"))])
    assert len(files) > 15, files
    for path in files:
        if path.suffix == ".model":
            sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
            encode, decode = sp.encode, sp.decode
        else:
            t = Tokenizer.from_file(str(path))
            t.encode_special_tokens = "special" not in path.name

            def encode(text, t=t):
                return t.encode(text, add_special_tokens=False).ids

            def decode(ids, t=t):
                return t.decode(ids, skip_special_tokens=False)
        ids = [[int(x) for x in line.split()] for line in Path(f"{path}.ids").read_text().split("\n")[:-1]]
        texts = json.loads(Path(f"{path}.texts").read_text())
        all_documents = documents()
        assert len(ids) == len(texts) == len(all_documents) > 2000
        wrong = 0
        for text, ours, back in zip(all_documents, ids, texts):
            wanted = encode(text)
            spoken = decode(wanted) if "unk" not in path.name or path.suffix != ".model" else back  # sentencepiece writes unknown ones as " \u2047 "
            if ours != wanted or back != spoken:
                wrong += 1
                if wrong <= 3:
                    print(f"{path.name}: {text!r}\n  crest {ours}\n  wanted {wanted}\n  text {back!r}\n  wanted {spoken!r}")
        if wrong:
            print(f"{path.name}: {wrong} documents differ")
            return 1
        print(f"{path.name}: {len(ids)} documents are equal, {sum(map(len, ids))} tokens")
    return 0


def kind_fixtures(folder):
    """A small model of Llama's kind, and what sentencepiece makes of the lines of nasty.txt."""
    import sentencepiece
    corpus = plain_text(5, 5000)
    train_sentencepiece(corpus, folder / "sentencepiece", vocab_size=480)
    sp = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    lines = (folder / "nasty.txt").read_bytes().decode().split("\n")
    (folder / "sentencepiece-ids.txt").write_text("".join(" ".join(map(str, sp.encode(line))) + "\n" for line in lines))


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
        kind_fixtures(folder)
    elif command == "kind-fixtures":
        kind_fixtures(Path(args[0]))
    elif command == "write-kinds":
        write_kinds(Path(args[0]))
    elif command == "check-kinds":
        return check_kinds(Path(args[0]))
    return 0


sys.exit(main())

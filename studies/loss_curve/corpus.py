#!/usr/bin/env python3
"""Builds the study's data: English text of Debian packages -> documents -> byte-level BPE -> token shards.

  studies/loss_curve/corpus.py --crest "build/release/crest" --out build/curve_data

Needs apt, dpkg-deb and a Debian 12 mirror. OUT gets what `crest data prepare` writes and packages.txt: every package
with its version, SHA-256 and the bytes taken. Packages found in --packages are used as they are, so a second run gives
the same corpus; a mirror that has newer versions gives a slightly different one.
"""
import argparse
import collections
import gzip
import hashlib
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

from html_text import html_text

# package: paths taken (regular expression), paths left out, how the file becomes text
HTML, TEXT, DICTIONARY = "html", "text", "dictionary"
SOURCES = {
    "anarchism": (r"/markdown/.*\.md\.gz$", None, TEXT),
    "apache2-doc": (r"/manual/en/.*\.html$", None, HTML),
    "aptitude-doc-en": (r"\.html$", None, HTML),
    "c++-annotations-html": (r"\.html$", None, HTML),
    "debian-faq": (r"\.en\.html$", None, HTML),
    "debian-handbook": (r"/html/en-US/.*\.html$", None, HTML),
    "debian-policy": (r"\.rst\.txt$|\.txt\.gz$", r"policy\.txt|changelog|upgrading", TEXT),
    "debian-reference-en": (r"\.en\.html$", None, HTML),
    "developers-reference": (r"\.rst\.txt$", None, TEXT),
    "dict-devil": (r"\.dict\.dz$", None, DICTIONARY),
    "dict-foldoc": (r"\.dict\.dz$", None, DICTIONARY),
    "dict-gcide": (r"\.dict\.dz$", None, DICTIONARY),
    "dict-jargon": (r"\.dict\.dz$", None, DICTIONARY),
    "dict-wn": (r"\.dict\.dz$", None, DICTIONARY),
    "exim4-doc-html": (r"/spec_html/.*\.html$|\.html$", r"index", HTML),
    "fortunes": (r"/games/fortunes/[a-z-]*$", None, TEXT),
    "gimp-help-en": (r"\.html$", None, HTML),
    "git-doc": (r"\.txt$", r"RelNotes", TEXT),
    "gnome-user-docs": (r"/help/C/.*\.page$", None, HTML),
    "harden-doc": (r"/html/.*\.en\.html$|/en[^/]*/.*\.html$", None, HTML),
    "installation-guide-amd64": (r"/en/.*\.html$", None, HTML),
    "libboost1.74-doc": (r"\.html$", r"/boost/.*/(class|struct)|index|headers", HTML),
    "libreoffice-help-en-us": (r"/en-US/.*\.html$", None, HTML),
    "linux-doc-6.1": (r"\.rst\.txt$", r"/translations/", TEXT),
    "maxima-doc": (r"/html/maxima_[0-9]*\.html$|/maxima_[0-9]*\.html$", r"/(de|es|pt)[^/]*/", HTML),
    "octave-doc": (r"\.html$", r"doxyhtml|liboctave", HTML),
    "perl-doc": (r"\.pod$", r"perl[0-9]+delta", TEXT),
    "postgresql-doc-15": (r"\.html$", r"release|bookindex", HTML),
    "python-django-doc": (r"\.html$", r"genindex|modindex|search|/releases/", HTML),
    "python-sqlalchemy-doc": (r"\.rst$", r"changelog", TEXT),
    "python3.11-doc": (r"\.rst\.txt$", r"changelog", TEXT),
    "rust-doc": (r"/html/(book|reference|nomicon|cargo|rustc|rustdoc|rust-by-example|embedded-book|edition-guide)/.*"
                 r"\.html$", r"/print\.html$|/(first|second|2018)-edition/", HTML),
    "sphinx-doc": (r"\.rst\.txt$", r"changes", TEXT),
    "sqlite3-doc": (r"\.html$", r"changes|releaselog|keyword_index|doc_.*list", HTML),
    "vim-runtime": (r"/doc/[a-z_0-9]*\.txt$", r"version[0-9]\.txt", TEXT),
}
LARGEST_SHARE = 10_000_000  # bytes of one package, so that no one of them dominates
PART = 200_000              # longer documents are divided at empty lines


def download(folder):
    folder.mkdir(parents=True, exist_ok=True)
    missing = [p for p in SOURCES if not list(folder.glob(f"{p}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", "-qq", *missing], cwd=folder, check=True)
    return {p: sorted(folder.glob(f"{p}_*.deb"))[-1] for p in SOURCES}


def decoded(data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def tidy(text):
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ").replace("¶", "")
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text)
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def divided(text):
    """Parts of at most about PART characters; a cut is at an empty line, in dictionaries before a headword."""
    while len(text) > PART:
        cut = max(text.rfind("\n\n", 0, PART) + 1, text.rfind("\n", 0, PART // 2) + 1)
        yield text[:cut]
        text = text[cut:]
    yield text


def documents(deb, wanted, unwanted, kind):
    archive = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE)
    found = []
    with tarfile.open(fileobj=archive.stdout, mode="r|") as tar:
        for entry in tar:
            if not entry.isfile() or not re.search(wanted, entry.name):
                continue
            if unwanted and re.search(unwanted, entry.name):
                continue
            data = tar.extractfile(entry).read()
            if entry.name.endswith((".gz", ".dz")):
                data = gzip.decompress(data)
            text = decoded(data)
            found.append(html_text(text) if kind == HTML else text)
    archive.wait()
    return [tidy(part) for text in found for part in divided(tidy(text))]


def without_boilerplate(texts):
    """Drops lines that a tenth of a package's documents (and at least ten) have: headings of pages, licences, links."""
    counts = collections.Counter(line for t in texts for line in set(t.split("\n")) if line.strip())
    often = {line for line, n in counts.items() if n >= max(10, len(texts) / 10)}
    return ["\n".join(line for line in t.split("\n") if line not in often) for t in texts]


def is_english(text):
    """No other script than Latin, and English function words where there are enough words to tell."""
    foreign = sum(c > "\u024f" and not "\u2000" <= c <= "\u2bff" for c in text)
    if foreign > 0.02 * len(text):
        return False
    words = re.findall(r"[a-z]+", text.lower())
    common = sum(w in ("the", "of", "to", "and", "a", "in", "is", "for", "be", "that") for w in words)
    return len(words) >= 50 and common > 0.08 * len(words)


def build(packages, folder, limit):
    """Writes the documents as FOLDER/HASH.txt; their order, that of the hashes, mixes the packages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    chosen, facts = {}, {}
    for package, rule in SOURCES.items():
        by_hash = {}
        for text in without_boilerplate(documents(packages[package], *rule)):
            text = tidy(text)
            if is_english(text):
                data = text.encode("utf-8", "ignore")
                by_hash[hashlib.sha256(data).hexdigest()[:24]] = data
        taken = 0
        for name in sorted(by_hash):
            if taken + len(by_hash[name]) <= LARGEST_SHARE and name not in chosen:
                chosen[name] = (package, by_hash[name])
                taken += len(by_hash[name])
        print(f"{package:26} {len(by_hash):5} documents, {sum(map(len, by_hash.values())) / 1e6:6.1f} MB, "
              f"{taken / 1e6:6.1f} MB taken", flush=True)
    total = 0
    for name in sorted(chosen):
        package, data = chosen[name]
        if total + len(data) > limit:
            continue
        (folder / f"{name}.txt").write_bytes(data)
        total += len(data)
        facts[package] = facts.get(package, 0) + len(data)
    print(f"{'together':26} {total / 1e6:.1f} MB")
    return facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crest", default="build/release/crest", help="command that starts crest")
    parser.add_argument("--out", type=Path, default=Path("build/curve_data"), help="prepared data")
    parser.add_argument("--packages", type=Path, default=Path("build/curve_packages"), help="downloaded packages")
    parser.add_argument("--text", type=Path, default=Path("build/curve_text"), help="the documents")
    parser.add_argument("--vocab", type=int, default=50257, help="of the tokenizer (default: GPT-2's 50257)")
    parser.add_argument("--bytes", type=int, default=60_000_000, help="text taken at most")
    parser.add_argument("--val-fraction", type=float, default=0.02)
    args = parser.parse_args()
    packages = download(args.packages)
    taken = build(packages, args.text, args.bytes)
    subprocess.run([*shlex.split(args.crest), "data", "prepare", str(args.text), "--tokenizer", f"bpe:{args.vocab}",
                    "--val-fraction", str(args.val_fraction), "--out", str(args.out), "--overwrite"], check=True)
    with open(args.out / "packages.txt", "w") as f:
        for package, deb in packages.items():
            version = subprocess.run(["dpkg-deb", "-f", deb, "Version"], check=True, capture_output=True, text=True)
            digest = hashlib.sha256(deb.read_bytes()).hexdigest()
            f.write(f"{package} {version.stdout.strip()} {digest} {taken.get(package, 0)}\n")


if __name__ == "__main__":
    main()

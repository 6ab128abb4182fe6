#!/usr/bin/env python3
"""Tokenizing a text with GPT-2's vocabulary: Crest, tokenizers and tiktoken in turns on one thread, then Crest on more;
and a vocabulary of 32000 trained on the text.

  crest data get-gpt2-tokenizer --out gpt2.json
  compare.py --crest 'crest' --tokenizer gpt2.json --text big.txt [--rounds 3] [--threads 1,2]

Crest's time is of the whole command `crest data prepare`: start, reading, tokenizing, writing shards. The others' is of
their encode call alone, on documents of 100 KB that are in memory (both are much slower on longer ones). The best round
of each counts. Needs PyPI's tokenizers, tiktoken.
"""
import argparse, os, shlex, shutil, subprocess, tempfile, time

def prepared(crest, text, tokenizer, threads):
    out = tempfile.mkdtemp()
    command = shlex.split(crest) + ["data", "prepare", text, "--tokenizer", tokenizer, "--out", out + "/d"]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
    seconds = time.perf_counter() - start
    shutil.rmtree(out)
    return seconds

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--crest", default="crest"); p.add_argument("--tokenizer", required=True)
    p.add_argument("--text", required=True); p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", default="1,2"); p.add_argument("--no-train", action="store_true")
    a = p.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    import tokenizers, tiktoken
    text = open(a.text, encoding="utf-8", errors="replace").read()
    documents = [text[i:i + 100_000] for i in range(0, len(text), 100_000)]
    megabytes = os.path.getsize(a.text) / 1e6
    peer = tokenizers.Tokenizer.from_file(a.tokenizer)
    stand_ins = bytes_of_stand_ins()
    ranks = {bytes(stand_ins[c] for c in token): i for token, i in peer.get_vocab(False).items()}
    rule = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    tik = tiktoken.Encoding("gpt2", pat_str=rule, mergeable_ranks=ranks, special_tokens={})
    def timed(work):
        start = time.perf_counter(); work(); return time.perf_counter() - start
    ways = {f"crest, {n} thread{'s' * (n != '1')}": (lambda n=n: prepared(a.crest, a.text, a.tokenizer, n)) for n in a.threads.split(",")}
    ways[f"tokenizers {tokenizers.__version__}, 1 thread"] = lambda: timed(lambda: [peer.encode(d, add_special_tokens=False) for d in documents])
    ways[f"tiktoken {tiktoken.__version__}, 1 thread"] = lambda: timed(lambda: [tik.encode_ordinary(d) for d in documents])
    seconds = {name: [] for name in ways}
    for _ in range(a.rounds):
        for name, way in ways.items(): seconds[name].append(way())
    if not a.no_train: seconds["crest, bpe:32000 trained and applied"] = [prepared(a.crest, a.text, "bpe:32000", a.threads.split(",")[-1])]
    print(f"{megabytes:.1f} MB\n\n| | s (rounds) | MB/s | crest (1 thread) faster by |\n|---|---|---|---|")
    ours = min(next(iter(seconds.values())))
    for name, s in seconds.items():
        print(f"| {name} | {min(s):.2f} ({', '.join(f'{x:.2f}' for x in s)}) | {megabytes / min(s):.1f} | {min(s) / ours:.1f}x |")

# GPT-2's stand-ins of bytes (bytes_to_unicode), backwards.
def bytes_of_stand_ins():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}

if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Text through Crest's checkpoints: AutoTokenizer and tiktoken give Crest's tokens, generate() ends, and what
transformers saved again is the same tokenizer to Crest. Usage: SCRIPT WORK_FOLDER"""
import glob
import json
import os
import sys

import numpy as np
import tiktoken
import torch
import transformers
from common import crest

work = sys.argv[1]
os.chdir(work)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
RULES = ["gpt2", "llama3", "cl100k", "qwen2", "o200k"]
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SIZES = "preset = \"{}\"\nlayers = 1\nwidth = 32\nheads = 2\nkv_heads = 2\nhead_dim = 16\nff = 128\ncontext = 64\n"
QUIET = ["--device", "cpu", "--no-store", "--quiet", "--sample-every", 0]


def documents():
    """600 documents of words, numbers, code, other scripts and blank lines, the same in every run."""
    rng = np.random.default_rng(11)
    pieces = ["the king", " said", "it's", "We'LL", " 12345", " 7", "\n", "\n\n", "   ", "\t", " fn(x) {", "};", "--", "...", "“Über",
              " straße”", " привет", " мир", "日本語", "こんにちは", " 🙂", "e\u0301", " ñ", "I'd", " HTTPServer", "camelCase", " 3.14", "\r\n"]
    return ["x" + "".join(rng.choice(pieces, rng.integers(5, 60))) for _ in range(600)]


def tokens_of(folder, end):
    """The tokens of the documents of a prepared folder."""
    tokens = np.concatenate([np.fromfile(f, dtype=np.uint16, offset=1024) for f in sorted(glob.glob(f"{folder}/train-*.bin"))])
    parts = np.split(tokens, np.flatnonzero(tokens == end))
    return [part[part != end].tolist() for part in parts if (part != end).any()]


def of_tiktoken(path):
    """The vocabulary of a tokenizer.json in tiktoken, whose ranks are the ids: those of Crest follow the merges."""
    file = json.load(open(path))
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(b): b for b in plain}
    alphabet.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in plain)})
    special = {t["content"]: t["id"] for t in file["added_tokens"]}
    ranks = {bytes(alphabet[c] for c in text): id for text, id in file["model"]["vocab"].items() if text not in special}
    steps = file["pre_tokenizer"].get("pretokenizers")
    pattern = steps[0]["pattern"]["Regex"] if steps else GPT2_PATTERN
    return tiktoken.Encoding("crest", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)


def tokens_are_equal():
    texts = documents()
    with open("documents.jsonl", "w") as f:
        for text in texts:
            f.write(json.dumps({"text": text}) + "\n")
    for rule in RULES:
        crest("data", "prepare", "documents.jsonl", "--tokenizer", "bpe:600", "--split-rule", rule, "--val-fraction", 0, "--out", f"data-{rule}")
        ours = None
        for shape in ("nano", "llama-nano"):
            with open(f"{shape}.toml", "w") as f:
                f.write(SIZES.format(shape))
            run = f"{rule}-{shape}"
            crest("train", "--data", f"data-{rule}", "--model", f"{shape}.toml", "--batch", 1, "--seq", 16, "--steps", 1, "--out", run, *QUIET)
            folder = f"{run}/checkpoints/step-000001"
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            end = json.load(open(f"{folder}/config.json"))["eos_token_id"]
            ours = ours or tokens_of(f"data-{rule}", end)
            inputs = tokenizer(texts)
            assert set(inputs) == {"input_ids", "attention_mask"}, set(inputs)  # GPT-2 would embed token types
            wrong = sum(a != b for a, b in zip(ours, inputs["input_ids"], strict=True))
            lossy = sum(tokenizer.decode(a) != b for a, b in zip(ours, texts))
            assert wrong == lossy == 0, f"{run}: {wrong} documents with other tokens, {lossy} that decode to another text"
            assert tokenizer.eos_token_id == end and tokenizer.eos_token == "<|endoftext|>" and tokenizer.bos_token is None
            assert tokenizer.model_max_length == 64
        theirs = of_tiktoken(f"data-{rule}/tokenizer.json")
        assert sum(a != theirs.encode_ordinary(b) for a, b in zip(ours, texts)) == 0, rule
        print(f"{rule}: {len(ours)} documents, {sum(map(len, ours))} tokens")


def saved_again():
    """transformers saves tokenizer and model again. Crest takes them for what they are."""
    run = "llama3-nano/checkpoints/step-000001"
    transformers.AutoTokenizer.from_pretrained(run).save_pretrained("again")
    transformers.AutoModelForCausalLM.from_pretrained(run).save_pretrained("again")
    assert open("again/tokenizer.json").read() != open(f"{run}/tokenizer.json").read()
    loss = [json.loads(crest("eval", "--run", r, "--data", "data-llama3", "--split", "train", "--seq", 16, "--device", "cpu",
                             "--precision", "fp32", "--json"))["loss"] for r in (run, "again")]
    assert loss[0] == loss[1], loss
    crest("train", "--init", "again", "--data", "data-llama3", "--steps", 1, "--batch", 1, "--out", "from-again", *QUIET)
    said = crest("train", "--init", "again", "--data", "data-qwen2", "--steps", 1, "--batch", 1, "--out", "other", *QUIET, fails=True)
    assert "not prepared with the model's tokenizer" in said and not os.path.exists("other"), said
    # Text takes the model's tokenizer, whatever its length.
    with open("text.txt", "w") as f:
        f.write("\n".join(documents()))
    crest("train", "text.txt", "--init", "again", "--steps", 1, "--batch", 1, "--out", "text-run", *QUIET)
    saved = [transformers.AutoTokenizer.from_pretrained(r) for r in ("again", "text-run/checkpoints/step-000001")]
    assert saved[0].get_vocab() == saved[1].get_vocab()


def generation_ends():
    """A model that has seen "ab" and the end of the text."""
    with open("short.jsonl", "w") as f:
        f.write('{"text": "abcdef"}\n' * 400)
    crest("data", "prepare", "short.jsonl", "--out", "short")
    for shape in ("nano", "llama-nano"):
        run = f"short-{shape}"
        crest("train", "--data", "short", "--model", f"{shape}.toml", "--batch", 4, "--seq", 32, "--steps", 60, "--lr", 1e-2, "--out", run, *QUIET)
        folder = f"{run}/checkpoints/step-000060"
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        end = tokenizer.eos_token_id
        assert model.generation_config.eos_token_id == model.config.eos_token_id == end == 256
        inputs = tokenizer("abc", return_tensors="pt")
        out = model.generate(**inputs, max_new_tokens=40, do_sample=False, pad_token_id=end)[0].tolist()
        assert tokenizer.decode(out) == "abcdef<|endoftext|>", tokenizer.decode(out)
        ours = crest("sample", "--run", run, "--prompt", "abc", "--temperature", 0, "--max-tokens", 40, "--device", "cpu", "--json")
        sample = json.loads(ours)["samples"][0]
        assert sample["finish"] == "end_of_text" and sample["text"] == "def", sample


def conversations_are_equal():
    """apply_chat_template gives the tokens of each conversation as Crest prepared them."""
    rng = np.random.default_rng(5)
    words = ["the", "king", "said", "It's", "12345", "straße", "привет", "日本語", "a\nb", "I'd"]
    line = lambda: " ".join(rng.choice(words, rng.integers(1, 12)))
    chats = []
    for i in range(60):
        chat = [{"role": "system", "content": line()}] if i % 3 == 0 else []
        for _ in range(rng.integers(1, 4)):
            chat += [{"role": "user", "content": line()}, {"role": "assistant", "content": line()}]
        chats.append(chat)
    with open("chats.jsonl", "w") as f:
        for chat in chats:
            f.write(json.dumps({"messages": chat}) + "\n")
    # A tokenizer with the special tokens of ChatML and Llama 3.
    file = json.load(open("data-llama3/tokenizer.json"))
    special = file["added_tokens"][0]
    for text in ("<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"):
        file["added_tokens"].append(dict(special, content=text, id=file["added_tokens"][-1]["id"] + 1))
    with open("special.json", "w") as f:
        json.dump(file, f)
    for name in ("chatml", "llama3", "llama2", "alpaca", "plain"):
        for kind in ("data-llama3/tokenizer.json", "special.json"):
            run = f"{name}-{os.path.basename(kind)}"
            crest("data", "prepare", "chats.jsonl", "--tokenizer", kind, "--chat-template", name, "--val-fraction", 0, "--out", f"data-{run}")
            crest("train", "--data", f"data-{run}", "--model", "nano.toml", "--batch", 1, "--seq", 16, "--steps", 1, "--out", run, *QUIET)
            tokenizer = transformers.AutoTokenizer.from_pretrained(f"{run}/checkpoints/step-000001")
            end = tokenizer.eos_token_id
            theirs = []
            for chat in chats:
                ids = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=False)
                theirs += ids if ids[-1] == end else ids + [end]
            ours = np.concatenate([np.fromfile(f, dtype=np.uint16, offset=1024) for f in sorted(glob.glob(f"data-{run}/train-*.bin"))])
            assert ours.tolist() in (theirs, theirs[:-1]), run


tokens_are_equal()
conversations_are_equal()
saved_again()
generation_ends()
print("ok: transformers", transformers.__version__, "tiktoken", tiktoken.__version__)

#!/usr/bin/env python3
"""Checks crest export --to gguf with other programs: gguf reads every tensor, llama.cpp writes the same tokens.

  gguf_check.py --crest build/release/crest [--models llama,gpt2] [--tokens 64]

Needs numpy, gguf, tokenizers, and xllamacpp (llama.cpp as a Python package). No GPU.

Models: for each architecture Crest makes a small one, and the script gives it random weights large enough for clear
decisions. gguf.GGUFReader reads its files in f32, f16, bf16 and q8_0. The script computes names and values from
Crest's checkpoint under transformers' names, with gguf.TensorNameMap and gguf.quants. Every tensor of every file
except rope_freqs.weight must equal them byte for byte. llama.cpp then continues a prompt greedily from the f32 file. Every token must be the token
of `crest sample --temperature 0`, and its log-probability within --limit of the one by `crest eval --logits`. Ties are
possible, so the script prints the smallest margin.

Tokenizers: llama.cpp must give the tokens of Hugging Face `tokenizers` for texts of several scripts.
"""
import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEAD = "preset = \"{}\"\nlayers = {}\nwidth = 128\nheads = {}\nkv_heads = {}\nhead_dim = 32\nff = 256\ncontext = 128\nvocab = 512\ntied = {}\n"
LLAMA = HEAD.format("llama-nano", 4, 4, 2, "false")
WIDE = HEAD.format("llama-nano", 4, 4, 2, "true").replace("head_dim = 32", "head_dim = 48")
NEOX = HEAD.format("llama-nano", 4, 4, 4, "false") + 'norm = "layer"\nbias = true\nrotary_dim = 16\n'
# Windows that llama.cpp lacks are wider than the prompt and the new tokens together.
MODELS = {
    "gpt2": HEAD.format("nano", 4, 4, 4, "true"),
    "gpt2-untied": HEAD.format("nano", 4, 4, 4, "false"),
    "llama": LLAMA,
    "llama-tied-wide-heads": WIDE,
    "llama-biases": LLAMA + "attention_bias = true\nmlp_bias = true\n",
    "llama-3": LLAMA + '[rope_scaling]\ntype = "llama3"\nfactor = 8\noriginal_context = 32\n',
    "llama-linear": LLAMA + '[rope_scaling]\ntype = "linear"\nfactor = 4\n',
    "llama-yarn": LLAMA + '[rope_scaling]\ntype = "yarn"\nfactor = 4\noriginal_context = 32\n',
    "llama-yarn-scaled": LLAMA + '[rope_scaling]\ntype = "yarn"\nfactor = 4\noriginal_context = 32\nattention_factor = 1.3\n',
    "llama-dynamic": LLAMA.replace("context = 128", "context = 240") + '[rope_scaling]\ntype = "dynamic"\nfactor = 2\noriginal_context = 120\n',
    "mistral": LLAMA + "window = 100\n",
    "qwen2": LLAMA + "qkv_bias = true\n",
    "qwen2-window": LLAMA + "qkv_bias = true\nwindow = 100\nfull_layers = 1\n",
    "qwen3": WIDE + 'qk_norm = "head"\n',
    "smollm3": LLAMA + 'pattern = "AAAB"\n[layer.B]\nrope = false\n',
    "granite": LLAMA + "embedding_scale = 3.0\nresidual_scale = 0.4\nattention_scale = 0.3\nlogit_scale = 0.5\n",
    "starcoder2": LLAMA + 'norm = "layer"\nbias = true\nactivation = "gelu"\nwindow = 100\n',
    "phi3": LLAMA + 'family = "phi3"\n',
    "phi3-longrope": LLAMA + 'rotary_dim = 24\n[rope_scaling]\ntype = "yarn"\nfactor = 1.0\nattention_factor = 1.2\n',
    "gptneox": NEOX + 'activation = "gelu"\nparallel_residual = true\n',
    "gptneox-in-turn": NEOX + 'activation = "gelu"\n',
    "stablelm": LLAMA + 'norm = "layer"\nnorm_bias = true\nqkv_bias = true\nrotary_dim = 8\n',
    "olmo2": LLAMA + 'qk_norm = "row"\nnorm_position = "after"\n',
    "olmo3": LLAMA + 'qk_norm = "row"\nnorm_position = "after"\nwindow = 9\npattern = "AAAB"\n[layer.B]\nwindow = 0\n'
                     '[layer.B.rope_scaling]\ntype = "yarn"\nfactor = 4\noriginal_context = 32\n',
    "gemma3": WIDE + f'qk_norm = "head"\nnorm_position = "both"\nactivation = "geglu"\nembedding_scale = {128 ** 0.5!r}\n'
                     'window = 9\nlogit_cap = 20\npattern = "AAB"\n[layer.B]\nwindow = 0\nrope_theta = 5000\n',
    "gemma3-linear": WIDE + f'qk_norm = "head"\nnorm_position = "both"\nactivation = "geglu"\nembedding_scale = {128 ** 0.5!r}\n'
                            'window = 9\npattern = "AAB"\n[layer.B]\nwindow = 0\nrope_theta = 5000\n'
                            '[layer.B.rope_scaling]\ntype = "linear"\nfactor = 8\n',
}
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
TEXTS = ["Hello world", "  two  spaces\n\n\nand lines \n", "It's 12345 o'clock, we'LL see: a+b=c; f(x)[0]!? ...", "\ttab\r\n",
         "Schöne Grüße aus Köln. ÀÉÎ", "Привет, мир! 你好，世界 123年 日本語テキスト", "مرحبا 🙂👩‍👩‍👧 café", "x" * 40, " ", "",
         "HTTPServer camelCase snake_case 3.14159e-10", "don't DON'T you've   tabs\t\tend  "]


class Crest:
    def __init__(self, program):
        self.program = program

    def __call__(self, *words):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True,
                              env=dict(os.environ, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1"))
        assert done.returncode == 0, f"crest {words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


def safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        start, out = f.tell(), {}
        for name, t in header.items():
            if name == "__metadata__":
                continue
            assert t["dtype"] in ("F32", "I32"), t
            f.seek(start + t["data_offsets"][0])
            data = f.read(t["data_offsets"][1] - t["data_offsets"][0])
            out[name] = np.frombuffer(data, "<f4" if t["dtype"] == "F32" else "<i4").reshape(t["shape"])
        return out


def pairs(weights, heads):
    """llama.cpp rotates neighboring rows of a head, transformers row i with row i + half."""
    return weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:]).swapaxes(1, 2).reshape(weights.shape)


def expected(folder, architecture, config):
    """Tensors of llama.cpp by name, from a checkpoint under transformers' names."""
    layers = config["n_layer"] if "n_layer" in config else config["num_hidden_layers"]
    arch = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture)
    names = gguf.get_tensor_name_map(arch, layers)
    heads = config.get("num_attention_heads")
    out = {}
    for name, w in safetensors(folder + "/model.safetensors").items():
        to = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert to, name
        if config["model_type"] == "gpt2" and re.search(r"(c_attn|c_proj|c_fc)\.weight$", name):
            w = w.T
        if config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
            w = w + np.float32(1)
        if architecture in ("llama", "granite", "smollm3"):
            if ".q_proj." in name:
                w = pairs(w, heads)
            if ".k_proj." in name:
                w = pairs(w, config["num_key_value_heads"])
        if config["model_type"] == "gpt_neox" and "query_key_value" in name:
            w = w.reshape(heads, 3, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape)
        out[to] = np.ascontiguousarray(w)
    return out


def check_file(path, folder, architecture, config, kind):
    reader = gguf.GGUFReader(path)
    wanted = expected(folder, architecture, config)
    found = {t.name: t for t in reader.tensors}
    extra = set(found) - set(wanted)
    assert set(wanted) <= set(found), set(wanted) - set(found)
    assert extra <= {"rope_freqs.weight", "output.weight"}, extra
    if "output.weight" in extra:
        wanted["output.weight"] = wanted["token_embd.weight"]
    exact = 0
    for name, w in wanted.items():
        t, type_ = found[name], TYPES[kind]
        if w.ndim == 1 or name == "position_embd.weight":
            type_ = TYPES["f32"]
        elif kind == "q8_0" and w.shape[-1] % 32:
            type_ = TYPES["f16"]
        assert t.tensor_type == type_, (name, t.tensor_type, type_)
        assert list(reversed([int(n) for n in t.shape])) == list(w.shape), (name, t.shape, w.shape)
        data = gguf.quants.quantize(w, type_)
        assert np.array_equal(np.asarray(t.data).view(np.uint8).ravel(), np.ascontiguousarray(data).view(np.uint8).ravel()), name
        exact += 1
    return exact


def randomize(run, folder):
    """A folder like the checkpoint, with larger random weights: the text does not repeat one token."""
    latest = os.path.realpath(f"{run}/checkpoints/latest")
    os.makedirs(folder)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(f"{latest}/{name}", folder)
    rng, header, data = np.random.default_rng(1), {}, b""
    less_one = json.load(open(f"{latest}/config.json"))["model_type"] == "gemma3_text"
    for name, w in safetensors(f"{latest}/model.safetensors").items():
        noise = rng.normal(size=w.shape)
        if w.ndim == 1:
            new = 0.2 * noise + (1 if "norm" in name or "ln_" in name else 0) * name.endswith("weight") * (not less_one)
        else:
            new = noise * (0.05 if less_one and "embed" in name else 0.3 if re.search("embed|wte|wpe|lm_head", name) else 0.15)
        if w.ndim == 2 and w.shape[0] == 512:
            new[511] = 0  # the end of text, which llama.cpp leaves out here and Crest does not
        stored = new.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [len(data), len(data) + len(stored)]}
        data += stored
    text = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


class LlamaCpp:
    """A file in llama.cpp, computing in fp32 as far as it can."""

    def __init__(self, path, context):
        import xllamacpp
        p = xllamacpp.CommonParams()
        p.model.path = path
        p.n_ctx, p.n_predict, p.n_parallel, p.warmup, p.verbosity = context, 64, 1, False, -1
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
        p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        p.swa_full = True
        self.server = xllamacpp.Server(p)

    def post(self, path, request):
        request = urllib.request.Request(self.server.listening_address + path, json.dumps(request).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))

    def greedy(self, prompt, tokens):
        out = self.post("/completion", {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True,
                                        "return_tokens": True, "n_probs": 1, "cache_prompt": False})
        logprobs, at = {}, 0  # parts of characters have none
        for step in out["completion_probabilities"]:
            at = out["tokens"].index(step["id"], at) + 1
            logprobs[at - 1] = step["logprob"]
        assert len(logprobs) > tokens // 2, out
        return out["tokens"], logprobs

    def tokenize(self, text):
        return self.post("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def write_shard(folder, tokens):
    """As llm.c's data scripts write it."""
    os.makedirs(folder, exist_ok=True)
    header = np.zeros(256, dtype=np.int32)
    header[:3] = 20240520, 1, len(tokens)
    for kind in ("train", "val"):
        with open(f"{folder}/x_{kind}_000000.bin", "wb") as f:
            f.write(header.tobytes() + np.array(tokens, dtype=np.uint16).tobytes())


def check_model(crest, work, name, toml, o):
    run = f"{work}/{name}"
    with open(f"{run}.toml", "w") as f:
        f.write(toml)
    crest("train", "--data", f"{work}/data", "--model", f"{run}.toml", "--out", f"{run}-made", "--steps", 1, "--batch", 1, "--seq",
          32, "--precision", "fp32", "--quiet", "--sample-every", 0, "--val-every", 0, "--threads", 1)
    folder = run
    randomize(f"{run}-made", folder)
    config = json.load(open(folder + "/config.json"))
    sizes = []
    for kind in TYPES:
        out = json.loads(crest("export", run, "--to", "gguf", "--dtype", kind, "--out", f"{run}-{kind}.gguf", "--json"))
        architecture = str(gguf.GGUFReader(f"{run}-{kind}.gguf").fields["general.architecture"].contents())
        assert out["bytes"] == os.path.getsize(f"{run}-{kind}.gguf") and out["stored"] == kind, out
        tensors = check_file(f"{run}-{kind}.gguf", folder, architecture, config, kind)
        sizes.append(f"{kind} {out['bytes']}")
    prompt = np.random.default_rng(7).integers(0, 511, 16).tolist()
    sample = json.loads(crest("sample", "--run", run, "--prompt-tokens", ",".join(map(str, prompt)), "--max-tokens", o.tokens,
                              "--temperature", 0, "--ignore-end", "--precision", "fp32", "--json"))["samples"][0]["tokens"]
    ours = sample[-o.tokens:]
    theirs, logprobs = LlamaCpp(f"{run}-f32.gguf", 128).greedy(prompt, o.tokens)
    sequence = prompt + theirs
    write_shard(f"{work}/sequence", sequence + [0])
    crest("eval", "--run", run, "--data", f"{work}/sequence", "--precision", "fp32", "--batch", 1, "--seq", len(sequence),
          "--logits", f"{work}/logits.safetensors", "--json")
    logits = log_softmax(safetensors(f"{work}/logits.safetensors")["logits"])
    rows = logits[len(prompt) - 1:len(prompt) - 1 + o.tokens]
    worst = max(abs(rows[i, theirs[i]] - p) for i, p in logprobs.items())
    two = np.sort(rows, -1)[:, -2:]
    same = sum(a == b for a, b in zip(ours, theirs))
    ok = same == o.tokens == len(theirs) and worst < o.limit
    print(f"{name:22} {architecture:10} {config['model_type']:12} tensors equal: {tensors} x {len(TYPES)}; greedy tokens equal: "
          f"{same} of {o.tokens} ({len(set(theirs))} different); log-probabilities within {worst:.1e}, "
          f"smallest margin {np.min(two[:, 1] - two[:, 0]):.1e}{'' if ok else '   FAILED'}", flush=True)
    return ok


def check_tokenizers(crest, work, o):
    import sentencepiece
    from tokenizers import Tokenizer
    corpus = f"{work}/text.txt"
    sentencepiece.SentencePieceTrainer.train(
        input=corpus, model_prefix=f"{work}/spm", vocab_size=600, model_type="bpe", byte_fallback=True, character_coverage=0.999,
        normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    base = json.load(open(f"{work}/data/tokenizer.json"))
    patterns = {"llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
                "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    files = {"gpt2 (bpe:512)": f"{work}/data/tokenizer.json", "bytes": "bytes", "SentencePiece": f"{work}/spm.model"}

    def variant(name, change):
        copy = json.loads(json.dumps(base))
        change(copy)
        files[name] = f"{work}/{name.replace(' ', '-')}.json"
        json.dump(copy, open(files[name], "w"))

    for rule, pattern in patterns.items():
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        variant(rule, lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split, dict(byte_level, use_regex=False)]}))
    variant("digits apart", lambda t: t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, dict(byte_level, use_regex=True)]}))
    split3 = {"type": "Split", "pattern": {"Regex": patterns["llama3"]}, "behavior": "Isolated", "invert": False}

    def llama3(t):
        t.update(pre_tokenizer={"type": "Sequence", "pretokenizers": [split3, dict(byte_level, use_regex=False)]})
        t["model"]["ignore_merges"] = True
        t["added_tokens"].append({"id": 512, "content": "<|user|>", "single_word": False, "lstrip": False, "rstrip": False,
                                  "normalized": False, "special": False})
    variant("llama3 with ignore_merges", llama3)
    texts = TEXTS + [open(corpus).read()[:20000], "a<|user|>b <|user|>"]
    good = True
    for name, file in files.items():
        key = re.sub(r"\W+", "-", name)
        crest("data", "prepare", corpus, "--tokenizer", file, "--out", f"{work}/data-{key}")
        run = f"{work}/tokenizer-{key}"
        toml = f"{run}.toml"
        open(toml, "w").write(MODELS["llama"].replace("vocab = 512\n", ""))
        crest("train", "--data", f"{work}/data-{key}", "--model", toml, "--out", run, "--steps", 1, "--batch", 1, "--seq", 32,
              "--precision", "fp32", "--quiet", "--sample-every", 0, "--val-every", 0)
        crest("export", run, "--to", "gguf", "--out", f"{run}.gguf")
        theirs = LlamaCpp(f"{run}.gguf", 128)
        ours = Tokenizer.from_file(os.path.realpath(f"{run}/checkpoints/latest") + "/tokenizer.json")
        wrong = [t for t in texts if theirs.tokenize(t) != ours.encode(t, add_special_tokens=False).ids]
        fields = gguf.GGUFReader(f"{run}.gguf").fields
        print(f"tokenizer {name:28} pre {fields['tokenizer.ggml.pre'].contents():10} {len(texts) - len(wrong)} of {len(texts)} "
              f"texts have equal tokens{'' if not wrong else '   DIFFER: ' + repr([w[:60] for w in wrong])}", flush=True)
        good = good and not wrong
    return good


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--crest", default="build/release/crest"), p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--limit", type=float, default=5e-3, help="llama.cpp's GELU is a table of f16")
    p.add_argument("--no-tokenizers", action="store_true"), p.add_argument("--work")
    o = p.parse_args()
    crest = Crest(os.path.abspath(o.crest))
    work = o.work or tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    with open(f"{work}/text.txt", "w") as f:
        for folder, _, files in sorted(os.walk(ROOT + "/docs")):
            for name in sorted(files):
                if name.endswith(".md"):
                    f.write(open(f"{folder}/{name}").read())
    crest("data", "prepare", f"{work}/text.txt", "--tokenizer", "bpe:512", "--out", f"{work}/data", "--overwrite")
    good = o.no_tokenizers or check_tokenizers(crest, work, o)
    for name in filter(None, o.models.split(",")):
        good = check_model(crest, work, name, MODELS[name], o) and good
    print("all equal" if good else "DIFFERENCES")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

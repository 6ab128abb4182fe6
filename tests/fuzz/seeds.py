#!/usr/bin/env python3
"""Seeds for the fuzz targets: valid files and the known ways to be malformed. Usage: seeds.py TARGET FOLDER [DICTIONARY]
Every seed is written once for each way that its target takes an input (fuzz.h). DICTIONARY gets the words of the seeds."""
import glob
import json
import os
import re
import struct
import sys

target, folder = sys.argv[1:3]
seeds = []
ways = {"json": 4, "json_files": 4, "json_lines": 6, "checkpoint": 4, "safetensors": 3, "shard": 5, "foreign": 4, "runs": 2, "templates": 2,
        "tokenizer": 3, "tokenizer_files": 6, "sentencepiece": 3, "toml_files": 3}.get(target, 0)
root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(begin, end, shape, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


headers = [
    {"a": tensor(0, 16, [2, 2]), "b": tensor(16, 20, [2], "BF16"), "__metadata__": {"format": "pt"}},
    {"a": tensor(0, 8, [2])},
    {"a": tensor(0, 8, [2]), "b": tensor(4, 12, [2])},
    {"a": tensor(0, 2**63, [2**31, 2**32])},
    {"a": tensor(0, 0, [0])},
    {"a": tensor(0, 8, [], "F64")},
    {"a": tensor(8, 0, [2])},
    {"a": {"dtype": "F32"}},
    {"__metadata__": {"a": {"b": {"c": 1}}}},
]
if target == "safetensors":
    seeds += [safetensors(h, bytes(20)) for h in headers] + [safetensors(h, bytes(8)) for h in headers]
    seeds += [bytes([8]) + json.dumps(h).encode() for h in headers]
    seeds += [bytes([20]) + json.dumps(h).encode() for h in headers[:3]]
    seeds += [b"", b"\0" * 8, struct.pack("<Q", 2**63) + b"{}", safetensors(b"{" * 3000), safetensors(b"{}"),
              b"PK\x03\x04" + bytes(30), b"\x80\x02}q\0.", safetensors(b'{"a":' * 2000), safetensors(b'{"\xff":1}')]
elif target == "json":
    manifest = {"format": "crest-checkpoint-1", "step": 3, "files": {
        "state.json": {"bytes": 5, "sha256": "0" * 64},
        "model.safetensors": {"bytes": 9, "header_sha256": "1" * 64, "tensors": {"a": "2" * 64}}}}
    seeds += [json.dumps(manifest)[:-1].encode(), json.dumps(manifest).encode()]
    seeds += [json.dumps({"weight_map": {"a": name}}).encode()
              for name in ("m.safetensors", "../m.safetensors", "/etc/passwd", "a\\b.safetensors", ".safetensors")]
    seeds += [b"[" * 3000, b'{"a":' * 1500, b'"\\ud800"', b"1e999", b"-", b'"\xff"', b"[1,2", b"\xef\xbb\xbf{}",
              b'{"a":1,"a":2}', b"[" + b"0," * 3000 + b"0]", b"123456789012345678901234567890"]
elif target == "toml":
    seeds += [b'[model]\nlayers = 4\nname = "nano"\nlr = 1e-3\nbetas = [0.9, 0.95]\n[[stage]]\nsteps = 10\n',
              b".".join([b"a"] * 3000) + b" = 1", b"[" + b"a." * 3000 + b"a]", b"a = " + b"[" * 3000,
              b"a = " + b"{a=" * 1500, b'a = """\n\\', b"a = '''", b"a = 1979-05-27T07:32:00Z", b"a = 0xffffffffffffffffff",
              b'a.b = 1\na.b.c = 2', b"\xff", b'"\\ud800" = 1', b"a = nan\nb = -inf", b"[[a]]\n[a]"]
elif target == "claims":
    seeds += [b"ratio(ms, p=a, p=b, n=1) >= 1.5", b"not close(value(ms, p=a), 2, 5%) or q ^ -2 * 3 == 1GiB",
              b'value(d, p="b|*") == "f16"', b"linearity(ms, n)", b"where_max(ms, p)", b"(" * 3000, b"-" * 3000 + b"1",
              b"1" + b"+1" * 1500, b"max(ms,", b"value(ms, p=)", b"1e999", b'"', b"accumulate(10, 0.1, \"fp16\", \"bf16\")",
              b'rounded(q, 99)', b'parameters("nano")', b"\xff", b"1/0", b"sum(ms)-sum(ms, p=c)"]
elif target == "templates":
    loop = b"{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{{ m.content | trim }}{% endfor %}"
    seeds += [loop, loop + b"{%- if add_generation_prompt -%}{{ bos_token }}{% else %}x{% endif %}",
              b"{% set ns = namespace(n=0) %}{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
              b"{{ messages[0].content.strip().split('\\n')[-1][1:] | upper }}", b"{{ raise_exception('no') }}",
              b"{% macro f(a, b=2) %}{{ a ~ b }}{% endmacro %}{{ f(1) }}{{ loop.index0 if false else none is none }}",
              b"{{ [1, 'a', {'k': 2}] | tojson(indent=2) }}{# a comment #}", b"{{ " + b"(" * 3000, b"{% if " + b"not " * 3000,
              b"{{ 'a' * 99999999 }}", b"{% for i in range(99999) %}" * 3, b"{{ messages[", b"{%", b"\xff{{ '\xff' }}",
              b".*\\.(q|k|v)_proj", b"model\\.layers\\.(\\d+)\\.self_attn\\.[qk]_proj$", b"(a*)*(a|aa)+b{200}", b"[^\\W_]{2,5}?",
              b"(" * 3000, b"(?=a)", b"\\1", b"a{9999}{9999}", b"[z-a]", b"[", b"\\"]
elif target == "torch_trace":
    def event(cat, name, ts, dur, tid=1, **args):
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}

    step = event("user_annotation", "ProfilerStep#1", 0, 100)
    host = [event("cpu_op", "aten::linear", 1, 50), event("cpu_op", "aten::addmm", 5, 40, **{"External id": 3}),
            event("cuda_runtime", "cudaLaunchKernel", 6, 1, correlation=7)]
    kernels = [event("kernel", "nvjet_tst", 20, 5, 7, stream=7, correlation=7, **{"External id": 3}),
               event("gpu_memcpy", "Memcpy DtoD", 24, 5, "stream 9", stream=9, correlation=8)]
    traces = [[step] + host, [step] + host + kernels, kernels, host, [step], [event("cpu_op", "a", 0, 10), event("cpu_op", "b", 5, 10)],
              [event("cpu_op", "a", 1e16, 1)], [event("cpu_op", "a", -5, -1)], [event("kernel", "k", "1", None)]]
    seeds += [json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "traceEvents": t}).encode() for t in traces]
    seeds += [json.dumps(t).encode() for t in traces]
    seeds += [b"[" * 3000, b'{"traceEvents":' * 300, b"\x1f\x8b", b'{"traceEvents":[{"args":{"args":[{"args":1}]}}]}', b"[1e999]", b""]
elif target == "runs":
    run = {"type": "run", "uid": "0123456789abcdef", "name": "n", "kind": "bench", "status": "done",
           "started": "2026-01-31T12:00:00.000Z", "finished": "", "command": "c", "folder": "", "grid": "", "key": "",
           "phase": "step", "error": "", "imported_from": "", "recipe": {"model": "nano"}, "device": None, "result": {}}
    lines = [{"type": "header", "format": "crest-runs", "version": 1, "runs": 1}, run,
             {"type": "samples", "rows": [[1.5, 0, "a", True], [None, 1, "", False]]},
             {"type": "log", "rows": [[1, 2.5, None, 1e-3, 1.0, 12.5, 41000, False]]},
             {"type": "document", "name": "plan", "json": {"a": [1, {"b": None}]}}, {"type": "end", "runs": 1}]
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    seeds += [text, text[:-20], text.replace(b"[[1.5", b"[" * 100), text.replace(b"1.5", b"1e999"),
              text.replace(b'"n"', b'"\xff"'), b"".join(text.splitlines(True)[i] for i in (0, 1, 1, 5))]
    seeds += [b"iter 100: loss 3.1415, time 123.45ms, mfu 12.30%\nstep 250: train loss 2.5, val loss 2.6\n",
              b"step    7/1000 | loss 11.0 (+nanz)| norm 15.3 (-1.2z)| lr 7.00e-07 | 100.50 ms | 50.2% bf16 MFU | 52 tok/s\n",
              b"step     0 | loss: 10.95 | lr 8.3e-07 | norm: 15.3 | dt: 339.02ms | tok/sec: 1,234,567.5 | mem: 10.5GB\n",
              b"step:10/1750 val_loss:7.6 train_time:1,234ms step_avg:123.40ms\nstep:12/1750 train_time:1500ms\n",
              b" 10%|# | 500/5000 [01:00<09:00, 8.33it/s]\r{'loss': '2.1', 'epoch': 0.1}\n{'train_steps_per_second': 8}\n",
              b'{"step": 5, "loss": null, "step_ms": 12.3, "skipped": true}\n0 train 10.9\n\x1b[1mstep 7\x1b[0m loss nan\n']
elif target == "tokenizer_files":
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": r"\p{N}| ?[^\s\p{L}\p{N}]+"}, "behavior": "Isolated", "invert": False}

    def added(text, **flags):
        return {"id": 300, "content": text, "special": False, "normalized": True} | flags

    seeds += [b"YWI= 256\nYWJj 257\n", b"= 256\n", b"YWJj 256\nYWI= 300\nYmM= 258", b"YWI= 256\r\n", b"YWI=\n", b"YWI= 99999999999999999999",
              b"A" * 700 + b" 256", b"YWI= 1048575", b"YWI= 1048576", b"".join(b"YWFh%02d== %d\n" % (i, 256 + i) for i in range(90)),
              b',"ab":257\0#version: 0.2\na b\n', b',"ab":257,"<|endoftext|>":300\0a b', b"\0a", b"\0a b c", b'{"a":0}\0', b'{"a":{"b":[', b"[1]"]
    for keys in ({"pre_tokenizer": byte_level}, {"pre_tokenizer": byte_level, "normalizer": {"type": "NFC"}},
                 {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level | {"use_regex": False}]}},
                 {"pre_tokenizer": byte_level, "added_tokens": [added("e\u0301"), added("<a>", id=301, special=True)],
                  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]}},
                 {"pre_tokenizer": byte_level, "post_processor": {"a": [1, -2, 1.5, None, True, "\ud800", {"b": []}]}}):
        seeds.append(json.dumps(keys).encode()[1:-1] + b", ")
elif target == "sentencepiece":
    def field(number, value):
        if isinstance(value, int):
            return bytes([number * 8 % 128 + (128 if number > 15 else 0)]) + (bytes([number >> 4]) if number > 15 else b"") + bytes([value])
        return bytes([number * 8 + 2, len(value)]) + value

    def piece(text, score=0.0, kind=1):
        return field(1, field(1, text) + b"\x15" + struct.pack("<f", score) + field(3, kind))

    start = piece(b"<unk>", kind=2) + piece(b"</s>", kind=3) + piece(b"\xe2\x96\x81") + piece(b"a") + piece(b"aa", -1.0) + piece(b"\xe2\x96\x81aa", -2.0)
    bpe, identity = field(2, field(3, 2)), field(3, field(1, b"identity") + field(3, 1) + field(4, 0))
    every_byte = b"".join(piece(b"<0x%02X>" % b, kind=6) for b in range(256))
    seeds += [start + bpe + identity, start + every_byte + field(2, field(3, 2) + field(35, 1)) + identity, start + bpe, start + field(2, field(3, 1)) + identity,
              start + piece(b"b", 0.0, 4) + bpe + identity, start + piece(b"xyz", -3.0) + bpe + identity, start + piece(b"aaa", -1.0) + bpe + identity,
              start + piece(b"\xff") + bpe + identity, start + piece(b"a a", -3.0) + bpe + identity, start + field(3, field(2, b"charsmap")) + bpe,
              start[:20], b"\n\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\n\x00", piece(b"a" * 100, -1.0) + piece(b"a") + bpe + identity, b"",
              " a\u2581 aab\xff \u0301 \U0001f600 <x>".encode(), b"a " * 500, b" " * 999, b"a" * 999]
    for steps in ([{"type": "NFKC"}, {"type": "Lowercase"}], [{"type": "Strip", "strip_left": True, "strip_right": True}],
                  [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}, {"type": "Replace", "pattern": {"String": "b"}, "content": "aa"}],
                  [{"type": "NFD"}, {"type": "NFKD"}, {"type": "Prepend", "prepend": "b"}], [{"type": "Precompiled", "precompiled_charsmap": "A" * 99}],
                  [{"type": "Replace", "pattern": {"String": "\n"}, "content": ""}]):
        mark = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
        decoder = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
        seeds.append((json.dumps({"normalizer": {"type": "Sequence", "normalizers": steps + [mark]}, "decoder": decoder}, ensure_ascii=False)[1:-1] + ", ").encode())
    for scheme in ("always", "first", "never", "sometimes"):
        space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": scheme != "first"}
        seeds.append((json.dumps({"pre_tokenizer": space, "decoder": space}, ensure_ascii=False)[1:-1] + ", ").encode())
elif target == "json_lines":
    seeds += [b'{"text": "a"}\n\n{"text": "b\\u0000"}\r\n{"text": 1}\n', b'{"text":"' + b"[" * 3000, b"",
              b'{"prompt": "a", "answer": "b"}\n{"prompt": "c", "completion": ""}\n{"prompt": "", "response": "d"}\n',
              b'{"prompt": "a"}\n', b'{"prompt": 1, "answer": "b"}\n', b'{"prompt": "a", "answer": []}\n{"text": null}\n']
    seeds += [json.dumps(line).encode() for line in (
        {"messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "<|im_end|>"},
                      {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": ""},
                      {"role": "assistant", "content": "{eos}"}, {"role": "user", "content": "c"}]},
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
        {"instruction": "a", "input": "b", "output": "c"}, {"instruction": "a", "input": None, "output": "c"},
        {"messages": [{"role": "user", "content": None}]}, {"messages": [[]]}, {"conversations": {}}, {"messages": []},
        {"messages": [{"role": "tool", "content": "a"}]}, {"instruction": "a", "output": ""}, {"instruction": 1, "output": "a"},
        {"messages": [{"role": "assistant", "content": "a", "weight": 2}]},
        {"text": "t", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"messages": [{"role": "assistant", "content": "b", "tool_calls": []}]})]
elif target == "foreign":
    def llmc(context=2, vocab=3, layers=1, heads=1, width=2, padded=4, version=3, magic=20240326):
        numbers = (padded + context) * width + layers * (12 * width * width + 13 * width) + 2 * width
        header = struct.pack("<8i", magic, version, context, vocab, layers, heads, width, padded)
        return header, bytes(i % 251 for i in range(numbers * (4 if version == 3 else 2)))

    for changes in ({}, {"version": 5}, {"layers": 2}, {"layers": 4096}, {"padded": 3}, {"heads": 2}, {"magic": 20240520}):
        header, numbers = llmc(**changes)
        numbers = numbers[:3000]
        for data in (numbers, numbers[:-1], numbers + b"x"):
            seeds += [header + data, header + bytes(992) + data]
    good = llmc()[0]
    seeds += [good[:4 * i] + struct.pack("<i", value) + good[4 * i + 4:] + llmc()[1]
              for i in range(2, 8) for value in (0, -1, 2**31 - 1, 4096)]

    def nanogpt(layers=1, width=2, vocab=3, context=2, bias=True, metadata={"n_head": "1"}, **changes):
        shapes = {"wte.weight": [vocab, width], "wpe.weight": [context, width], "ln_f.weight": [width]}
        if bias:
            shapes["ln_f.bias"] = [width]
        for layer in range(layers):
            for name, shape in (("ln_1", [width]), ("attn.c_attn", [3 * width, width]), ("attn.c_proj", [width, width]),
                                ("ln_2", [width]), ("mlp.c_fc", [4 * width, width]), ("mlp.c_proj", [width, 4 * width])):
                shapes[f"h.{layer}.{name}.weight"] = shape
                if bias:
                    shapes[f"h.{layer}.{name}.bias"] = shape[:1]
        shapes = {"transformer." + name: shape for name, shape in shapes.items()} | changes
        header, at = {"__metadata__": metadata}, 0
        for name, shape in shapes.items():
            count = 1
            for d in shape:
                count *= d
            header[name] = tensor(at, at + 2 * count, shape, "F16")
            at += 2 * count
        return safetensors(header, bytes(at))

    for file in (nanogpt(), nanogpt(bias=False), nanogpt(layers=2, metadata={}), nanogpt(metadata={"n_head": "7"}),
                 nanogpt(metadata={"n_head": "99999999999999999999"}), nanogpt(**{"lm_head.weight": [3, 2]}),
                 nanogpt(**{"transformer.wpe.weight": [2]}), nanogpt(**{"transformer.h.0.attn.bias": [1, 1, 2, 2]}),
                 nanogpt(**{"_orig_mod.transformer.wte.weight": [3, 2]}), nanogpt(vocab=0), nanogpt(more=[1])):
        seeds += [file, file[:-1]]
    seeds += [b"PK\x03\x04" + bytes(40), b"\x80\x02}q\0."]
elif target == "shard":
    for magic, version, size in ((20240520, 1, 2), (20240801, 7, 4), (20240520, 2, 2), (20240326, 3, 2)):
        for count in (0, 5, 150, -1, 2**31 - 1):
            header = struct.pack("<3i", magic, version, count) + bytes(20)
            tokens = bytes(range(250))[:max(0, min(count, 60)) * size]
            seeds += [header + tokens, header + bytes(992) + tokens, header + tokens[:-1], header[:11]]
    seeds += [struct.pack("<3i", magic, version, count) + bytes(20) + mask for magic, version, count, mask in (
        (20260301, 1, 50, b"\1\0" * 25), (20260301, 1, 50, b"\2" * 50), (20260301, 1, -1, b""), (20260301, 2, 50, b""), (20260301, 1, 50, b""))]
    frames = [kind + struct.pack("<2i", rows, columns) + struct.pack("<8i", *range(8)) for kind, rows, columns in (
        (b"VAL1", 2, 4), (b"TOK1", 2, 4), (b"TOK1", 3, 4), (b"TOK1", -1, 4), (b"TOK1", 2**31 - 1, 4), (b"TOK1", 0, 4), (b"TOK1", 2, 5))]
    seeds += [first + second for first in frames[:2] for second in (b"", *frames)] + [frames[1][:-1], frames[1][:9]]
    seeds += [b"\xff" * 64, b"\x50\xc4" * 20, b"\x51\xc4" * 20, b"text " * 20, b"PK\x03\x04" + bytes(40), b"\x1f\x8b" + bytes(40),
              b"\x93NUMPY\x01\0", b""]
elif target == "tokenizer":
    vocab = {bytes([b]).decode("latin-1"): b for b in range(33, 127)}
    model = {"type": "BPE", "vocab": vocab | {"ab": 300}, "merges": ["a b"]}
    whole = {"version": "1.0", "added_tokens": [{"id": 301, "content": "<|endoftext|>", "special": True}], "normalizer": None,
             "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
             "decoder": {"type": "ByteLevel"}, "model": model}
    for changes in ({}, {"model": None}, {"model": model | {"type": "Unigram"}}, {"model": model | {"merges": [["a", "b"]]}},
                    {"model": model | {"vocab": {"a": -1}}}, {"model": model | {"vocab": {"a": 2**40}}}, {"pre_tokenizer": None},
                    {"model": model | {"merges": ["a b", "a b"]}}, {"model": model | {"merges": ["a"]}}, {"added_tokens": 1}):
        text = json.dumps(whole | changes, ensure_ascii=False).encode()
        seeds += [text, text[:len(text) // 2]]
    seeds += [b'"merges": ["a b"]}}', b'"merges": [["t", "h"], ["th", "e"]]}, "added_tokens": []}', b'"merges": []}}',
              b'"merges": [' + b'"a b",' * 400 + b'"a b"]}}', b'"merges": ["a b", "ab c"], "x": ' + b"[" * 3000,
              "caf\u00e9 na\u00efve \U0001f600 \u4e2d\u6587\r\n\t 123 don't".encode(), b"\xff\xfe\x80", b" " * 500, b"a" * 2000, b""]
elif target == "toml_files":
    for name in sorted(glob.glob(root + "/devices/*.toml")) + sorted(glob.glob(root + "/experiments/*.toml")):
        with open(name, "rb") as file:
            text = file.read()
        if len(text) < 3000:
            seeds.append(text)
    sizes = b'preset = "nano"\nlayers = 2\nheads = 2\nkv_heads = 2\nwidth = 32\nhead_dim = 16\nff = 128\ncontext = 32\nvocab = 257\n'
    llama = b'norm = "rms"\nposition = "rope"\nactivation = "swiglu"\nbias = false\ntied = false\n'
    seeds += [sizes, sizes + llama, sizes + b'[rope_scaling]\nfactor = 8.0\n',
              sizes + llama + b'pattern = "AB"\nqk_norm = "row"\n[layer.B]\nwindow = 8\n[layer.B.rope_scaling]\nfactor = 2.0\n',
              sizes.replace(b"32", b"-32"), b'preset = "none"',
              sizes.replace(b"257", b"9223372036854775807"), sizes.replace(b"= 2\n", b"= 4294967296\n"), b"width = 1e9", b"layers = []",
              b'peaks = { bf16 = nan }\nkind = "cuda"', b'name = "a"\ntitle = "b"\nkind = "arithmetic"\n[quantities]\na = "a"\nb = "(((("',
              b'name = "a"\ntitle = "b"\nkind = "step"\n[scale.tiny]\nbatch = [' + b"1," * 900 + b"1]\nseq = [" + b"1," * 900 + b"1]\n"]
elif target == "json_files":
    gpt2 = {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "n_positions": 32, "vocab_size": 257}
    llama = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
             "intermediate_size": 64, "max_position_embeddings": 32, "vocab_size": 257, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
             "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 16}}
    layered = llama | {"model_type": "gemma3_text", "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8,
                       "rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}}}
    unrotated = llama | {"model_type": "smollm3", "no_rope_layers": [1, 0]}
    longrope = llama | {"model_type": "phi3", "rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}}
    meta = {"format": "crest-data", "format_version": 1, "created_by": "crest", "tokenizer": "bytes", "vocab_size": 257,
            "token_dtype": "u16", "train_tokens": 9, "val_tokens": 1, "documents": 1, "text_bytes": 10, "source_files": 1,
            "content_hash": "0", "sources": [{"path": "a", "bytes": 10, "hash": "0"}]}
    instr = {"program": "train", "index": 0, "op": "linear", "parts": [], "kernel": "k", "phase": "forward", "lane": "compute",
             "op_class": "contraction", "scopes": ["h.0.attn"], "layer": 0, "type": "bf16[2,2]", "arithmetic": "bf16", "calls": 1,
             "flops": 1.0, "bytes": 1.0, "ms": 1.0, "floor_ms": 0.5}
    block = {"name": "v", "program": "train", "category": "activations", "phase": "forward", "scope": "", "layer": -1, "offset": 0,
             "bytes": 64, "first": 0, "last": 0}
    profile = {"recipe": {}, "device": {}, "environment": {}, "phase": "step", "method": "timers", "tokens": 4, "model_flops": 1.0,
               "step_ms": [1.0, 1.1], "throttled": [], "throttle_reasons": [], "profiled_ms": [1.2], "kept_ms": 1.0, "span_ms": 1.0,
               "busy_ms": 1.0, "idle_ms": 0.0, "recording_ms": 0.0, "launches": 1, "clock_mhz": 0.0,
               "rates": [{"name": "bf16", "per_second": 1e12, "source": "s"}], "calls": ["train"], "instrs": [instr],
               "kernels": [{"name": "k", "instr": 0, "count": 1, "ms": 1.0, "min_ms": 1.0, "max_ms": 1.0}],
               "intervals": [{"instr": 0, "kernel": 0, "call": 0, "stream": 0, "start_ms": 0.0, "ms": 1.0}],
               "memory": {"planned_bytes": 64, "persistent_bytes": 0, "transient_bytes": 64, "measured_peak_bytes": 64,
                          "device_peak_bytes": 64, "persistent": [], "blocks": [block]}}
    for document in (gpt2, llama, layered, unrotated, longrope, meta, {"format": "crest-kernel-choices-1", "choices": {"GPU": {"a": "b"}}}, profile):
        seeds.append(json.dumps(document).encode())
        for key in document:  # each of them missing, of another type, out of range
            for value in (None, -1, 2**63, 1e308, "x", [], {"a": []}):
                seeds.append(json.dumps({k: v for k, v in document.items() if k != key} | ({} if value is None else {key: value})).encode())
    for key in instr:
        seeds.append(json.dumps(profile | {"instrs": [instr | {key: 2**40}]}).encode())
    for key in block:
        seeds.append(json.dumps(profile | {"memory": profile["memory"] | {"blocks": [block | {key: 2**40}]}}).encode())
elif target == "checkpoint":
    entry = {"bytes": 38, "sha256": "0" * 64}
    manifest = {"format": "crest-checkpoint-1", "step": 3, "files": {
        "state.json": entry, "config.json": entry,
        "model.safetensors": {"bytes": 120, "header_sha256": "1" * 64, "tensors": {"a": "2" * 64}}}}
    seeds += [json.dumps(manifest)[:-1].encode(), json.dumps(manifest | {"files": {"../x": entry}})[:-1].encode()]
    seeds += [json.dumps(manifest | {"files": {"state.json": entry, "model.safetensors": entry}})[:-1].encode()]
    seeds += [safetensors({"a": tensor(0, 24, [2, 3])}, bytes(24)), safetensors(headers[0], bytes(20)), safetensors(b"{}"),
              safetensors({"a": tensor(0, 8, [8], "BOOL")}, bytes(8)), b"PK\x03\x04" + bytes(40), b""]
    seeds += [b'{"step": 3, "state": {"position": 7}}', b'{"step": 4, "state": {}}', b'{"step": 3}', b"[" * 3000, b'{"step": 3, "state": "\xff"}']
else:
    sys.exit(0)  # a target without seeds of its own starts from nothing

number = 0
for seed in seeds:
    for way in range(max(ways, 1)):
        with open(os.path.join(folder, f"seed-{number:04}"), "wb") as out:
            out.write((bytes([way]) if ways else b"") + seed)
        number += 1
for path in sorted(glob.glob(root + f"/tests/fuzz/regressions/{target}-*")):  # inputs that a fuzzer found, as they are
    with open(path, "rb") as file, open(os.path.join(folder, f"seed-{number:04}"), "wb") as out:
        out.write(file.read())
    number += 1
if len(sys.argv) > 3:
    words = {word for seed in seeds for word in re.findall(rb"[A-Za-z_][A-Za-z_0-9.]{2,40}", seed)}
    with open(sys.argv[3], "w") as out:
        out.writelines(f'"{word.decode()}"\n' for word in sorted(words)[:2000])

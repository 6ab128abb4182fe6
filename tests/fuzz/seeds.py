#!/usr/bin/env python3
"""Seeds for the fuzz targets: valid files and the known ways to be malformed. Usage: seeds.py TARGET FOLDER"""
import json
import os
import struct
import sys

target, folder = sys.argv[1:]
seeds = []


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
elif target == "json_lines":
    seeds += [b'{"text": "a"}\n\n{"text": "b\\u0000"}\r\n{"text": 1}\n', b'{"text":"' + b"[" * 3000, b""]
elif target == "llmc":
    def llmc(context=2, vocab=3, layers=1, heads=1, width=2, padded=4, version=3, magic=20240326):
        numbers = (padded + context) * width + layers * (12 * width * width + 13 * width) + 2 * width
        header = struct.pack("<8i", magic, version, context, vocab, layers, heads, width, padded) + bytes(992)
        return header + bytes(range(256)) * (numbers * (4 if version == 3 else 2) // 256 + 1), numbers * (4 if version == 3 else 2)

    for changes in ({}, {"version": 5}, {"layers": 2}, {"padded": 3}, {"heads": 2}, {"magic": 20240520}):
        text, length = llmc(**changes)
        seeds += [text[:1024 + length], text[:1023 + length], text[:1025 + length], text[:900]]
    good = llmc()[0][:1024 + llmc()[1]]
    seeds += [good[:4 * i] + struct.pack("<i", value) + good[4 * i + 4:] for i in range(2, 8) for value in (0, -1, 2**31 - 1, 4096)]
else:
    sys.exit(0)  # a target without seeds of its own starts from nothing

for number, seed in enumerate(seeds):
    with open(os.path.join(folder, f"seed-{number:03}"), "wb") as out:
        out.write(seed)

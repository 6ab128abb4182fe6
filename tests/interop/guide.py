#!/usr/bin/env python3
"""A page of docs/start, word for word: files are saved, commands run, and the page has the last output.
Usage: SCRIPT WORK_FOLDER from-python, or SCRIPT WORK_FOLDER your-model [FAMILY]: the family in place of SmolLM3"""
import json
import os
import re
import subprocess
import sys

work = sys.argv[1]
name = sys.argv[2]
text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), f"../../docs/start/{name}.md")).read()
if len(sys.argv) > 3:
    text = text.replace("python make.py SmolLM3", f"python make.py {sys.argv[3]}")
os.chdir(work)
# `python` and `crest` of the page are these.
os.makedirs("bin")
os.symlink(os.environ["CREST_BINARY"], "bin/crest")
with open("bin/python", "w") as f:
    f.write(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
os.chmod("bin/python", 0o755)
package = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python")
environment = dict(os.environ, PYTHONPATH=package, PATH=f"{work}/bin:{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="", TRANSFORMERS_VERBOSITY="error",
                   HF_HUB_OFFLINE="1", GOMP_SPINCOUNT="4000", CREST_STORE=f"{work}/crest.db")
outputs = []
for before, kind, code in re.findall(r"([^\n]*(?:\n[^\n`]+)*)\n\n```(\w*)\n(.*?)```", text, re.S):
    if kind == "python":
        file = re.search(r"`(\w+\.py)`", before).group(1)
        with open(file, "w") as f:
            f.write(code)
    elif kind == "sh" and "pip install" not in code:
        done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{code}{done.stdout}{done.stderr}"
        outputs.append(done.stdout)
    elif not kind:
        assert outputs[-1] == code, f"the page has\n{code}but it was\n{outputs[-1]}"
        expected = code
if name == "from-python":
    assert expected == outputs[-1] != ""
    config = json.load(open("runs/chat/checkpoints/step-000150/tokenizer_config.json"))
    assert "<|im_start|>" in config["chat_template"]
else:
    before, after = (json.load(open(f"{folder}/config.json")) for folder in ("model", "runs/mine/checkpoints/step-000120"))
    assert before["architectures"] == after["architectures"], (before, after)
    assert all(device in outputs[1] for device in ("rtx4090", "h100", "hours for 1e+09 tokens")), outputs[1]
    assert outputs[-1].strip() == outputs[-2].strip() and outputs[-1].startswith("Ada lives in"), outputs[-2:]
    print(outputs[-1].strip())
print("ok: the page")

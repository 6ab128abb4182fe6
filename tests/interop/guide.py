#!/usr/bin/env python3
"""docs/start/from-python.md, word for word: files are saved, commands run, and the last output is that of
the page. Usage: SCRIPT WORK_FOLDER"""
import json
import os
import re
import subprocess
import sys

work = sys.argv[1]
page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/start/from-python.md")
text = open(page).read()
os.chdir(work)
# `python` and `crest` of the page are these.
os.makedirs("bin")
os.symlink(os.environ["CREST_BINARY"], "bin/crest")
with open("bin/python", "w") as f:
    f.write(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
os.chmod("bin/python", 0o755)
environment = dict(os.environ, PATH=f"{work}/bin:{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="", TRANSFORMERS_VERBOSITY="error",
                   HF_HUB_OFFLINE="1", GOMP_SPINCOUNT="4000", CREST_STORE=f"{work}/crest.db")
output = ""
for before, kind, code in re.findall(r"([^\n]*(?:\n[^\n`]+)*)\n\n```(\w*)\n(.*?)```", text, re.S):
    if kind == "python":
        name = re.search(r"`(\w+\.py)`", before).group(1)
        with open(name, "w") as f:
            f.write(code)
    elif kind == "sh" and "pip install" not in code:
        done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, f"{code}{done.stdout}{done.stderr}"
        output = done.stdout
    elif not kind:
        assert output == code, f"the page has\n{code}but it was\n{output}"
        expected = code
assert expected == output != ""
config = json.load(open("runs/chat/checkpoints/step-000150/tokenizer_config.json"))
assert "<|im_start|>" in config["chat_template"]
print("ok: the page")

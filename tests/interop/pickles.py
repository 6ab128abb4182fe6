#!/usr/bin/env python3
"""The lines that Crest prints where it refuses a pickle convert it. Usage: SCRIPT WORK_FOLDER"""
import json
import os
import sys

import torch
import transformers
from common import crest, run_line, write_data

work = sys.argv[1]
os.chdir(work)
transformers.logging.set_verbosity_error()
torch.manual_seed(1)
config = transformers.GPT2Config(vocab_size=101, n_positions=40, n_embd=48, n_layer=2, n_head=3, bos_token_id=None, eos_token_id=None)
model = transformers.GPT2LMHeadModel(config)
state = model.state_dict()
write_data("data", torch.randint(0, 101, (500,)).numpy())


def folder_of(name):
    os.makedirs(name)
    config.save_pretrained(name)
    return name


def one_file(name):
    torch.save(state, f"{name}/pytorch_model.bin")
    return name


def two_files(name):
    names, index = list(state), {}
    for i, part in enumerate((names[:9], names[9:]), 1):
        file = f"pytorch_model-0000{i}-of-00002.bin"
        torch.save({k: state[k] for k in part}, f"{name}/{file}")
        index.update({k: file for k in part})
    with open(f"{name}/pytorch_model.bin.index.json", "w") as f:
        json.dump({"metadata": {}, "weight_map": index}, f)
    return name


def one_shard(name):
    return f"{two_files(name)}/pytorch_model-00001-of-00002.bin"


def named(file):
    def write(name):
        torch.save(state, f"{name}/{file}")
        return f"{name}/{file}"
    return write


for name, write in {"one": one_file, "it's two": two_files, "a shard": one_shard, "pt": named("model.pt"), "ckpt": named("other.ckpt")}.items():
    given = write(folder_of(name))
    said = crest("eval", "--run", given, "--data", "data", "--device", "cpu", fails=True)
    assert "pickle" in said, said
    run_line(said)
    crest("eval", "--run", name, "--data", "data", "--device", "cpu")
    again = transformers.AutoModelForCausalLM.from_pretrained(name).state_dict()
    assert all(torch.equal(again[k], state[k]) for k in state), name
os.makedirs("meta")
torch.save(state, "meta/consolidated.00.pth")
said = crest("import", "meta/consolidated.00.pth", "--out", "x", fails=True)
assert "convert_llama_weights_to_hf" in said and "python -c" not in said, said
print("ok: torch", torch.__version__)

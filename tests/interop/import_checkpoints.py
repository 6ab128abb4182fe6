#!/usr/bin/env python3
"""crest import: checkpoints as llm.c and nanoGPT write them give the logits that torch computes. Usage: SCRIPT WORK_FOLDER"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from common import crest, crest_logits, distance, run_line
from nanogpt_model import NanoGpt
from torch import nn

work = sys.argv[1]
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
V, T, L, H, C = 101, 40, 2, 3, 48
TOKENS = np.random.default_rng(5).integers(0, V, 30).astype(np.int32)


def compare(name, folder, logits, limit=1e-5):
    ours, _ = crest_logits(folder, TOKENS, work)
    error = distance(ours, logits.double().numpy())
    print(f"{name}: logits differ by {error:.1e}")
    assert error <= limit, name


def lively(model):
    for p in model.parameters():
        nn.init.normal_(p, 1.0 if p.dim() == 1 else 0.0, 0.2)
    return model.eval()


def logits_of(model):
    with torch.no_grad():
        out = model(torch.tensor([TOKENS[:-1].tolist()]))
    return (out if torch.is_tensor(out) else out.logits)[0]


def write_llmc(path, model, version):
    """The order and the numbers of llm.c's train_gpt2.py; GPT-2 of transformers has its matrices as [in, out]."""
    state = model.state_dict()
    padded = -(-V // 128) * 128
    header = np.zeros(256, dtype=np.int32)
    header[:8] = 20240326, version, T, V, L, H, C, padded
    wte = torch.zeros(padded, C)
    wte[:V] = state["transformer.wte.weight"]
    out = [wte, state["transformer.wpe.weight"]]
    for member in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
        for kind in ("weight", "bias"):
            for layer in range(L):
                t = state[f"transformer.h.{layer}.{member}.{kind}"]
                out.append(t.T if t.dim() == 2 else t)
    out += [state["transformer.ln_f.weight"], state["transformer.ln_f.bias"]]
    with open(path, "wb") as f:
        f.write(header.tobytes())
        for t in out:
            t = t.contiguous().float()
            f.write((t.numpy() if version == 3 else t.to(torch.bfloat16).view(torch.int16).numpy()).tobytes())


def llmc():
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=V, n_positions=T, n_embd=C, n_layer=L, n_head=H, bos_token_id=None, eos_token_id=None)
    for version, dtype in ((3, torch.float32), (5, torch.bfloat16)):
        model = lively(transformers.GPT2LMHeadModel(config)).to(dtype).float()
        write_llmc(f"{work}/llmc-{version}.bin", model, version)
        said = json.loads(crest("import", f"{work}/llmc-{version}.bin", "--out", f"{work}/llmc-{version}", "--json"))
        assert said["format"] == "llm.c" and said["transformers"], said
        compare(f"llm.c version {version}", f"{work}/llmc-{version}", logits_of(model))
        again = transformers.AutoModelForCausalLM.from_pretrained(f"{work}/llmc-{version}", dtype=torch.float32).eval()
        assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))


def nanogpt():
    torch.manual_seed(2)
    for bias in (False, True):
        model = lively(NanoGpt(V, T, L, H, C, bias))
        folder = f"{work}/nanogpt-{bias}"
        os.makedirs(folder)
        arguments = dict(n_layer=L, n_head=H, n_embd=C, block_size=T, bias=bias, vocab_size=V, dropout=0.0)
        prefix = "_orig_mod." if bias else ""
        torch.save({"model": {prefix + k: v for k, v in model.state_dict().items()}, "optimizer": {}, "model_args": arguments,
                    "iter_num": 7, "best_val_loss": torch.tensor(4.0), "config": {"out_dir": "out"}}, f"{folder}/ckpt.pt")
        # The message that refuses the pickle holds the line that converts it.
        said = crest("import", f"{folder}/ckpt.pt", "--out", f"{folder}/model", fails=True)
        run_line(said)
        said = json.loads(crest("import", f"{folder}/model.safetensors", "--out", f"{folder}/model", "--json"))
        assert said["format"] == "nanoGPT" and said["heads"] == H and said["tied"] and said["transformers"] == bias, said
        with torch.no_grad():
            tokens = torch.tensor([TOKENS[:-1].tolist()])
            compare(f"nanoGPT, bias {bias}", f"{folder}/model", model(tokens)[0])
        crest("sample", "--run", f"{folder}/model", "--tokens", "1,2,3", "--max-tokens", 5, "--device", "cpu")
        if bias:
            again = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model", dtype=torch.float32).eval()
            with torch.no_grad():
                assert distance(again(tokens).logits, model(tokens)) < 1e-5


llmc()
nanogpt()
print("ok: torch", torch.__version__, "transformers", transformers.__version__)

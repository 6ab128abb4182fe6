#!/usr/bin/env python3
"""Adapters made by peft for some parity fixtures, with their logits and gradients (README.md).

  make_peft_fixtures.py        # after make_fixtures.py; writes fixtures/peft/NAME

The base is fixtures/NAME. Everything is computed in float64, as in make_fixtures.py, and stored in float32.
"""
import json
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from make_fixtures import FIXTURES, loss_of, make_model

HERE = Path(__file__).parent / "fixtures"

# Three A for queries, keys and values, other ranks and scales for some layers; one layer of two parameters; Conv1D.
ADAPTERS = {
    "llama3-tied-tiny": dict(
        r=3, lora_alpha=7, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        rank_pattern={"o_proj": 2}, alpha_pattern={"layers.1.mlp.down_proj": 5}),
    "phi3-tiny": dict(r=2, lora_alpha=4, use_rslora=True, target_modules=["qkv_proj", "gate_up_proj"]),
    "gpt2-tiny": dict(r=2, lora_alpha=3, target_modules=["attn.c_attn", "mlp.c_proj"], fan_in_fan_out=True),
    "gpt-neox-tiny": dict(r=2, lora_alpha=8, target_modules=["query_key_value"]),
}


def make(name, settings):
    cls, config, *_ = FIXTURES[name]
    folder = HERE / "peft" / name
    shutil.rmtree(folder, ignore_errors=True)
    base = cls.from_pretrained(HERE / name, dtype=torch.float32)
    weights = {n: p.detach().clone() for n, p in base.named_parameters()}
    adapted = get_peft_model(make_model(cls, config, weights, torch.float64, True),
                             LoraConfig(task_type="CAUSAL_LM", **settings))
    generator = torch.Generator().manual_seed(list(ADAPTERS).index(name))
    for n, p in adapted.named_parameters():
        if "lora_" in n:  # every number exists in float32
            p.data = (torch.randn(p.shape, generator=generator) * (0.2 if "lora_B" in n else 0.3)).double()
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    described = json.loads((folder / "adapter_config.json").read_text())
    described["base_model_name_or_path"] = name
    described["target_modules"] = sorted(described["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(described, indent=1) + "\n")
    stored = load_file(folder / "adapter_model.safetensors")
    save_file({n: t.float() for n, t in stored.items()}, folder / "adapter_model.safetensors")
    given = load_file(HERE / name / "expected.safetensors")
    logits, loss = loss_of(adapted.train(), given["tokens"].long(), given["targets"].long())
    loss.backward()
    expected = {"grad." + n.replace(".default", ""): p.grad.float() for n, p in adapted.named_parameters() if p.grad is not None}
    assert len(expected) == len(stored)
    expected |= {"logits": logits.detach().float(), "loss": loss.detach().reshape(1)}
    save_file(expected, folder / "expected.safetensors")


for name, settings in ADAPTERS.items():
    make(name, settings)

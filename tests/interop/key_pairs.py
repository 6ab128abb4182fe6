"""Of two keys of a config.json for one thing, transformers takes the one that Crest takes."""
import json
import os

import torch
import transformers


def model_of(work, base, without, keys, name):
    os.makedirs(work, exist_ok=True)
    with open(f"{work}/config.json", "w") as f:
        json.dump({k: v for k, v in base.items() if k not in without} | keys, f)
    config = getattr(transformers, f"{name}Config").from_pretrained(work)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return model.float().eval()


def compare_key_pairs(work):
    """Every row of the table that has `same_as` gives the same model."""
    with open(os.path.join(os.path.dirname(__file__), "../model/key_pairs.json")) as f:
        table = json.load(f)
    torch.manual_seed(1)
    tokens = torch.randint(0, 50, (1, 60))
    rows = [row for row in table["rows"] if "same_as" in row]
    for row in rows:
        base = table["bases"][row["type"]]
        pair = model_of(work, base, row.get("without", []), row["keys"], row.get("class", "Auto"))
        plain = model_of(work, base, [], row["same_as"], "Auto")
        for p in pair.parameters():
            torch.nn.init.normal_(p, 1.0 if p.dim() == 1 else 0.0, 0.2)
        plain.load_state_dict(pair.state_dict())
        with torch.no_grad():
            difference = (pair(tokens).logits - plain(tokens).logits).abs().max().item()
        assert difference <= 1e-5, (difference, row)
    print(f"{len(rows)} pairs of keys")

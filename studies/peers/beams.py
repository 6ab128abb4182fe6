#!/usr/bin/env python3
"""Memory of beam search in transformers beside the formulas of `crest plan --explain memory --beams N`.

  beams.py [--device cpu|cuda] [--model nano] [--vocab 1000] [--tokens 255] [--beams 1,2,5]

A GPT-2 of the preset's size with random weights generates that many tokens and one more. Needs torch and transformers.
CREST is the program (default: build/release/crest).

Prints one JSON line for each number of beams: bytes of keys and values in transformers' cache at the end, the same by
Crest's formula, their ratio; ids, logits and scores by formula; on a GPU also the most memory allocated during
generation, above the weights.
"""
import argparse
import json
import os
import subprocess
from pathlib import Path

import torch
import transformers


def plan(args, beams):
    """Crest's rows of the topic, by name."""
    program = os.environ.get("CREST") or str(Path(__file__).resolve().parents[2] / "build/release/crest")
    words = [program, "plan", "--json", "--device", "h200", "--model", args.model, "--vocab", str(args.vocab), "--batch", "1",
             "--precision", "bf16", "--explain", "memory", "--beams", str(beams)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode: raise SystemExit(f"beams: crest plan failed: {done.stderr.strip()}")
    answer = json.loads(done.stdout)
    return answer["model"], {row["name"]: row["value"] for section in answer["sections"] for row in section["terms"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--model", default="nano")
    parser.add_argument("--vocab", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=255, help="at most the model's context minus 1")
    parser.add_argument("--beams", default="1,2,5")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    torch.manual_seed(1)
    m, _ = plan(args, 1)
    config = transformers.GPT2Config(n_layer=m["layers"], n_head=m["heads"], n_embd=m["width"], n_inner=m["ff"],
                                     n_positions=m["context"], vocab_size=args.vocab, bos_token_id=0, eos_token_id=None)
    with torch.device(args.device):
        model = transformers.GPT2LMHeadModel(config).to(torch.bfloat16).eval()
        prompt = torch.ones(1, 8, dtype=torch.long)
    for beams in [int(x) for x in args.beams.split(",")]:
        if args.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        out = model.generate(prompt, num_beams=beams, do_sample=False, max_length=args.tokens + 1, min_length=args.tokens + 1,
                             pad_token_id=0, return_dict_in_generate=True)
        cache = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.layers)
        _, rows = plan(args, beams)
        whole = next(value for name, value in rows.items() if name.startswith("cache of a beam search"))
        formula = whole * args.tokens / m["context"]  # Crest's cache has a place for each token of the context
        line = dict(peer="transformers-" + transformers.__version__, model=args.model, tokens=args.tokens, beams=beams,
                    cache_bytes=cache, formula_bytes=int(formula), ratio=cache / formula,
                    tokens_and_scores_bytes=int(rows["tokens and scores of the beams"]))
        if args.device == "cuda": line["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        del out
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()

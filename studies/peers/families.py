#!/usr/bin/env python3
"""Training steps of model families: `crest bench` and transformers, compiled, taking turns on one GPU.

  families.py CREST MODEL:BATCH:SEQ ... [--rounds 2] [--steps 20] [--modes mixed,bf16] [--compile model|layer]

MODEL: Qwen3-0.6B, Qwen3-1.7B, OLMo2-1B, Gemma3-1B (sizes of their published config.json; random weights and tokens).
mixed: fp32 parameters and AdamW, bf16 autocast, as Crest trains. bf16: all in bf16, states too, so another training.
transformers uses its sdpa attention and torch.compile of model and loss, or of each decoder layer (--compile layer:
large models compile in minutes). In a round every program runs once; medians of STEPS steps. The
spread between rounds of Crest is the noise floor. Prints one JSON line a measurement.
"""
import argparse
import json
import statistics
import sys

import hf_steps


def configs():
    from transformers import Gemma3TextConfig, Olmo2Config, Qwen3Config
    qwen3 = dict(num_attention_heads=16, num_key_value_heads=8, head_dim=128, vocab_size=151936, tie_word_embeddings=True,
                 rope_theta=1e6, max_position_embeddings=40960, num_hidden_layers=28)
    return {
        "Qwen3-0.6B": lambda: Qwen3Config(hidden_size=1024, intermediate_size=3072, **qwen3),
        "Qwen3-1.7B": lambda: Qwen3Config(hidden_size=2048, intermediate_size=6144, **qwen3),
        "OLMo2-1B": lambda: Olmo2Config(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=16,
                                        num_key_value_heads=16, vocab_size=100352, rope_theta=500000, max_position_embeddings=4096),
        "Gemma3-1B": lambda: Gemma3TextConfig(hidden_size=1152, intermediate_size=6912, num_hidden_layers=26, num_attention_heads=4,
                                              num_key_value_heads=1, head_dim=256, vocab_size=262144, sliding_window=512),
    }


def torch_step(config, batch, seq, mode, compiled):
    """A function that makes `n` steps and returns their milliseconds."""
    import torch
    model = hf_steps.new_model(config, torch.bfloat16 if mode == "bf16" else torch.float32)
    return hf_steps.training_steps(model, list(model.parameters()), 3e-4, config.vocab_size, batch, seq, mode == "mixed",
                                   compiled)


def main():
    ap = argparse.ArgumentParser()
    hf_steps.add_options(ap)
    a = ap.parse_args()
    for case in a.cases:
        name, batch, seq = hf_steps.parse_case(case)
        config = configs()[name]()
        folder = hf_steps.saved_config(config)

        def say(program, **values):
            print(json.dumps(dict(model=name, batch=batch, seq=seq, program=program, **values)), flush=True)

        def crest(round_):
            row = hf_steps.crest_bench(a.crest, folder, batch, seq, a.steps)
            if isinstance(row, str):
                return say("crest", error=row)
            say("crest", round=round_, ms=round(row["step_ms_median"], 2), gib=round(row["memory"]["measured_peak_bytes"] / 2**30, 2))

        crest(0)
        for mode in a.modes.split(","):
            try:
                steps = torch_step(config, batch, seq, mode, a.compile)
                steps(6)
                for r in range(a.rounds):
                    say("transformers " + mode, round=r, ms=round(statistics.median(steps(a.steps)), 2), gib=round(hf_steps.peak_gib(), 2))
                    # Its memory stays while Crest measures: both fit.
                    crest(r + 1)
            except Exception as error:  # one bad case must not lose the others
                say("transformers " + mode, error=repr(error)[:500])
            steps = None
            import torch
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


sys.exit(main())

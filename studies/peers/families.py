#!/usr/bin/env python3
"""Training steps of model families: `crest bench` and transformers, compiled, taking turns on one GPU.

  families.py CREST MODEL:BATCH:SEQ ... [--rounds 2] [--steps 20] [--modes mixed,bf16]

MODEL: Qwen3-0.6B, Qwen3-1.7B, OLMo2-1B, Gemma3-1B (sizes of their published config.json; random weights and tokens).
mixed: fp32 parameters and AdamW, bf16 autocast, as Crest trains. bf16: all in bf16, states too, so another training.
transformers uses its sdpa attention and torch.compile of model and loss. In a round every program runs once; medians of
STEPS steps. The spread between rounds of Crest is the noise floor. Prints one JSON line a measurement.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time


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


def torch_step(config, batch, seq, mode):
    """A function that makes `n` steps and returns their milliseconds."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa",
                                                 dtype=torch.bfloat16 if mode == "bf16" else torch.float32)
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def loss_of(ids):
        with torch.autocast("cuda", torch.bfloat16, enabled=mode == "mixed"):
            return model(input_ids=ids, labels=ids).loss

    compiled = torch.compile(loss_of)

    def steps(n):
        times = []
        for _ in range(n):
            ids = torch.randint(0, config.vocab_size, (batch, seq), device="cuda")
            torch.cuda.synchronize()
            start = time.perf_counter()
            compiled(ids).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e3)
        return times

    return steps, lambda: torch.cuda.max_memory_allocated() / 2**30


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("crest"), ap.add_argument("cases", nargs="+")
    ap.add_argument("--rounds", type=int, default=2), ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--modes", default="mixed,bf16")
    a = ap.parse_args()
    for case in a.cases:
        name, batch, seq = case.split(":")
        batch, seq = int(batch), int(seq)
        config = configs()[name]()
        folder = tempfile.mkdtemp()
        config.architectures = [type(config).__name__.replace("TextConfig", "ForCausalLM").replace("Config", "ForCausalLM")]
        config.save_pretrained(folder)

        def say(program, **values):
            print(json.dumps(dict(model=name, batch=batch, seq=seq, program=program, **values)), flush=True)

        def crest(round_):
            out = subprocess.run([a.crest, "bench", "--device", "cuda", "--model", folder, "--batch", str(batch), "--seq", str(seq),
                                  "--samples", str(a.steps), "--no-mfu", "--no-store", "--json"], capture_output=True, text=True)
            if out.returncode:
                return say("crest", error=out.stderr[-400:])
            row = json.loads(out.stdout)[0]
            say("crest", round=round_, ms=round(row["step_ms_median"], 2), gib=round(row["memory"]["measured_peak_bytes"] / 2**30, 2))

        crest(0)
        for mode in a.modes.split(","):
            try:
                steps, gib = torch_step(config, batch, seq, mode)
                steps(6)
                for r in range(a.rounds):
                    say("transformers " + mode, round=r, ms=round(statistics.median(steps(a.steps)), 2), gib=round(gib(), 2))
                    # Its memory stays while Crest measures: both fit.
                    crest(r + 1)
            except Exception as error:  # one bad case must not lose the others
                say("transformers " + mode, error=repr(error)[:500])
            steps = gib = None
            import torch
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


sys.exit(main())

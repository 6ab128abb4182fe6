#!/usr/bin/env python3
"""Training steps with LoRA: `crest bench --lora` and peft, compiled, taking turns on one GPU.

  peft_lora.py CREST MODEL:BATCH:SEQ ... [--rounds 2] [--steps 20] [--rank 16] [--modes mixed,bf16] [--recompute]
               [--compile model|layer] [--together]

MODEL: Qwen2.5-0.5B, Qwen2.5-7B, Qwen2.5-14B (sizes of their published config.json; random weights and tokens). Adapters
at all linear layers of the blocks, alpha twice the rank. The base is frozen, in bf16.
  mixed    adapters and AdamW in fp32, bf16 autocast: what peft does by default
  bf16     adapters and AdamW's state in bf16, too
Crest trains bf16 adapters with fp32 masters and moments. transformers uses its sdpa attention and torch.compile of model
and loss, or of each decoder layer (--compile layer). --together: the modes compile at the same time, if their memory
fits, and are still measured one after the other. --recompute: checkpoints every layer in both. In a round every
program runs once; medians of STEPS steps. The spread between rounds of Crest is the noise floor. Prints one JSON line a
measurement: ms, tokens/s, peak GiB.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

import hf_steps


def configs():
    from transformers import Qwen2Config
    shared = dict(max_position_embeddings=32768, rope_theta=1e6, rms_norm_eps=1e-6)
    return {
        "Qwen2.5-0.5B": lambda: Qwen2Config(hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                                            num_attention_heads=14, num_key_value_heads=2, vocab_size=151936,
                                            tie_word_embeddings=True, **shared),
        "Qwen2.5-7B": lambda: Qwen2Config(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28,
                                          num_attention_heads=28, num_key_value_heads=4, vocab_size=152064,
                                          tie_word_embeddings=False, **shared),
        "Qwen2.5-14B": lambda: Qwen2Config(hidden_size=5120, intermediate_size=13824, num_hidden_layers=48,
                                           num_attention_heads=40, num_key_value_heads=8, vocab_size=152064,
                                           tie_word_embeddings=False, **shared),
    }


def peft_step(config, batch, seq, mode, rank, recompute, compiled):
    """A function that makes `n` steps and returns their milliseconds."""
    import torch
    from peft import LoraConfig, get_peft_model
    model = hf_steps.new_model(config, torch.bfloat16)
    if recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    layers = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=layers, task_type="CAUSAL_LM"),
                           autocast_adapter_dtype=mode == "mixed").train()
    trained = [p for p in model.parameters() if p.requires_grad]
    steps = hf_steps.training_steps(model, trained, 2e-4, config.vocab_size, batch, seq, mode == "mixed", compiled)
    steps(5)
    torch.cuda.reset_peak_memory_stats()
    return steps


def child(case, mode, a):
    """One program in its own process, so that no memory stays behind."""
    name, batch, seq = hf_steps.parse_case(case)
    run = peft_step(configs()[name](), batch, seq, mode, a.rank, a.recompute, a.compile)
    print("compiled", flush=True)
    sys.stdin.readline()  # until it is alone on the GPU
    print(json.dumps({"ms": statistics.median(run(a.steps)), "peak_gib": hf_steps.peak_gib()}))


def start_child(case, mode, a):
    """The process that measures a mode of peft, and the file of its messages."""
    words = [sys.executable, __file__, a.crest, case, "--child", mode, "--steps", str(a.steps), "--rank", str(a.rank),
             "--compile", a.compile] + (["--recompute"] if a.recompute else [])
    errors = tempfile.TemporaryFile("w+")
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True), errors


def read_until(process, line):
    """Reads the process's output up to this line, or to its end."""
    while text := process.stdout.readline():
        if text.strip() == line:
            return


def main():
    ap = argparse.ArgumentParser()
    hf_steps.add_options(ap)
    ap.add_argument("--rank", type=int, default=16), ap.add_argument("--recompute", action="store_true")
    ap.add_argument("--together", action="store_true"), ap.add_argument("--child", default="")
    a = ap.parse_args()
    if a.child:
        return child(a.cases[0], a.child, a)

    for case in a.cases:
        name, batch, seq = hf_steps.parse_case(case)
        folder = hf_steps.saved_config(configs()[name]())

        def report(program, round_number, ms, peak_gib):
            print(json.dumps({"model": name, "batch": batch, "seq": seq, "rank": a.rank, "recompute": a.recompute,
                              "program": program, "round": round_number, "ms": round(ms, 3),
                              "tokens_per_second": round(batch * seq / ms * 1e3, 1), "peak_gib": round(peak_gib, 3)}),
                  flush=True)

        for r in range(a.rounds):
            flags = ["--lora", str(a.rank), "--precision", "bf16"] + (["--recompute", "full"] if a.recompute else [])
            row = hf_steps.crest_bench(a.crest, folder, batch, seq, a.steps, flags)
            if isinstance(row, str):
                print(f"crest: {case}: {row}", file=sys.stderr)
            else:
                report("crest", r, row["step_ms_median"], row["memory"]["measured_peak_bytes"] / 2**30)
            modes = a.modes.split(",")
            for group in [modes] if a.together else [[mode] for mode in modes]:
                children = {mode: start_child(case, mode, a) for mode in group}
                for process, _ in children.values():
                    read_until(process, "compiled")
                for mode, (process, errors) in children.items():
                    out, _ = process.communicate("go\n")
                    if process.returncode:
                        errors.seek(0)
                        print(f"peft {mode}: {case}: {errors.read().strip()[-400:]}", file=sys.stderr)
                        continue
                    d = json.loads(out.splitlines()[-1])
                    report(f"peft {mode}", r, d["ms"], d["peak_gib"])


main()

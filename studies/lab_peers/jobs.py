#!/usr/bin/env python3
"""Jobs of studies/peers/together.py for the rows of PyTorch in precision-ladder, tf32-memory, torch-compile and memory-peak.

  jobs.py [PYTHON]

A key is the command of a row at scale full. A process serves several rows: torch.compile is the slow part. Forward passes
and backward passes share a compiled model, and so do compiled and eager turns.
"""
import sys
from pathlib import Path

PYTHON = sys.argv[1] if len(sys.argv) > 1 else "python3"
PEERS = Path(__file__).resolve().parent.parent / "peers"


def job(keys, words, turns=""):
    print(f"{','.join(keys)} | {PYTHON} {PEERS}/{words} | {turns}")


def rung(precision, attention, vocab, *eager):
    """A rung of precision-ladder; eager: the row of tf32-memory with its settings."""
    words = (f"torch_gpt2.py --size 124M --batch 16 --seq 1024 --precision {precision} --attention {attention} "
             f"--vocab {vocab} --compile --steps 10 --warmup 3")
    job([words, *eager], f"{words} --turns --init-on-device", "step compiled" + ("; step eager" if eager else ""))


def not_compiled(precision):
    return (f"torch_gpt2.py --size 124M --batch 16 --seq 1024 --precision {precision} --attention naive --vocab 50257 "
            "--steps 4 --warmup 2")


def model(size, phase, precision="fp32", end=""):
    return (f"torch_gpt2.py --size {size} --batch 4 --seq 256 --precision {precision} --attention naive --init-on-device "
            f"--steps 4 --phase {phase}{end}")


def compiled_size(size, *more):
    phases = ["forward-saved", "backward"]
    keys = [model(size, phase, end=end) for end in ("", " --compile") for phase in phases]
    turns = [f"{phase} {how}" for how in ("eager", "compiled") for phase in phases]
    job(keys + [model(size, phase) for phase in more], model(size, "backward", end=" --compile --warmup 1 --turns"),
        "; ".join(turns + [f"{phase} eager" for phase in more]))


rung("fp32", "naive", 50257, not_compiled("fp32"))
rung("tf32", "naive", 50257, not_compiled("tf32"))
rung("bf16", "naive", 50257)
rung("bf16", "flash", 50257)
rung("bf16", "flash", 50304)
compiled_size("cs336-2.7B", "step")
for name in ("cs336-small", "cs336-medium", "cs336-large", "cs336-xl"):
    compiled_size(name)
job([model("cs336-2.7B", phase, "bf16") for phase in ("forward-saved", "step")],
    model("cs336-2.7B", "forward-saved", "bf16", " --warmup 1 --turns"), "forward-saved eager; step eager")
for name in ("fp32", "tf32"):
    transient = "torch_transient.py --during {} --precision " + name + " --batch 16"
    job([transient.format("start"), transient.format("capture")], transient.format("start capture"))

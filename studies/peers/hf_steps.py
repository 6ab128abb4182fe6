"""Training steps of transformers' models, for families.py and peft_lora.py."""
import json
import subprocess
import tempfile
import time


def new_model(config, dtype):
    """A model with random weights on the GPU."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    model.config.use_cache = False
    return model


def decoder_layers(model):
    """The list of the model's layers, also below wrappers."""
    import torch
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and name.split(".")[-1] == "layers":
            return module
    raise ValueError(f"{type(model).__name__} has no list of layers")


def training_steps(model, parameters, lr, vocab, batch, seq, autocast, compiled):
    """A function that makes `n` steps with AdamW and returns their milliseconds. compiled: "model" (with its loss, as one
    graph) or "layer" (each layer of the decoder alone)."""
    import torch
    optimizer = torch.optim.AdamW(parameters, lr=lr, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def loss_of(ids):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return model(input_ids=ids, labels=ids).loss

    if compiled == "layer":
        for layer in decoder_layers(model):
            layer.compile()
    else:
        loss_of = torch.compile(loss_of)

    def steps(n):
        times = []
        for _ in range(n):
            ids = torch.randint(0, vocab, (batch, seq), device="cuda")
            torch.cuda.synchronize()
            start = time.perf_counter()
            loss_of(ids).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e3)
        return times

    return steps


def peak_gib():
    import torch
    return torch.cuda.max_memory_allocated() / 2**30


def add_options(parser):
    """The options that both programs have."""
    parser.add_argument("crest"), parser.add_argument("cases", nargs="+")
    parser.add_argument("--rounds", type=int, default=2), parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--modes", default="mixed,bf16")
    parser.add_argument("--compile", choices=["model", "layer"], default="model")


def parse_case(case):
    name, batch, seq = case.split(":")
    return name, int(batch), int(seq)


def saved_config(config):
    """A folder with config.json, for --model."""
    folder = tempfile.mkdtemp()
    config.architectures = [type(config).__name__.replace("TextConfig", "ForCausalLM").replace("Config", "ForCausalLM")]
    config.save_pretrained(folder)
    return folder


def crest_bench(crest, folder, batch, seq, steps, flags=()):
    """A row of crest bench, or the end of its messages as a text."""
    words = [crest, "bench", "--device", "cuda", "--model", folder, "--batch", str(batch), "--seq", str(seq), "--samples",
             str(steps), "--no-mfu", "--no-store", "--json", *flags]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stderr.strip()[-400:] if done.returncode else json.loads(done.stdout)[0]

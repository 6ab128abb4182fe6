#!/usr/bin/env python3
"""Decoding speed of crest sample beside transformers' generate(), on models with random weights.

  decode.py --crest build/release/crest --models 124M,1558M --device cuda --weights float,int8 --static

Each model is made once in a temporary folder that both programs read. Both continue the same 32
token ids greedily by --tokens tokens, one sequence, without stopping at an end of text. Tokens a
second are those after the prompt: for transformers, the time of --tokens tokens less that of one.
Programs alternate; the median of --rounds is printed. transformers runs with its dynamic cache and,
with --static, with the static cache that it compiles.

--weights int8 adds Crest's int8 weights, and those of the libraries that can be imported:
bitsandbytes (LLM.int8, its defaults; GPU only: activations become int8, too, but for outliers, and
the head stays float) and torchao (weights only, one scale for each output, as Crest's, the head
included).
"""
import argparse, importlib.util, json, shutil, statistics, subprocess, sys, tempfile, time

SIZES = {"124M": (12, 12, 768), "355M": (24, 16, 1024), "774M": (36, 20, 1280), "1558M": (48, 25, 1600)}
PROMPT = list(range(100, 132))


def make(folder, size, device):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    layers, heads, width = SIZES[size]
    torch.manual_seed(0)
    with torch.device(device):
        model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_head=heads, n_embd=width))
    model.to(torch.bfloat16).save_pretrained(folder)


def crest(program, folder, args, weights):
    command = program.split() + [
        "sample", "--run", folder, "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-tokens", str(args.tokens),
        "--temperature", "0", "--ignore-end", "--precision", args.precision, "--device", args.device, "--weights",
        weights, "--json"]
    if args.threads and args.device == "cpu":
        command += ["--threads", str(args.threads)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=args.timeout).stdout
    result = json.loads(out)
    sample = result["samples"][0]
    return sample["tokens_per_second"], sample["tokens"]


def linear_layers(model):
    """Replaces GPT-2's Conv1D (a transposed linear layer), which torchao does not know."""
    import torch
    from transformers.pytorch_utils import Conv1D
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Conv1D):
                inputs, outputs = child.weight.shape
                linear = torch.nn.Linear(inputs, outputs, device=child.weight.device, dtype=child.weight.dtype)
                linear.weight.data, linear.bias.data = child.weight.data.T.contiguous(), child.bias.data
                setattr(parent, name, linear)


def stored(tensor):
    """The tensors that a quantized one consists of: integers and scales."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    return [part for name in tensor.__tensor_flatten__()[0] for part in stored(getattr(tensor, name))]


def weight_bytes(model):
    parts = [part for t in [*model.parameters(), *model.buffers()] for part in stored(t)]
    return sum(t.numel() * t.element_size() for t in {id(t): t for t in parts}.values())


class Peer:
    def __init__(self, folder, args, static, int8=""):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch, self.args, self.static = torch, args, static
        if args.threads and args.device == "cpu":
            torch.set_num_threads(args.threads)
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[args.precision]
        if int8 == "bitsandbytes":
            from transformers import BitsAndBytesConfig
            self.model = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, device_map={"": args.device},
                quantization_config=BitsAndBytesConfig(load_in_8bit=True)).eval()
        else:
            self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(args.device).eval()
        if int8 == "torchao":
            from torchao.quantization import Int8WeightOnlyConfig, quantize_
            linear_layers(self.model)
            quantize_(self.model, Int8WeightOnlyConfig())
        self.bytes = weight_bytes(self.model)
        self.run(args.tokens)  # warm-up, and compilation

    def run(self, tokens):
        ids = self.torch.tensor([PROMPT], device=self.args.device)
        kind = {"cache_implementation": "static"} if self.static else {}
        if self.args.device == "cuda":
            self.torch.cuda.synchronize()
        start = time.perf_counter()
        with self.torch.no_grad():
            out = self.model.generate(ids, attention_mask=self.torch.ones_like(ids), do_sample=False,
                                      min_new_tokens=tokens, max_new_tokens=tokens, pad_token_id=0, **kind)
        if self.args.device == "cuda":
            self.torch.cuda.synchronize()
        return time.perf_counter() - start, out[0].tolist()[len(PROMPT):]

    def speed(self):
        one, _ = self.run(1)
        all_, ids = self.run(self.args.tokens)
        return (self.args.tokens - 1) / (all_ - one), ids


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--crest", default="build/release/crest")
    p.add_argument("--models", default="124M")
    p.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    p.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--timeout", type=float, default=300)
    p.add_argument("--weights", default="float", help="float, int8, or float,int8")
    p.add_argument("--static", action="store_true")
    args = p.parse_args()
    weights = args.weights.split(",")
    if not set(weights) <= {"float", "int8"}:
        p.error("--weights: float, int8, or float,int8")
    libraries = [n for n in ("bitsandbytes", "torchao") if "int8" in weights and importlib.util.find_spec(n)]
    if "bitsandbytes" in libraries and args.device == "cpu":
        libraries.remove("bitsandbytes")
    import torch, transformers
    if "int8" in weights:
        found = ", ".join(f"{n} {__import__(n).__version__}" for n in libraries)
        print(f"int8 weights of transformers: {found or 'neither bitsandbytes nor torchao can be imported'}")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {args.device}, {args.precision}, "
          f"{args.tokens} tokens after {len(PROMPT)}, one sequence, median of {args.rounds}")
    for size in args.models.split(","):
        folder = tempfile.mkdtemp()
        try:
            make(folder, size, args.device)
            kinds = [("transformers", False)] + ([("transformers, static cache", True)] if args.static else [])
            peers = {name: Peer(folder, args, static) for name, static in kinds}
            for library in libraries:
                peers.update({f"{name}, {library} int8": Peer(folder, args, static, library) for name, static in kinds})
            speeds, ids = {}, {}
            for _ in range(args.rounds):
                for kind in weights:
                    name = "crest" if kind == "float" else "crest, int8"
                    speed, ids[name] = crest(args.crest, folder, args, kind)
                    speeds.setdefault(name, []).append(speed)
                for name, peer in peers.items():
                    speed, ids[name] = peer.speed()
                    speeds.setdefault(name, []).append(speed)
            for name, list_ in speeds.items():
                alike = sum(a == b for a, b in zip(ids[name], ids["transformers"]))
                size_of = f", {peers[name].bytes / 2**20:.0f} MiB of weights" if name in peers else ""
                print(f"{size:>6} {name:<44} {statistics.median(list_):8.1f} tokens/s ({min(list_):.1f} to "
                      f"{max(list_):.1f}), {alike} of {args.tokens} tokens as transformers{size_of}", flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())

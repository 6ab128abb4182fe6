#!/usr/bin/env python3
"""Decoding speed of crest sample beside transformers' generate(), on models with random weights.

  decode.py --crest build/release/crest --models 124M,1558M --device cuda

Each model is made once in a temporary folder that both programs read. Both continue the same 32
token ids greedily by --tokens tokens, one sequence, without stopping at an end of text. Tokens a
second are those after the prompt: for transformers, the time of --tokens tokens less that of one.
Programs alternate; the median of --rounds is printed. transformers runs with its dynamic cache and,
with --static, with the static cache that it compiles.
"""
import argparse, json, shutil, statistics, subprocess, sys, tempfile, time

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


def crest(program, folder, args):
    command = program.split() + [
        "sample", "--run", folder, "--prompt-tokens", ",".join(map(str, PROMPT)), "--max-tokens", str(args.tokens),
        "--temperature", "0", "--ignore-end", "--precision", args.precision, "--device", args.device, "--json"]
    if args.threads and args.device == "cpu":
        command += ["--threads", str(args.threads)]
    out = subprocess.run(command, check=True, capture_output=True, text=True, timeout=args.timeout).stdout
    result = json.loads(out)
    sample = result["samples"][0]
    return sample["tokens_per_second"], sample["tokens"]


class Peer:
    def __init__(self, folder, args, static):
        import torch
        from transformers import AutoModelForCausalLM
        self.torch, self.args, self.static = torch, args, static
        if args.threads and args.device == "cpu":
            torch.set_num_threads(args.threads)
        dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[args.precision]
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(args.device).eval()
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
    p.add_argument("--static", action="store_true")
    args = p.parse_args()
    import torch, transformers
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {args.device}, {args.precision}, "
          f"{args.tokens} tokens after {len(PROMPT)}, one sequence, median of {args.rounds}")
    for size in args.models.split(","):
        folder = tempfile.mkdtemp()
        try:
            make(folder, size, args.device)
            peers = {"transformers": Peer(folder, args, False)}
            if args.static:
                peers["transformers, static cache"] = Peer(folder, args, True)
            speeds, ids = {}, {}
            for _ in range(args.rounds):
                speed, ids["crest"] = crest(args.crest, folder, args)
                speeds.setdefault("crest", []).append(speed)
                for name, peer in peers.items():
                    speed, ids[name] = peer.speed()
                    speeds.setdefault(name, []).append(speed)
            for name, list_ in speeds.items():
                alike = sum(a == b for a, b in zip(ids[name], ids["transformers"]))
                print(f"{size:>6} {name:<28} {statistics.median(list_):8.1f} tokens/s ({min(list_):.1f} to "
                      f"{max(list_):.1f}), {alike} of {args.tokens} tokens as transformers", flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())

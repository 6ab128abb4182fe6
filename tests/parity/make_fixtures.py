#!/usr/bin/env python3
"""Makes the parity fixtures with PyTorch and transformers (README.md tells what they hold and how to run this).

Everything is computed on the CPU in float64 and stored in float32. The decoders of transformers fall back to float32
inside RMSNorm, rotary angles and softmax whatever the model's dtype; `exact_decoder` replaces these three by the same
formulas in float64, and `float32_error` in info.json, made with the untouched model in float32, shows that nothing else
changed.
"""
import argparse
import json
import math
import platform
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM, GraniteConfig, GraniteForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, NanoChatConfig, NanoChatForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Olmo3Config, Olmo3ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          SmolLM3Config,
                          SmolLM3ForCausalLM, StableLmConfig, StableLmForCausalLM, Starcoder2Config,
                          Starcoder2ForCausalLM)

STEPS = 10
LR, BETAS, EPS, WEIGHT_DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
NO_TOKENS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
SMALL = dict(num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, hidden_size=24, intermediate_size=40,
             vocab_size=53, max_position_embeddings=40, **NO_TOKENS)

# name -> (class, config, batch, sequence length, dtype of model.safetensors)
FIXTURES = {
    "gpt2-tiny": (
        GPT2LMHeadModel,
        GPT2Config(n_layer=2, n_head=3, n_embd=48, n_inner=144, vocab_size=97, n_positions=33, resid_pdrop=0.0,
                   embd_pdrop=0.0, attn_pdrop=0.0, activation_function="gelu_new", **NO_TOKENS),
        3, 17, torch.float32),
    # heads * head_dim differs from the width; weights are stored as bfloat16.
    "llama-tiny": (
        LlamaForCausalLM,
        LlamaConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, hidden_size=64,
                    intermediate_size=96, vocab_size=101, max_position_embeddings=40, rms_norm_eps=1e-5,
                    tie_word_embeddings=False, **NO_TOKENS),
        3, 19, torch.bfloat16),
    # Frequencies in all three bands of Llama 3's rescaling; one key/value head.
    "llama3-tied-tiny": (
        LlamaForCausalLM,
        LlamaConfig(num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, hidden_size=32,
                    intermediate_size=48, vocab_size=61, max_position_embeddings=128, rms_norm_eps=1e-6,
                    tie_word_embeddings=True,
                    rope_parameters=dict(rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=64), **NO_TOKENS),
        2, 23, torch.float32),
    # A sliding window much shorter than the sequence.
    "mistral-tiny": (
        MistralForCausalLM,
        MistralConfig(num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, hidden_size=32,
                      intermediate_size=48, vocab_size=61, max_position_embeddings=40, rms_norm_eps=1e-5,
                      sliding_window=6, tie_word_embeddings=False, **NO_TOKENS),
        3, 23, torch.float32),
    # Layers with and without rotation, and windows in the latter.
    "smollm3-tiny": (
        SmolLM3ForCausalLM,
        SmolLM3Config(**SMALL | dict(num_hidden_layers=3), no_rope_layers=[1, 0, 1], use_sliding_window=True,
                      sliding_window=5, rope_parameters=dict(rope_type="default", rope_theta=800.0)),
        2, 13, torch.float32),
    "granite-tiny": (
        GraniteForCausalLM,
        GraniteConfig(**SMALL, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
                      logits_scaling=2.0, attention_bias=True, tie_word_embeddings=True),
        2, 13, torch.float32),
    "starcoder2-tiny": (
        Starcoder2ForCausalLM,
        Starcoder2Config(**SMALL, sliding_window=5, residual_dropout=0.0, embedding_dropout=0.0, use_bias=True),
        2, 13, torch.float32),
    # Fused matrices, and half of each head rotated.
    "phi3-tiny": (
        Phi3ForCausalLM,
        Phi3Config(**SMALL, original_max_position_embeddings=40, sliding_window=6, partial_rotary_factor=0.5),
        2, 13, torch.float32),
    # Queries, keys and values by head; a quarter of 16 elements rotated; attention and MLP in parallel.
    "gpt-neox-tiny": (
        GPTNeoXForCausalLM,
        GPTNeoXConfig(num_hidden_layers=2, num_attention_heads=2, hidden_size=32, intermediate_size=40, vocab_size=53,
                      max_position_embeddings=40, **NO_TOKENS),
        2, 13, torch.float32),
    # LayerNorm with biases, queries, keys and values with biases, all else without.
    "stablelm-tiny": (
        StableLmForCausalLM,
        StableLmConfig(**SMALL, use_qkv_bias=True, partial_rotary_factor=0.25),
        2, 13, torch.float32),
    # Norms of each head.
    "qwen3-tiny": (
        Qwen3ForCausalLM,
        Qwen3Config(**SMALL, head_dim=10, use_sliding_window=True, sliding_window=5, max_window_layers=1),
        2, 13, torch.float32),
    # Norms of all heads, and behind attention and MLP.
    "olmo2-tiny": (Olmo2ForCausalLM, Olmo2Config(**SMALL), 2, 13, torch.float32),
    # The same with a rotation for each type of layer.
    "olmo3-tiny": (
        Olmo3ForCausalLM,
        Olmo3Config(**SMALL, sliding_window=5, layer_types=["sliding_attention", "full_attention"], rope_parameters={
            "sliding_attention": dict(rope_type="default", rope_theta=300.0),
            "full_attention": dict(rope_type="default", rope_theta=5000.0)}),
        2, 13, torch.float32),
    # Norms around attention and MLP, 1 + weight, GEGLU, scaled embeddings.
    "gemma3-tiny": (
        Gemma3ForCausalLM,
        Gemma3TextConfig(**SMALL, head_dim=10, query_pre_attn_scalar=12, sliding_window=5, tie_word_embeddings=True,
                         layer_types=["sliding_attention", "full_attention"]),
        2, 13, torch.bfloat16),
    # Norms without weights, also of the embedding and of rotated heads, a rotation backwards, squared ReLU, a cap of logits.
    "nanochat-tiny": (NanoChatForCausalLM, NanoChatConfig(**SMALL, head_dim=8, final_logit_softcapping=1.5), 2, 13, torch.float32),
}


def randomize(model, generator):
    """Weights with gradients of ordinary size everywhere: no zero biases, no unit norms, attention that is not flat."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                from_one = name.endswith("weight") and not isinstance(model, Gemma3ForCausalLM)  # it adds 1
                p.copy_(0.1 * noise + (1.0 if from_one else 0.0))
            elif any(part in name for part in ("wte", "wpe", "embed", "lm_head")):
                p.copy_(0.3 * noise)
            else:
                fan_in = p.shape[0] if ".c_" in name else p.shape[1]  # Conv1D stores [in, out]
                p.copy_(noise / math.sqrt(fan_in))


def exact_frequencies(rope, dim):
    dim = int(dim * rope.get("partial_rotary_factor", 1))
    inv_freq = rope["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    if rope["rope_type"] == "llama3":
        wavelength = 2 * math.pi / inv_freq
        original = rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)
        inv_freq = (1 - smooth) * inv_freq / rope["factor"] + smooth * inv_freq
    return inv_freq


def exact_decoder(model, config):
    """The three places where the decoders of transformers leave float64."""
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotary = model.base_model.rotary_emb
    by_type = {kind: exact_frequencies(rope, dim) for kind, rope in config.rope_parameters.items() if isinstance(rope, dict)}
    by_type = by_type or {None: exact_frequencies(config.rope_parameters, dim)}
    for kind, inv_freq in by_type.items():
        theirs = getattr(rotary, f"{kind}_inv_freq" if kind else "inv_freq")
        torch.testing.assert_close(inv_freq, theirs.double(), rtol=1e-6, atol=0)

    def rotary_forward(x, position_ids, layer_type=None, **_):
        angles = position_ids[..., None].double() * by_type[layer_type]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos(), angles.sin()

    rotary.forward = rotary_forward
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            one = 0.0 if hasattr(module, "weight") and not type(module).__name__.startswith("Gemma") else 1.0
            eps = module.eps if one else module.variance_epsilon
            module.forward = lambda x, m=module, o=one, e=eps: (o + getattr(m, "weight", 0.0)) * (
                x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + e))
        if hasattr(module, "embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale, dtype=torch.float64)


def make_model(cls, config, weights, dtype, exact):
    # sdpa keeps float64; eager is the plain formula that the float32 and bfloat16 runs use.
    config = type(config)(**config.to_dict() | dict(dtype=torch.float32))  # buffers are made in this dtype
    model = cls._from_config(config, attn_implementation="sdpa" if exact else "eager")
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    model = model.to(dtype)
    if exact and cls is not GPT2LMHeadModel:
        exact_decoder(model, config)
    return model.train()


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens, use_cache=False).logits
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return logits, F.cross_entropy(wide.flatten(0, 1), targets.flatten())


def gradients(model, tokens, targets, autocast=False):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits, loss = loss_of(model, tokens, targets)
    loss.backward()
    return logits.detach(), loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters()}


def train(model, tokens, targets):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([dict(params=decay, weight_decay=WEIGHT_DECAY), dict(params=rest, weight_decay=0.0)],
                                  lr=LR, betas=BETAS, eps=EPS)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        _, loss = loss_of(model, tokens[step], targets[step])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        losses.append(loss.item())
        optimizer.step()
    return losses, norms, {n: p.detach().clone() for n, p in model.named_parameters()}


def relative(a, b):
    a, b = a.double(), b.double()
    return ((a - b).norm() / b.norm().clamp_min(1e-300)).item()


def make(name, out):
    cls, config, batch, seq, stored = FIXTURES[name]
    generator = torch.Generator().manual_seed(list(FIXTURES).index(name) + 1)
    model = cls(config)
    randomize(model, generator)
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    model.to(stored).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = model.float()
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}

    def tokens(*shape):
        return torch.randint(0, config.vocab_size, shape, generator=generator)

    x, y = tokens(batch, seq), tokens(batch, seq)
    step_x, step_y = tokens(STEPS, batch, seq), tokens(STEPS, batch, seq)

    exact = make_model(cls, config, weights, torch.float64, True)
    logits, loss, grads = gradients(exact, x, y)
    losses, norms, final = train(exact, step_x, step_y)
    delta = {n: final[n] - weights[n].double() for n in final}

    def errors(dtype, autocast=False, steps=False):
        model = make_model(cls, config, weights, dtype, False)
        l, s, g = gradients(model, x, y, autocast)
        report = {"loss": abs(s.item() / loss.item() - 1), "logits": relative(l, logits),
                  "gradients": {n: relative(g[n], grads[n]) for n in grads}}
        if steps:
            s_losses, s_norms, s_final = train(model, step_x, step_y)
            report["steps"] = {
                "losses": max(abs(a / b - 1) for a, b in zip(s_losses, losses)),
                "grad_norms": max(abs(a / b - 1) for a, b in zip(s_norms, norms)),
                "delta": {n: relative(s_final[n].double() - weights[n].double(), delta[n]) for n in delta}}
        return report

    expected = {"tokens": x.int(), "targets": y.int(), "logits": logits.float(), "loss": loss.reshape(1),
                "steps.tokens": step_x.int(), "steps.targets": step_y.int(),
                "steps.losses": torch.tensor(losses, dtype=torch.float64),
                "steps.grad_norms": torch.tensor(norms, dtype=torch.float64)}
    in_file = {"lm_head.weight": "embed_out.weight"} if cls is GPTNeoXForCausalLM else {}
    expected |= {"grad." + in_file.get(n, n): g.float() for n, g in grads.items()}
    expected |= {"delta." + in_file.get(n, n): d.half() for n, d in delta.items()}
    save_file({n: t.contiguous() for n, t in expected.items()}, folder / "expected.safetensors")
    info = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__,
                      "python": platform.python_version()},
        "optimizer": {"lr": LR, "betas": BETAS, "eps": EPS, "weight_decay": WEIGHT_DECAY, "clip": CLIP, "steps": STEPS},
        "float32_error": errors(torch.float32, steps=True),
        "bf16_autocast_error": errors(torch.float32, autocast=True),
        "bf16_pure_error": errors(torch.bfloat16),
    }
    (folder / "info.json").write_text(json.dumps(info, indent=1) + "\n")
    for f in folder.iterdir():
        f.chmod(0o644)  # safetensors writes 600
    size = sum(f.stat().st_size for f in folder.iterdir())
    assert size < 600_000, f"{folder} holds {size} bytes"
    worst = {k: max(info[k]["gradients"].values()) for k in info if k.endswith("_error")}
    print(f"{name}: {size} bytes, loss {loss.item():.6f}, norms {min(norms):.3f}..{max(norms):.3f}, "
          f"losses {losses[0]:.4f}..{losses[-1]:.4f}, worst gradient errors {worst}")
    print("  float32 logits", info["float32_error"]["logits"], "steps", info["float32_error"]["steps"]["losses"],
          sorted(info["float32_error"]["steps"]["delta"].items(), key=lambda i: -i[1])[:4])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(FIXTURES)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "fixtures")
    args = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for name in args.names or FIXTURES:
        make(name, args.out)


if __name__ == "__main__":
    main()

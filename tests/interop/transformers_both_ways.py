#!/usr/bin/env python3
"""Crest's checkpoints in transformers, and those of transformers in Crest: the same logits. Usage: SCRIPT WORK_FOLDER"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from common import crest, crest_logits, distance, write_data
from key_pairs import compare_key_pairs

work = sys.argv[1]
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
TOLERANCE = 1e-5
# Also written back by Crest, and opened by transformers.
AGAIN = ("gpt2-sharded", "llama-sharded-bf16", "gpt2-relu", "llama-biases", "qwen2", "mistral-wide-window", "mistral-window",
         "qwen2-window", "llama-dynamic", "llama-yarn-mscale", "smollm3", "granite-bf16", "starcoder2", "phi3-bf16", "phi3-longrope", "gpt_neox",
         "stablelm", "qwen3", "olmo2", "olmo3-bf16", "gemma3_text-bf16", "nanochat")
SIZES = "preset = \"{}\"\nlayers = 2\nwidth = 48\nheads = {}\nkv_heads = {}\nhead_dim = {}\nff = {}\ncontext = 32\nvocab = {}\ntied = {}\n"
LLAMA = SIZES.format("llama-nano", 4, 2, 12, 96, 101, "false")
UNEVEN = SIZES.format("llama-nano", 5, 5, 8, 96, 101, "false").replace("width = 48", "width = 32")
# Vocabularies that --pad-vocab 128 pads; grouped-query heads; heads wider than width / heads.
TRAINED = {"gpt2": SIZES.format("nano", 3, 3, 16, 192, 101, "true"),
           "gpt2-untied": SIZES.format("nano", 4, 4, 12, 96, 130, "false"),
           "llama": SIZES.format("llama-nano", 4, 2, 12, 96, 101, "false"),
           "gpt2-relu": SIZES.format("nano", 3, 3, 16, 192, 101, "true") + 'activation = "relu"\n',
           "llama-tied-wide-heads": SIZES.format("llama-nano", 4, 1, 16, 128, 77, "true"),
           "llama-biases": LLAMA + "attention_bias = true\nmlp_bias = true\n",
           "llama-mlp-bias": LLAMA + "mlp_bias = true\n",
           "qwen2": LLAMA + "qkv_bias = true\n",
           "mistral": LLAMA + "window = 7\n",
           "qwen2-window": LLAMA + "qkv_bias = true\nwindow = 7\nfull_layers = 1\n",
           "smollm3": LLAMA + 'pattern = "AB"\n[layer.B]\nrope = false\nwindow = 5\n',
           "granite": LLAMA + "embedding_scale = 3.0\nresidual_scale = 0.4\nattention_scale = 0.3\nlogit_scale = 0.5\n",
           "starcoder2": LLAMA + 'norm = "layer"\nbias = true\nactivation = "gelu"\nwindow = 7\n',
           "starcoder2-norm-biases": LLAMA + 'norm = "layer"\nnorm_bias = true\nactivation = "gelu"\n',
           "phi3": LLAMA + 'family = "phi3"\nwindow = 7\n',
           "phi3-longrope": LLAMA + 'rotary_dim = 6\n[rope_scaling]\ntype = "yarn"\nfactor = 1.0\nattention_factor = 1.2\n',
           "gpt_neox": SIZES.format("llama-nano", 4, 4, 12, 96, 101, "false")
                       + 'norm = "layer"\nbias = true\nactivation = "gelu_erf"\nrotary_dim = 6\nparallel_residual = true\n',
           "stablelm": LLAMA + 'norm = "layer"\nnorm_bias = true\nqkv_bias = true\nrotary_dim = 4\n',
           "qwen3": LLAMA + 'qk_norm = "head"\nwindow = 7\nfull_layers = 1\n',
           "olmo2": LLAMA + 'qk_norm = "row"\nnorm_position = "after"\n',
           "olmo3": LLAMA + 'qk_norm = "row"\nnorm_position = "after"\nwindow = 5\npattern = "AB"\n[layer.B]\nwindow = 0\n'
                            '[layer.B.rope_scaling]\ntype = "yarn"\nfactor = 4\noriginal_context = 16\n',
           "gemma3_text": LLAMA.replace("false", "true")
                          + f'qk_norm = "head"\nnorm_position = "both"\nactivation = "geglu"\nembedding_scale = {48 ** 0.5!r}\nwindow = 5\n'
                            'attention_scale = 0.5\npattern = "AB"\n[layer.B]\nwindow = 0\nrope_theta = 5000\n',
           "nanochat": LLAMA + 'norm_weight = false\nembedding_norm = true\nqk_norm = "head"\nactivation = "relu2"\nlogit_cap = 1.5\n',
           # 5 heads of 8 at width 32: transformers refuses such a Llama.
           "mistral-uneven": UNEVEN,
           "qwen2-uneven": UNEVEN + "qkv_bias = true\n",
           "llama-linear": LLAMA + '[rope_scaling]\ntype = "linear"\nfactor = 4\n',
           # Trained on sequences of 32, beyond the original 16.
           "llama-dynamic": LLAMA + '[rope_scaling]\ntype = "dynamic"\nfactor = 2\noriginal_context = 16\n',
           "llama-yarn": LLAMA + '[rope_scaling]\ntype = "yarn"\nfactor = 4\noriginal_context = 8\n',
           "llama-yarn-ramp": LLAMA + '[rope_scaling]\ntype = "yarn"\nfactor = 4\noriginal_context = 64\nbeta_fast = 5.5\n'
                                      'beta_slow = 0.3\nattention_factor = 1.4\ntruncate = false\n'}


def torch_logits(model, tokens):
    with torch.no_grad():
        out = model(input_ids=torch.tensor([tokens[:-1].tolist()]))
        logits = out.logits[0].double()
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(tokens[1:].tolist()))
    return logits.numpy(), loss.item()


def load(folder):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32, attn_implementation="eager")
    assert not any(info.values()), (folder, info)
    return model.eval()


def compare(name, folder, model, vocab, limit=TOLERANCE):
    tokens = np.random.default_rng(5).integers(0, vocab, 30).astype(np.int32)
    ours, our_loss = crest_logits(folder, tokens, work)
    theirs, their_loss = torch_logits(model, tokens)
    error = distance(ours, theirs)
    print(f"{name}: logits differ by {error:.1e}, losses {our_loss:.6f} and {their_loss:.6f}")
    assert error <= limit and abs(our_loss - their_loss) <= 1e-4, name


def crest_to_transformers():
    for name, text in TRAINED.items():
        with open(f"{work}/{name}.toml", "w") as f:
            f.write(text)
        vocab = int(text.split("vocab = ")[1].split()[0])
        write_data(f"{work}/{name}-data", np.random.default_rng(1).integers(0, vocab, 2000))
        crest("train", "--data", f"{work}/{name}-data", "--model", f"{work}/{name}.toml", "--out", f"{work}/{name}", "--steps", 4,
              "--batch", 2, "--lr", "0.02", "--warmup", 0, "--pad-vocab", 128, "--device", "cpu", "--no-store", "--quiet", "--sample-every", 0)
        folder = f"{work}/{name}/checkpoints/step-000004"
        assert json.load(open(f"{folder}/config.json"))["model_type"] == name.split("-")[0] or "uneven" in name, folder
        compare(f"crest {name}", folder, load(folder), vocab)


def transformers_to_crest():
    torch.manual_seed(3)
    common = dict(vocab_size=101, bos_token_id=None, eos_token_id=None)
    gpt2 = dict(n_embd=48, n_layer=2, n_head=3, n_positions=40, **common)
    llama = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=40, **common)
    cases = {
        "gpt2": (transformers.GPT2Config(**gpt2), {}, torch.float32),
        "gpt2-sharded": (transformers.GPT2Config(**gpt2), {"max_shard_size": "60KB"}, torch.float32),
        "gpt2-bf16": (transformers.GPT2Config(**gpt2), {}, torch.bfloat16),
        "llama": (transformers.LlamaConfig(**llama), {}, torch.float32),
        "llama-sharded-bf16": (transformers.LlamaConfig(**llama), {"max_shard_size": "40KB"}, torch.bfloat16),
        "llama-tied": (transformers.LlamaConfig(tie_word_embeddings=True, **llama), {}, torch.float32),
        "llama-biases": (transformers.LlamaConfig(attention_bias=True, mlp_bias=True, **llama), {}, torch.float32),
        "llama-attention-bias": (transformers.LlamaConfig(attention_bias=True, **llama), {}, torch.float32),
        "qwen2": (transformers.Qwen2Config(**llama), {}, torch.float32),
        "mistral": (transformers.MistralConfig(sliding_window=None, **llama), {}, torch.float32),
        "mistral-window": (transformers.MistralConfig(sliding_window=7, **llama), {}, torch.float32),
        "mistral-window-1": (transformers.MistralConfig(sliding_window=1, **llama), {}, torch.float32),
        "qwen2-window": (transformers.Qwen2Config(use_sliding_window=True, sliding_window=9, max_window_layers=1, **llama), {},
                         torch.float32),
        "mistral-wide-window": (transformers.MistralConfig(sliding_window=40, head_dim=16, **llama), {}, torch.float32),
    }
    for activation in ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python"):
        cases[f"gpt2-{activation}"] = transformers.GPT2Config(activation_function=activation, **gpt2), {}, torch.float32
    small = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=40, pad_token_id=None, **common)
    cases |= {
        "smollm3": (transformers.SmolLM3Config(no_rope_layer_interval=2, **small), {}, torch.float32),
        "granite-bf16": (transformers.GraniteConfig(embedding_multiplier=2.5, residual_multiplier=0.3, attention_multiplier=0.2,
                                                    logits_scaling=4.0, mlp_bias=True, **small), {}, torch.bfloat16),
        "starcoder2": (transformers.Starcoder2Config(use_bias=False, sliding_window=6, hidden_act="gelu", **small), {}, torch.float32),
        "phi3-bf16": (transformers.Phi3Config(original_max_position_embeddings=40, sliding_window=9, **small), {}, torch.bfloat16),
        "phi3-longrope": (transformers.Phi3Config(**small | dict(max_position_embeddings=256), original_max_position_embeddings=32, rope_scaling={
            "type": "longrope", "short_factor": [1.0] * 3, "long_factor": [2.0] * 3}, partial_rotary_factor=0.5), {}, torch.float32),
        "gpt_neox": (transformers.GPTNeoXConfig(rotary_pct=0.5, use_parallel_residual=False, hidden_act="gelu_new", **{
            k: v for k, v in small.items() if k != "num_key_value_heads"}), {}, torch.float32),
        "stablelm": (transformers.StableLmConfig(partial_rotary_factor=0.5, **small), {}, torch.float32),
        "qwen3": (transformers.Qwen3Config(**small | dict(head_dim=8), attention_bias=True), {}, torch.float32),
        "olmo2": (transformers.Olmo2Config(**small), {}, torch.float32),
        "olmo3-bf16": (transformers.Olmo3Config(**small, sliding_window=6), {}, torch.bfloat16),
        "gemma3_text-bf16": (transformers.Gemma3TextConfig(
            **small | dict(num_hidden_layers=4, head_dim=10), sliding_window=6, query_pre_attn_scalar=24, final_logit_softcapping=0.7,
            layer_types=["sliding_attention", "full_attention"] * 2), {}, torch.bfloat16),
        "nanochat": (transformers.NanoChatConfig(**small, attention_bias=True, final_logit_softcapping=2.0), {}, torch.float32),
        "nanochat-no-cap": (transformers.NanoChatConfig(**small, final_logit_softcapping=None), {}, torch.float32),
    }
    for name, length, rope in (("linear", 40, dict(rope_type="linear", factor=2.5)),
                               ("dynamic", 16, dict(rope_type="dynamic", factor=3.0)),  # 29 tokens are read
                               ("dynamic-short", 32, dict(rope_type="dynamic", factor=3.0)),
                               ("llama3", 40, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                   original_max_position_embeddings=32)),
                               ("yarn", 40, dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=10)),
                               ("yarn-mscale", 64, dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=64, mscale=1.0,
                                                        mscale_all_dim=0.7, beta_fast=6.0, beta_slow=0.5, truncate=False))):
        config = transformers.LlamaConfig(**dict(llama, max_position_embeddings=length), rope_parameters=dict(rope, rope_theta=500.0))
        cases[f"llama-{name}"] = config, {}, torch.float32
    for name, (config, options, dtype) in cases.items():
        model = transformers.AutoModelForCausalLM.from_config(config)
        for p in model.parameters():  # livelier than 0.02, or logits hardly depend on the layers
            torch.nn.init.normal_(p, 1.0 if p.dim() == 1 else 0.0, 0.2)
        folder = f"{work}/from-{name}"
        model.to(dtype).save_pretrained(folder, **options)
        assert os.path.exists(f"{folder}/model.safetensors.index.json") == ("sharded" in name), os.listdir(folder)
        compare(f"transformers {name}", folder, load(folder), 101)
        # --init: a step of a rate below all rounding keeps the weights, so the run's checkpoint is the same model again.
        if name in AGAIN:
            write_data(f"{work}/init-data", np.random.default_rng(2).integers(0, 101, 500))
            crest("train", "--init", folder, "--data", f"{work}/init-data", "--out", f"{work}/init-{name}", "--steps", 1, "--batch", 1,
                  "--lr", 1e-30, "--weight-decay", 0, "--device", "cpu", "--precision", "fp32", "--no-store", "--quiet", "--sample-every", 0)
            compare(f"--init {name}", f"{work}/init-{name}", load(folder), 101)
            compare(f"--init {name} in transformers", f"{work}/init-{name}", load(f"{work}/init-{name}/checkpoints/step-000001"), 101)


def published_sizes():
    """Parameters of published models, counted without memory for them."""
    with open(os.path.join(os.path.dirname(__file__), "../model/published.json")) as f:
        models = json.load(f)["models"]
    for model in models:
        with torch.device("meta"):
            built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**model["config"]))
        assert sum(p.numel() for p in built.parameters()) == model["parameters"], model["source"]
        assert type(built).__name__ == model["config"]["architectures"][0], model["source"]
    print(f"{len(models)} published models have the parameters of published.json")


crest_to_transformers()
transformers_to_crest()
published_sizes()
compare_key_pairs(f"{work}/pair")
print("ok: transformers", transformers.__version__)

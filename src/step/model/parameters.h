// The parameters of a model, and counts of them. The model's Program declares the parameters; there
// is no second list.
#pragma once
#include <cstdint>
#include <vector>

#include "model/config.h"
#include "program/program.h"

namespace crest {

// All parameters of a model in the order of the forward pass (lm_head last), with the unpadded
// vocabulary. Matrices are [out, in] as in torch.nn.Linear, embeddings [rows, width].
//   wte.weight [V,C], wpe.weight [context,C] (learned positions), lm_head.weight [V,C] (untied), ln_f.weight/.bias [C]
//   h.N.ln_1, h.N.ln_2 .weight/.bias [C]
//   h.N.attn.qkv.weight [(heads + 2 kv_heads) head_dim, C]: all query heads, then key heads, then value heads
//   h.N.attn.proj.weight [C, heads head_dim]
//   h.N.mlp.fc.weight [ff,C] (GELU) or h.N.mlp.gate.weight, h.N.mlp.up.weight [ff,C] (SwiGLU); h.N.mlp.proj.weight
//   [C,ff]
// Linear layers have a .bias when config.has_..._bias(), norms when config.bias and the norm is
// LayerNorm.
std::vector<Param> parameters_of(const ModelConfig& config);

// The names of a linear layer's adapter after the layer's name (LoraConfig).
bool is_adapter(const Param& parameter);
inline constexpr const char *lora_a = ".lora_a.weight", *lora_b = ".lora_b.weight";

// Elements of trained parameters: all of them without adapters.
int64_t trained_parameter_count(const ModelConfig& config);
// Tied parameters count once.
int64_t parameter_count(const ModelConfig& config);
// Weights in matmuls: PaLM's N, with the head, without embeddings.
int64_t matmul_parameter_count(const ModelConfig& config);
// Token embeddings (also if the head shares them) and learned positions.
int64_t embedding_parameter_count(const ModelConfig& config);
// 6N + 12 L d T (PaLM, appendix B) with N = matmul_parameter_count and T = keys_per_token: model
// FLOPs per trained token, without a causal discount and without vocabulary padding.
// Frozen matrices have no gradient: 4 instead of 6 for each of their weights.
double flops_per_token(const ModelConfig& config, int64_t seq);
// A third of 6N + 12 L d T.
double forward_flops_per_token(const ModelConfig& config, int64_t seq);

}  // namespace crest

// Shared by the decoder families of transformers: keys of sizes and of layers with a window.
#pragma once
#include <optional>
#include <vector>

#include "model/family.h"
#include "model/huggingface_keys.h"

namespace crest {

// Defaults that differ from Llama's.
struct DecoderKeys {
  int64_t kv_heads = 0, head_dim = 0;  // 0: equal to heads; width / heads
  const char* eps_key = "rms_norm_eps";
  double eps = 1e-6;
  bool tied = false;
};
// Sizes of a model with RMSNorm, SwiGLU and rotary positions, without biases.
ModelConfig read_decoder(const Keys& keys, const DecoderKeys& defaults);
void write_decoder(const ModelConfig& config, nlohmann::ordered_json& out, const DecoderKeys& defaults);

// final_logit_softcapping caps the logits. `otherwise`: without the key.
void read_logit_cap(const Keys& keys, double otherwise, ModelConfig& config);
void write_logit_cap(const ModelConfig& config, nlohmann::ordered_json& out);

// Rejects all activations except silu.
void require_silu(const Keys& keys, const char* key = "hidden_act");
void require_no_dropout(const Keys& keys, const std::vector<const char*>& names);
// attention_bias and mlp_bias.
void read_biases(const Keys& keys, ModelConfig& config);
void write_biases(const ModelConfig& config, nlohmann::ordered_json& out);

// Marks each layer with "sliding_attention" in layer_types. nullopt: the file has no list.
std::optional<std::vector<bool>> sliding_layers(const Keys& keys, int64_t layers);
// Keeps the window in these layers and removes it from the others.
void set_sliding(ModelConfig& config, const std::vector<bool>& sliding);
nlohmann::ordered_json layer_types(const ModelConfig& config);
// Qwen's: use_sliding_window, sliding_window, max_window_layers, layer_types.
void read_optional_windows(const Keys& keys, ModelConfig& config);
void write_optional_windows(const ModelConfig& config, nlohmann::ordered_json& out);

// Two layer types, each with its own rotation. Keys: layer_types, sliding_window, and
// rope_parameters by type. Older files have rope_theta and rope_scaling for full-attention layers.
// Without layer_types, every layer slides except each `interval`th.
void read_layer_types(const Keys& keys, const RopeKeys& sliding, const RopeKeys& full, int64_t interval,
                      ModelConfig& config);
void write_layer_types(const ModelConfig& config, nlohmann::ordered_json& out);

extern const TensorNames llama_names;

}  // namespace crest

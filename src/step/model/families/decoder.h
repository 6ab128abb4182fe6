// What the decoders of transformers have in common: keys of sizes, and of layers with a window.
#pragma once
#include <optional>
#include <vector>

#include "model/family.h"
#include "model/huggingface_keys.h"

namespace crest {

// Defaults of a type, where they differ from Llama's.
struct DecoderKeys {
  int64_t kv_heads = 0, head_dim = 0;  // 0: as many as heads; the width divided by the heads
  const char* eps_key = "rms_norm_eps";
  double eps = 1e-6;
  bool tied = false;
};
// Sizes of a model with RMSNorm, SwiGLU and rotary positions, without biases.
ModelConfig read_decoder(const Keys& keys, const DecoderKeys& defaults);
void write_decoder(const ModelConfig& config, nlohmann::ordered_json& out, const DecoderKeys& defaults);

// final_logit_softcapping, the cap of logits. otherwise: if the file has no such key.
void read_logit_cap(const Keys& keys, double otherwise, ModelConfig& config);
void write_logit_cap(const ModelConfig& config, nlohmann::ordered_json& out);

// Only silu, under the key `key`.
void require_silu(const Keys& keys, const char* key = "hidden_act");
void require_no_dropout(const Keys& keys, const std::vector<const char*>& names);
// attention_bias and mlp_bias.
void read_biases(const Keys& keys, ModelConfig& config);
void write_biases(const ModelConfig& config, nlohmann::ordered_json& out);

// True for every layer with "sliding_attention" in layer_types; absent: the file has no such list.
std::optional<std::vector<bool>> sliding_layers(const Keys& keys, int64_t layers);
// Gives these layers the window of the others' config, and none to the rest.
void set_sliding(ModelConfig& config, const std::vector<bool>& sliding);
nlohmann::ordered_json layer_types(const ModelConfig& config);
// Qwen's: use_sliding_window, sliding_window, max_window_layers, layer_types.
void read_optional_windows(const Keys& keys, ModelConfig& config);
void write_optional_windows(const ModelConfig& config, nlohmann::ordered_json& out);

// Layers of two types, each with a rotation: layer_types, sliding_window (in the sliding ones),
// rope_parameters by type, or rope_theta and rope_scaling (of the others). Without layer_types
// every layer slides whose number is no multiple of `interval`.
void read_layer_types(const Keys& keys, const RopeKeys& sliding, const RopeKeys& full, int64_t interval,
                      ModelConfig& config);
void write_layer_types(const ModelConfig& config, nlohmann::ordered_json& out);

extern const TensorNames llama_names;

}  // namespace crest

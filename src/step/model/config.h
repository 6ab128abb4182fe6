// The model family that Crest builds. One configuration covers GPT-2 and Llama shapes, and mixtures
// of them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace crest {

enum class NormKind { layer, rms };
enum class PositionKind { learned, rope };
enum class ActivationKind { gelu, swiglu, gelu_erf, relu };  // gelu: its tanh form

enum class RopeScalingType { llama3, linear, dynamic, yarn };

// The names of the enumerators, in order, as model files write them.
template <class E>
const std::vector<std::string>& names_of();
template <>
const std::vector<std::string>& names_of<NormKind>();
template <>
const std::vector<std::string>& names_of<PositionKind>();
template <>
const std::vector<std::string>& names_of<ActivationKind>();
template <>
const std::vector<std::string>& names_of<RopeScalingType>();
std::string name(ActivationKind activation);
std::string name(RopeScalingType type);

// How rotary frequencies are rescaled for contexts longer than the model was trained with. Types as
// transformers names them. linear: all of them divided by `factor`. llama3, yarn: the slow ones,
// with a ramp between (yarn also scales the rotated vectors). dynamic: the base grows with the
// sequence, beyond original_context.
struct RopeScaling {
  double factor = 1;                                 // 1: plain RoPE (yarn: with its attention_factor)
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  int64_t original_context = 8192;                   // all but linear
  RopeScalingType type = RopeScalingType::llama3;
  double beta_fast = 32, beta_slow = 1;  // yarn: turns within original_context at the ends of the ramp
  double attention_factor = 0;           // yarn; 0: 0.1 ln(factor) + 1
  bool truncate = true;                  // yarn: the ramp begins and ends at whole pairs
  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::string name = "custom";
  int64_t vocab = 50257;   // without padding (padding is a pass)
  int64_t context = 1024;  // longest sequence
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t kv_heads = 12;  // < heads: grouped-query attention
  int64_t width = 768;
  int64_t head_dim = 64;
  int64_t ff = 3072;  // inner width of the MLP
  NormKind norm = NormKind::layer;
  PositionKind position = PositionKind::learned;
  ActivationKind activation = ActivationKind::gelu;
  bool bias = true;  // in all linear layers (but the head) and LayerNorms
  // Without `bias`: in these linear layers. attention_bias: qkv and projection; qkv_bias: qkv only.
  bool qkv_bias = false, attention_bias = false, mlp_bias = false;
  bool tied = true;  // output head shares the token embedding
  double dropout = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  // Sliding-window attention: a token sees `window` tokens at most, itself included; 0: all. The
  // first `full_layers` layers see all of them.
  int64_t window = 0, full_layers = 0;
  RopeScaling rope_scaling;
  bool operator==(const ModelConfig&) const = default;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  bool has_qkv_bias() const { return bias || attention_bias || qkv_bias; }
  bool has_proj_bias() const { return bias || attention_bias; }
  bool has_mlp_bias() const { return bias || mlp_bias; }
  // The window of a layer in sequences of `tokens`; 0: it sees all of them.
  int64_t window_of(int64_t layer, int64_t tokens) const {
    return layer >= full_layers && window < tokens ? window : 0;
  }
  // Capacity of a cache for sampling. With dynamic RoPE, a sequence beyond original_context would
  // rotate the cached keys of its first tokens anew.
  int64_t cached_context() const;
  // The most keys that a token sees in a sequence of `seq`, on average over the layers: `seq`, but
  // for windows.
  double keys_per_token(int64_t seq) const;
};

// Throws a usage error that names the field (heads that do not divide the width, sizes out of
// range).
void validate(const ModelConfig& config, const std::string& where);

const std::vector<std::string>& preset_names();
// Aliases of presets: {"gpt2", "gpt2-124M"}, ...
const std::map<std::string, std::string>& preset_aliases();
// The preset with this name or alias; null if there is none.
const ModelConfig* find_preset(const std::string& name);
// A preset's name, a TOML file, or a folder with a Hugging Face config.json (or the file itself).
ModelConfig load_model_config(const std::string& name_or_path);
// TOML text that load_model_config reads back.
std::string to_toml(const ModelConfig& config);

}  // namespace crest

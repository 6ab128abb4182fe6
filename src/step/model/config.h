// The models that Crest builds: sizes, and a description of every kind of layer. A published family
// is one combination of them (model/family.h).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace crest {

enum class NormKind { layer, rms };
enum class PositionKind { learned, rope };
// gelu: its tanh form. swiglu, geglu: silu or gelu of one projection, times another one. relu2: the
// square of ReLU.
enum class ActivationKind { gelu, swiglu, gelu_erf, relu, geglu, relu2 };
// Where a layer normalizes: what attention and MLP read, what they give, or both.
enum class NormPosition { before, after, both };
// RMSNorm of queries and keys before they are rotated: of each head, or of all heads as one row.
enum class QkNorm { none, head, row };

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
const std::vector<std::string>& names_of<NormPosition>();
template <>
const std::vector<std::string>& names_of<QkNorm>();
template <>
const std::vector<std::string>& names_of<RopeScalingType>();
std::string name(ActivationKind activation);
// The MLP has two projections in, gate and up.
inline bool gated(ActivationKind a) { return a == ActivationKind::swiglu || a == ActivationKind::geglu; }
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

// How a layer computes. Sizes are those of the model.
struct LayerConfig {
  NormKind norm = NormKind::layer;
  NormPosition norm_position = NormPosition::before;
  double norm_eps = 1e-5;
  QkNorm qk_norm = QkNorm::none;
  bool norm_weight = true;  // norms, also of queries and keys, multiply by a weight
  ActivationKind activation = ActivationKind::gelu;
  bool bias = true;  // in all linear layers (but the head) and LayerNorms
  // Without `bias`: in these. attention_bias: qkv and projection; qkv_bias: qkv only; norm_bias:
  // LayerNorms.
  bool qkv_bias = false, attention_bias = false, mlp_bias = false, norm_bias = false;
  bool parallel_residual = false;  // the MLP reads what attention reads, not its sum
  // With position rope: whether this layer rotates, and how many elements of a head; 0: all.
  bool rope = true;
  int64_t rotary_dim = 0;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  // Sliding-window attention: a token sees `window` tokens at most, itself included; 0: all.
  int64_t window = 0;
  double attention_scale = 0;  // factor of scores; 0: 1 / sqrt(head_dim)
  double residual_scale = 1;   // factor of what attention and MLP add
  bool operator==(const LayerConfig&) const = default;

  bool has_qkv_bias() const { return bias || attention_bias || qkv_bias; }
  bool has_proj_bias() const { return bias || attention_bias; }
  bool has_mlp_bias() const { return bias || mlp_bias; }
  bool has_norm_bias() const { return norm == NormKind::layer && norm_weight && (bias || norm_bias); }
};

// Its fields as a LayerConfig describe the layers, and the norm before the head. Where layers
// differ, `others` has the other kinds, and `pattern` a letter for each layer: 'A' the fields here,
// 'B' others[0], and so on. The pattern repeats until the layers end; "": all layers are alike.
struct ModelConfig : LayerConfig {
  std::string name = "custom";
  std::string family;      // of its files; "": the first one that can hold it (model/family.h)
  int64_t vocab = 50257;   // without padding (padding is a pass)
  int64_t context = 1024;  // longest sequence
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t kv_heads = 12;  // < heads: grouped-query attention
  int64_t width = 768;
  int64_t head_dim = 64;
  int64_t ff = 3072;  // inner width of the MLP
  PositionKind position = PositionKind::learned;
  bool tied = true;  // output head shares the token embedding
  double dropout = 0;
  double embedding_scale = 1;     // factor of token embeddings
  bool embedding_norm = false;    // a norm before the first layer
  double logit_scale = 1;         // factor of logits
  double logit_cap = 0;           // cap tanh(x / cap) takes the place of a logit x; 0: no cap
  bool zero_projections = false;  // a new model's projections into the residual stream are zero
  std::vector<LayerConfig> others;
  std::string pattern;
  bool operator==(const ModelConfig&) const = default;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  const LayerConfig& layer(int64_t index) const;
  // Sets the layers, one by one. The fields here stay as they are if a layer has them.
  void set_layers(const std::vector<LayerConfig>& by_layer);
  // The same layers in the shortest form, after a change of fields.
  void simplify();
  // Changes every kind of layer.
  template <class F>
  void change_layers(F change);

  // The window of a layer in sequences of `tokens`; 0: it sees all of them.
  int64_t window_of(int64_t index, int64_t tokens) const {
    const int64_t window = layer(index).window;
    return window < tokens ? window : 0;
  }
  // The widest window of a layer that has one; 0: none has.
  int64_t widest_window() const;
  // All windows become this one. Layers without a window get it only where no layer has one.
  void set_window(int64_t window);
  // Capacity of a cache for sampling. With dynamic RoPE, a sequence beyond original_context would
  // rotate the cached keys of its first tokens anew.
  int64_t cached_context() const;
  // The most keys that a token sees in a sequence of `seq`, on average over the layers: `seq`, but
  // for windows.
  double keys_per_token(int64_t seq) const;
};
// The first layers without a window, as Qwen 2 and older files of Crest have it.
void see_all_in_first(ModelConfig& config, int64_t full_layers);
// How many of the first layers have no window, where all others have one and the same; else 0.
int64_t first_full_layers(const ModelConfig& config);

template <class F>
void ModelConfig::change_layers(F change) {
  change(static_cast<LayerConfig&>(*this));
  for (LayerConfig& other : others) change(other);
  simplify();
}

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

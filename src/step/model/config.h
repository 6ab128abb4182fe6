// A model's sizes and a description of each kind of layer. A published family is one combination of
// them (model/family.h).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace crest {

enum class NormKind { layer, rms };
enum class PositionKind { learned, rope };
// gelu: the tanh form. swiglu, geglu: silu or gelu of one projection, times the other projection.
// relu2: the square of ReLU.
enum class ActivationKind { gelu, swiglu, gelu_erf, relu, geglu, relu2 };
// Where a layer normalizes: the input of attention and MLP, their output, or both.
enum class NormPosition { before, after, both };
// RMSNorm of queries and keys before the rotation: per head, or over all heads as one row.
enum class QkNorm { none, head, row };

enum class RopeScalingType { llama3, linear, dynamic, yarn };

// Names of the enumerators, in order, for model files.
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
// Gated MLPs have two input projections, gate and up.
inline bool gated(ActivationKind a) { return a == ActivationKind::swiglu || a == ActivationKind::geglu; }
std::string name(RopeScalingType type);

// How rotary frequencies are rescaled for contexts longer than the training context. Types have the
// names of transformers. linear: divides all frequencies by `factor`. llama3, yarn: divide the slow
// ones, with a ramp between (yarn also scales the rotated vectors). dynamic: raises the base for
// sequences beyond original_context.
struct RopeScaling {
  double factor = 1;                                 // 1: plain RoPE (yarn still applies attention_factor)
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  int64_t original_context = 8192;                   // not for linear
  RopeScalingType type = RopeScalingType::llama3;
  double beta_fast = 32, beta_slow = 1;  // yarn: the ramp's ends, in rotations within original_context
  double attention_factor = 0;           // yarn; 0: 0.1 ln(factor) + 1
  bool truncate = true;                  // yarn: round the ramp's ends to whole pairs
  bool operator==(const RopeScaling&) const = default;
};

// How a layer computes. The model has the sizes.
struct LayerConfig {
  NormKind norm = NormKind::layer;
  NormPosition norm_position = NormPosition::before;
  double norm_eps = 1e-5;
  QkNorm qk_norm = QkNorm::none;
  bool norm_weight = true;  // norms (also of queries and keys) multiply by a weight
  ActivationKind activation = ActivationKind::gelu;
  bool bias = true;  // all linear layers except the head, and all LayerNorms
  // Used if `bias` is false. attention_bias: qkv and projection. qkv_bias: qkv only. norm_bias:
  // LayerNorms.
  bool qkv_bias = false, attention_bias = false, mlp_bias = false, norm_bias = false;
  bool parallel_residual = false;  // the MLP reads attention's input, not its sum
  // With position rope: whether this layer rotates, and how many elements of each head (0: all).
  bool rope = true;
  int64_t rotary_dim = 0;
  double rope_theta = 10000;
  RopeScaling rope_scaling;
  // Sliding-window attention: a token sees the last `window` tokens, itself included. 0: all.
  int64_t window = 0;
  double attention_scale = 0;  // factor of scores; 0: 1 / sqrt(head_dim)
  double residual_scale = 1;   // factor of the outputs of attention and MLP
  bool operator==(const LayerConfig&) const = default;

  bool has_qkv_bias() const { return bias || attention_bias || qkv_bias; }
  bool has_proj_bias() const { return bias || attention_bias; }
  bool has_mlp_bias() const { return bias || mlp_bias; }
  bool has_norm_bias() const { return norm == NormKind::layer && norm_weight && (bias || norm_bias); }
};

// Low-rank adapters (Hu et al. 2021, "LoRA"): next to a frozen matrix W [out, in], A [rank, in] and
// B [out, rank] are trained, and y = x W^T + factor (x A^T) B^T.
struct LoraConfig {
  int64_t rank = 0;                       // 0: no adapters, all weights are trained
  int64_t qkv_rank = 0;                   // of attn.qkv; 0: as `rank`
  double alpha = 0;                       // 0: 2 rank
  std::string targets = "attention,mlp";  // linear layers with adapters: lora_targets()
  bool rank_stabilized = false;           // factor alpha / sqrt(rank) instead of alpha / rank
  double dropout = 0;                     // of the adapters' inputs
  bool operator==(const LoraConfig&) const = default;

  double factor() const;
  // Whether a linear layer has an adapter: "attn.qkv", "lm_head".
  bool has(std::string_view layer) const;
  int64_t rank_of(std::string_view layer) const { return layer == "attn.qkv" && qkv_rank ? qkv_rank : rank; }
};
// The names in `targets`: attention, mlp, or single layers.
const std::vector<std::string>& lora_targets();

// The LayerConfig fields describe the layers and the norm before the head. If layers differ,
// `others` has the other kinds and `pattern` a letter for each layer: 'A' for these fields, 'B' for
// others[0], and so on. The pattern repeats to the last layer. "": all layers are alike.
struct ModelConfig : LayerConfig {
  std::string name = "custom";
  std::string family;      // family of its files; "": the first family that supports the model (model/family.h)
  int64_t vocab = 50257;   // without padding (a pass adds it)
  int64_t context = 1024;  // longest sequence
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t kv_heads = 12;  // < heads: grouped-query attention
  int64_t width = 768;
  int64_t head_dim = 64;
  int64_t ff = 3072;  // inner width of the MLP
  PositionKind position = PositionKind::learned;
  bool tied = true;  // the output head shares the token embedding
  double dropout = 0;
  double embedding_scale = 1;     // factor of token embeddings
  bool embedding_norm = false;    // a norm before the first layer
  double logit_scale = 1;         // factor of logits
  double logit_cap = 0;           // logits become cap tanh(x / cap); 0: no cap
  bool zero_projections = false;  // a new model starts with zero projections into the residual stream
  std::vector<LayerConfig> others;
  std::string pattern;
  LoraConfig lora;
  bool operator==(const ModelConfig&) const = default;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  const LayerConfig& layer(int64_t index) const;
  // Sets the layers one by one. Keeps these fields if some layer has them.
  void set_layers(const std::vector<LayerConfig>& by_layer);
  // Call after changing fields: writes the same layers in the shortest form.
  void simplify();
  // Applies a change to every kind of layer.
  template <class F>
  void change_layers(F change);

  // The same model without adapters: all parameters of its base.
  ModelConfig base() const;

  // The window of a layer for sequences of `tokens`; 0: full attention.
  int64_t window_of(int64_t index, int64_t tokens) const {
    const int64_t window = layer(index).window;
    return window < tokens ? window : 0;
  }
  // The widest window of any layer; 0: no layer has a window.
  int64_t widest_window() const;
  // Sets all windows. Gives full-attention layers a window only if no layer has one.
  void set_window(int64_t window);
  // Capacity of a cache for sampling. With dynamic RoPE it ends at original_context: a longer
  // sequence would change the rotation of keys already in the cache.
  int64_t cached_context() const;
  // Keys seen by the last token of a sequence of `seq`, averaged over the layers: `seq`, or less
  // with windows.
  double keys_per_token(int64_t seq) const;
};
// The first layers have full attention, as in Qwen 2 and older files of Crest.
void see_all_in_first(ModelConfig& config, int64_t full_layers);
// The number of leading layers without a window, if all others share one window; else 0.
int64_t first_full_layers(const ModelConfig& config);

template <class F>
void ModelConfig::change_layers(F change) {
  change(static_cast<LayerConfig&>(*this));
  for (LayerConfig& other : others) change(other);
  simplify();
}

// Throws a usage error that names the field (width not divisible by heads, size out of range).
void validate(const ModelConfig& config, const std::string& where);

const std::vector<std::string>& preset_names();
// Aliases of presets: {"gpt2", "gpt2-124M"}, ...
const std::map<std::string, std::string>& preset_aliases();
// Finds a preset by name or alias; null: unknown.
const ModelConfig* find_preset(const std::string& name);
// Texts of settings by name, as {"optimizer", {"muon"}}.
using SettingsOfPreset = std::map<std::string, std::vector<std::string>>;
// The settings of recipe and training that a preset brings along. A setting in `given` is left out,
// and the learning rate, too, if `given` has an optimizer. Empty for most presets and for other
// models.
SettingsOfPreset preset_settings(const std::string& name, const SettingsOfPreset& given);
// A preset's name, a TOML file, a Hugging Face config.json, or its folder.
ModelConfig load_model_config(const std::string& name_or_path);
// load_model_config reads this text back.
std::string to_toml(const ModelConfig& config);

}  // namespace crest

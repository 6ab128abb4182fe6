#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace crest {

template <>
const std::vector<std::string>& names_of<NormKind>() {
  static const std::vector<std::string> w = {"layer", "rms"};
  return w;
}
template <>
const std::vector<std::string>& names_of<PositionKind>() {
  static const std::vector<std::string> w = {"learned", "rope"};
  return w;
}
template <>
const std::vector<std::string>& names_of<ActivationKind>() {
  static const std::vector<std::string> w = {"gelu", "swiglu", "gelu_erf", "relu"};
  return w;
}
template <>
const std::vector<std::string>& names_of<RopeScalingType>() {
  static const std::vector<std::string> w = {"llama3", "linear", "dynamic", "yarn"};
  return w;
}

std::string name(ActivationKind activation) { return names_of<ActivationKind>()[size_t(activation)]; }
std::string name(RopeScalingType type) { return names_of<RopeScalingType>()[size_t(type)]; }

int64_t ModelConfig::cached_context() const {
  bool grows =
      position == PositionKind::rope && rope_scaling.factor != 1 && rope_scaling.type == RopeScalingType::dynamic;
  return grows ? std::min(context, rope_scaling.original_context) : context;
}

double ModelConfig::keys_per_token(int64_t seq) const {
  int64_t windowed = window_of(full_layers, seq) ? std::max<int64_t>(layers - full_layers, 0) : 0;
  return double(seq) - double(windowed * (seq - window)) / double(layers);
}

static void validate_rope(const ModelConfig& c, const std::string& where) {
  auto positive = [&](const char* key, double x, double low) {
    if (!(x >= low && x <= 1e15))
      fail_usage(fmt::format("{} = {} is out of range", key, x), where, fmt::format("It must be at least {}.", low));
  };
  const RopeScaling& s = c.rope_scaling;
  positive("rope_theta", c.rope_theta, 1);
  positive("rope_scaling.factor", s.factor, 1);
  positive("rope_scaling.low_freq_factor", s.low_freq_factor, 1e-6);
  positive("rope_scaling.high_freq_factor", s.high_freq_factor, 1e-6);
  positive("rope_scaling.original_context", double(s.original_context), 1);
  positive("rope_scaling.beta_fast", s.beta_fast, 1e-6);
  positive("rope_scaling.beta_slow", s.beta_slow, 1e-6);
  positive("rope_scaling.attention_factor", s.attention_factor, 0);
  if (!(s.beta_slow < s.beta_fast))
    fail_usage(fmt::format("rope_scaling.beta_slow = {} is not below beta_fast = {}", s.beta_slow, s.beta_fast), where,
               "YaRN uses 1 and 32.");
  if (s.type == RopeScalingType::yarn && !(c.rope_theta > 1))
    fail_usage(fmt::format("rope_theta = {} with rope_scaling.type = \"yarn\"", c.rope_theta), where,
               "YaRN needs a rope_theta above 1.");
  if (s.type == RopeScalingType::dynamic && s.factor != 1 && c.head_dim <= 2)
    fail_usage(fmt::format("head_dim = {} with rope_scaling.type = \"dynamic\"", c.head_dim), where,
               "Dynamic RoPE needs a head_dim above 2.");
  if (s.factor != 1 && !(s.low_freq_factor < s.high_freq_factor))
    fail_usage(fmt::format("rope_scaling.low_freq_factor = {} is not below high_freq_factor = {}", s.low_freq_factor,
                           s.high_freq_factor),
               where, "Llama 3 uses 1 and 4.");
}

void validate(const ModelConfig& c, const std::string& where) {
  auto range = [&](const char* field, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      fail_usage(fmt::format("{} = {} is out of range", field, value), where,
                 fmt::format("{} must be from {} to {}.", field, low, high));
  };
  range("vocab", c.vocab, 2, 16 << 20);
  range("context", c.context, 1, 16 << 20);
  range("layers", c.layers, 1, 1024);  // planning takes about 2 ms per layer
  range("heads", c.heads, 1, 4096);
  range("kv_heads", c.kv_heads, 1, c.heads);
  range("width", c.width, 1, 1 << 20);
  range("head_dim", c.head_dim, 1, 1024);
  range("ff", c.ff, 1, 8 << 20);
  range("window", c.window, 0, 16 << 20);
  range("full_layers", c.full_layers, 0, c.layers);
  if (c.heads % c.kv_heads)
    fail_usage(fmt::format("kv_heads = {} does not divide heads = {}", c.kv_heads, c.heads), where,
               "Every key/value head serves the same number of query heads.");
  if (c.position == PositionKind::rope && c.head_dim % 2)
    fail_usage(fmt::format("head_dim = {} is odd", c.head_dim), where, "RoPE rotates pairs: head_dim must be even.");
  if (!(c.dropout >= 0 && c.dropout < 1))
    fail_usage(fmt::format("dropout = {}", c.dropout), where, "dropout must be in [0, 1).");
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    fail_usage(fmt::format("norm_eps = {}", c.norm_eps), where, "norm_eps must be in (0, 1).");
  validate_rope(c, where);
}

}  // namespace crest

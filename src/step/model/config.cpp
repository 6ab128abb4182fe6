#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace crest {

int64_t ModelConfig::matmul_parameters() const {
  int64_t attention = width * qkv_width() + heads * head_dim * width;
  int64_t mlp = (activation == ActivationKind::swiglu ? 3 : 2) * width * ff;
  return layers * (attention + mlp) + vocab * width;
}

int64_t ModelConfig::parameters() const {
  int64_t norm_size = width * (norm == NormKind::layer && bias ? 2 : 1);
  int64_t biases = has_qkv_bias() ? qkv_width() : 0;
  if (has_proj_bias()) biases += width;
  if (has_mlp_bias()) biases += ff * (activation == ActivationKind::swiglu ? 2 : 1) + width;
  int64_t n = matmul_parameters() + layers * (2 * norm_size + biases) + norm_size;
  if (!tied) n += vocab * width;
  if (position == PositionKind::learned) n += context * width;
  return n;
}

int64_t ModelConfig::cached_context() const {
  bool grows =
      position == PositionKind::rope && rope_scaling.factor != 1 && rope_scaling.type == RopeScalingType::dynamic;
  return grows ? std::min(context, rope_scaling.original_context) : context;
}

double ModelConfig::keys_per_token(int64_t seq) const {
  int64_t windowed = window_of(full_layers, seq) ? std::max<int64_t>(layers - full_layers, 0) : 0;
  return double(seq) - double(windowed * (seq - window)) / double(layers);
}

double ModelConfig::flops_per_token(int64_t seq) const {
  return 6.0 * double(matmul_parameters()) + 12.0 * double(layers) * double(heads * head_dim) * keys_per_token(seq);
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
}

}  // namespace crest

#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

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
  static const std::vector<std::string> w = {"gelu", "swiglu", "gelu_erf", "relu", "geglu", "relu2"};
  return w;
}
template <>
const std::vector<std::string>& names_of<NormPosition>() {
  static const std::vector<std::string> w = {"before", "after", "both"};
  return w;
}
template <>
const std::vector<std::string>& names_of<QkNorm>() {
  static const std::vector<std::string> w = {"none", "head", "row"};
  return w;
}
template <>
const std::vector<std::string>& names_of<RopeScalingType>() {
  static const std::vector<std::string> w = {"llama3", "linear", "dynamic", "yarn"};
  return w;
}

std::string name(ActivationKind activation) { return names_of<ActivationKind>()[size_t(activation)]; }
std::string name(RopeScalingType type) { return names_of<RopeScalingType>()[size_t(type)]; }

const std::vector<std::string>& lora_targets() {
  static const std::vector<std::string> names = {"attention", "mlp",      "head",   "attn.qkv", "attn.proj",
                                                 "mlp.fc",    "mlp.gate", "mlp.up", "mlp.proj", "lm_head"};
  return names;
}

double LoraConfig::factor() const {
  const double scaled = alpha == 0 ? 2 * double(rank) : alpha;
  return scaled / (rank_stabilized ? std::sqrt(double(rank)) : double(rank));
}

bool LoraConfig::has(std::string_view layer) const {
  if (rank == 0) return false;
  for (const std::string& target : split(targets, ','))
    if (layer == target || (target == "attention" && layer.starts_with("attn.")) ||
        (target == "mlp" && layer.starts_with("mlp.")) || (target == "head" && layer == "lm_head"))
      return true;
  return false;
}

ModelConfig ModelConfig::base() const {
  ModelConfig plain = *this;
  plain.lora = {};
  return plain;
}

const LayerConfig& ModelConfig::layer(int64_t index) const {
  if (pattern.empty()) return *this;
  const size_t kind = size_t(pattern[size_t(index) % pattern.size()] - 'A');
  return kind == 0 ? *this : others.at(kind - 1);
}

void ModelConfig::set_layers(const std::vector<LayerConfig>& by_layer) {
  LayerConfig first = static_cast<const LayerConfig&>(*this);
  if (std::find(by_layer.begin(), by_layer.end(), first) == by_layer.end()) first = by_layer.at(0);
  std::vector<LayerConfig> kinds = {first};
  std::string letters;
  for (auto& l : by_layer) {
    const size_t kind = size_t(std::find(kinds.begin(), kinds.end(), l) - kinds.begin());
    if (kind == kinds.size()) kinds.push_back(l);
    letters += char('A' + kind);
  }
  size_t period = 1;
  auto repeats = [&] {
    for (size_t i = period; i < letters.size(); ++i)
      if (letters[i] != letters[i - period]) return false;
    return true;
  };
  while (period < letters.size() && !repeats()) ++period;
  static_cast<LayerConfig&>(*this) = first;
  others.assign(kinds.begin() + 1, kinds.end());
  pattern = others.empty() ? "" : letters.substr(0, period);
}

void ModelConfig::simplify() {
  if (pattern.empty()) {
    others.clear();
    return;
  }
  std::vector<LayerConfig> all;
  for (int64_t i = 0; i < layers; ++i) all.push_back(layer(i));
  set_layers(all);
}

int64_t ModelConfig::widest_window() const {
  int64_t widest = window;
  for (auto& other : others) widest = std::max(widest, other.window);
  return widest;
}

void ModelConfig::set_window(int64_t to) {
  const bool some = widest_window() > 0;
  change_layers([&](LayerConfig& l) {
    if (l.window || !some) l.window = to;
  });
}

void see_all_in_first(ModelConfig& c, int64_t full_layers) {
  LayerConfig full = static_cast<const LayerConfig&>(c);
  full.window = 0;
  std::vector<LayerConfig> all(size_t(c.layers), c);
  std::fill_n(all.begin(), std::min(full_layers, c.layers), full);
  c.set_layers(all);
}

int64_t first_full_layers(const ModelConfig& c) {
  int64_t n = 0;
  while (n < c.layers && c.layer(n).window == 0) ++n;
  ModelConfig same = c;
  if (n == c.layers) return 0;
  static_cast<LayerConfig&>(same) = c.layer(n);
  see_all_in_first(same, n);
  for (int64_t i = 0; i < c.layers; ++i)
    if (same.layer(i) != c.layer(i)) return 0;
  return n;
}

int64_t ModelConfig::cached_context() const {
  int64_t cached = context;
  for (int64_t i = 0; i < layers; ++i) {
    const RopeScaling& s = layer(i).rope_scaling;
    if (position == PositionKind::rope && layer(i).rope && s.factor != 1 && s.type == RopeScalingType::dynamic)
      cached = std::min(cached, s.original_context);
  }
  return cached;
}

double ModelConfig::keys_per_token(int64_t seq) const {
  int64_t hidden = 0;
  for (int64_t i = 0; i < layers; ++i)
    if (int64_t w = window_of(i, seq)) hidden += seq - w;
  return double(seq) - double(hidden) / double(layers);
}

static void validate_layer(const LayerConfig& c, int64_t head_dim, bool rotates, const std::string& where) {
  auto positive = [&](const char* key, double x, double low) {
    if (!(x >= low && x <= 1e15))
      fail_usage(fmt::format("{} = {} is out of range", key, x), where, fmt::format("It must be at least {}.", low));
  };
  if (!(c.norm_eps > 0 && c.norm_eps < 1))
    fail_usage(fmt::format("norm_eps = {}", c.norm_eps), where, "norm_eps must be in (0, 1).");
  if (c.window < 0 || c.window > 16 << 20)
    fail_usage(fmt::format("window = {} is out of range", c.window), where,
               fmt::format("window must be from 0 to {}.", 16 << 20));
  positive("attention_scale", c.attention_scale, 0);
  positive("residual_scale", c.residual_scale, 1e-6);
  const int64_t rotated = c.rotary_dim ? c.rotary_dim : head_dim;
  if (rotated < 0 || rotated > head_dim || (rotates && rotated % 2))
    fail_usage(c.rotary_dim ? fmt::format("rotary_dim = {} with head_dim = {}", c.rotary_dim, head_dim)
                            : fmt::format("head_dim = {} is odd", head_dim),
               where,
               c.rotary_dim ? "It must be even, and at most head_dim." : "RoPE rotates pairs: head_dim must be even.");
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
  if (s.type == RopeScalingType::dynamic && s.factor != 1 && rotated <= 2)
    fail_usage(fmt::format("head_dim = {} with rope_scaling.type = \"dynamic\"", head_dim), where,
               "Dynamic RoPE needs a head_dim above 2.");
  if (s.factor != 1 && !(s.low_freq_factor < s.high_freq_factor))
    fail_usage(fmt::format("rope_scaling.low_freq_factor = {} is not below high_freq_factor = {}", s.low_freq_factor,
                           s.high_freq_factor),
               where, "Llama 3 uses 1 and 4.");
}

static void validate_lora(const ModelConfig& c) {
  const LoraConfig& l = c.lora;
  if (l.rank == 0) {
    LoraConfig none = l;
    none.rank = 0;
    if (!(none == LoraConfig()))
      fail_usage("settings of adapters were given, but no rank", "--lora", "Add --lora RANK, for example --lora 16.");
    return;
  }
  if (l.rank < 0 || l.rank > 65536 || l.qkv_rank < 0 || l.qkv_rank > 65536)
    fail_usage(fmt::format("rank {} is out of range", l.rank), "--lora", "It must be from 1 to 65536.");
  if (!(l.alpha >= 0 && l.alpha <= 1e6))
    fail_usage(fmt::format("{} is out of range", l.alpha), "--lora-alpha", "It must be above 0, at most a million.");
  if (!(l.dropout >= 0 && l.dropout < 1))
    fail_usage(fmt::format("{} is out of range", l.dropout), "--lora-dropout", "It must be in [0, 1).");
  for (const std::string& target : split(l.targets, ',')) {
    const auto& known = lora_targets();
    if (std::find(known.begin(), known.end(), target) == known.end())
      fail_usage(fmt::format("unknown target '{}'", printable(target)), "--lora-targets",
                 fmt::format("{} Targets: {}.", did_you_mean(target, known), join(known, ", ")));
    if (c.tied && (target == "head" || target == "lm_head"))
      fail_usage("the head of this model is its token embedding, which has no adapter", "--lora-targets",
                 "Leave out the head, or take a model with a head of its own.");
  }
  auto layers = [&](const LayerConfig& layer) {
    std::vector<std::string> names = {"attn.qkv", "attn.proj", "mlp.proj", "lm_head"};
    for (const char* in : gated(layer.activation) ? std::vector{"mlp.gate", "mlp.up"} : std::vector{"mlp.fc"})
      names.push_back(in);
    return std::any_of(names.begin(), names.end(), [&](auto& name) { return l.has(name); });
  };
  if (!layers(c) && std::none_of(c.others.begin(), c.others.end(), layers))
    fail_usage(fmt::format("this model has no linear layer '{}'", printable(l.targets)), "--lora-targets",
               "Its MLP has mlp.gate, mlp.up and mlp.proj, or mlp.fc and mlp.proj.");
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
  if (c.heads % c.kv_heads)
    fail_usage(fmt::format("kv_heads = {} does not divide heads = {}", c.kv_heads, c.heads), where,
               "Every key/value head serves the same number of query heads.");
  if (!(c.dropout >= 0 && c.dropout < 1))
    fail_usage(fmt::format("dropout = {}", c.dropout), where, "dropout must be in [0, 1).");
  for (auto [key, factor] : {std::pair{"embedding_scale", c.embedding_scale}, {"logit_scale", c.logit_scale}})
    if (!(factor > 0 && factor <= 1e6))
      fail_usage(fmt::format("{} = {} is out of range", key, factor), where, "It must be above 0, at most a million.");
  if (!(c.logit_cap == 0 || (c.logit_cap >= 1e-3 && c.logit_cap <= 1e6)))
    fail_usage(fmt::format("logit_cap = {} is out of range", c.logit_cap), where,
               "It must be from 0.001 to a million, or 0 for no cap.");
  for (char letter : c.pattern)
    if (letter < 'A' || size_t(letter - 'A') > c.others.size())
      fail_usage("the pattern names a layer that is not described", where, "See docs/reference/models.md.");
  const bool rotates = c.position == PositionKind::rope;
  validate_layer(c, c.head_dim, rotates, where);
  validate_lora(c);
  for (auto& other : c.others) validate_layer(other, c.head_dim, rotates, where);
}

}  // namespace crest

#include <map>

#include "model/config.h"

namespace crest {

namespace {

ModelConfig gpt2(const char* name, int64_t layers, int64_t heads, int64_t width, int64_t context = 1024) {
  ModelConfig c;
  c.name = name, c.layers = layers, c.heads = c.kv_heads = heads, c.width = width, c.context = context;
  c.head_dim = width / heads, c.ff = 4 * width;
  return c;
}

// RMSNorm, RoPE, SwiGLU, no biases.
ModelConfig llama(const char* name, int64_t layers, int64_t heads, int64_t kv_heads, int64_t width, int64_t ff,
                  int64_t vocab, int64_t context, bool tied) {
  ModelConfig c = gpt2(name, layers, heads, width, context);
  c.kv_heads = kv_heads, c.ff = ff, c.vocab = vocab, c.tied = tied, c.bias = false;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = ActivationKind::swiglu;
  return c;
}

ModelConfig llama3(const char* name, int64_t layers, int64_t width, int64_t ff, bool tied, double factor) {
  ModelConfig c = llama(name, layers, 32, 8, width, ff, 128256, 131072, tied);
  c.rope_theta = 500000;
  c.rope_scaling = {factor, 1, 4, 8192};
  return c;
}

// nanochat's architecture: norms without weights, also of embeddings, queries and keys; squared
// ReLU; an untied head with a cap of logits.
ModelConfig modern(const char* name, int64_t layers, int64_t heads, int64_t width, int64_t context) {
  ModelConfig c = gpt2(name, layers, heads, width, context);
  c.bias = c.tied = c.norm_weight = false, c.norm = NormKind::rms, c.norm_eps = 1e-6;
  c.position = PositionKind::rope, c.activation = ActivationKind::relu2, c.qk_norm = QkNorm::head;
  c.embedding_norm = c.zero_projections = true, c.logit_cap = 15;
  return c;
}

// Sizes: GPT-2 (Radford et al. 2019), the course assignment behind cs336-*, Llama 3.2 1B and 3.1
// 8B.
const std::vector<ModelConfig>& presets() {
  static const std::vector<ModelConfig> all = {
      gpt2("gpt2-124M", 12, 12, 768),
      gpt2("gpt2-355M", 24, 16, 1024),
      gpt2("gpt2-774M", 36, 20, 1280),
      gpt2("gpt2-1558M", 48, 25, 1600),
      llama("cs336-small", 12, 12, 12, 768, 3072, 10000, 256, false),
      llama("cs336-medium", 24, 16, 16, 1024, 4096, 10000, 256, false),
      llama("cs336-large", 36, 20, 20, 1280, 5120, 10000, 256, false),
      llama("cs336-xl", 48, 25, 25, 1600, 6400, 10000, 256, false),
      llama("cs336-2.7B", 32, 32, 32, 2560, 10240, 10000, 256, false),
      llama("llama-nano", 4, 4, 2, 128, 384, 50257, 256, true),
      llama3("llama-1B", 16, 2048, 8192, true, 32),
      llama3("llama-8B", 32, 4096, 14336, false, 8),
      gpt2("nano", 4, 4, 128, 256),
      gpt2("micro", 6, 6, 384, 256),
      modern("modern-124M", 12, 6, 768, 1024),
      modern("modern-nano", 4, 4, 128, 256),
  };
  return all;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> n;
    for (auto& c : presets()) n.push_back(c.name);
    return n;
  }();
  return names;
}

const std::map<std::string, std::string>& preset_aliases() {
  static const std::map<std::string, std::string> names = {
      {"gpt2", "gpt2-124M"}, {"gpt2-medium", "gpt2-355M"}, {"gpt2-large", "gpt2-774M"}, {"gpt2-xl", "gpt2-1558M"}};
  return names;
}

const ModelConfig* find_preset(const std::string& name) {
  auto alias = preset_aliases().find(name);
  const std::string& wanted = alias == preset_aliases().end() ? name : alias->second;
  for (auto& c : presets())
    if (c.name == wanted) return &c;
  return nullptr;
}

SettingsOfPreset preset_settings(const std::string& name, const SettingsOfPreset& given) {
  // The rate of modded-nanogpt and nanochat is 0.02 for orthogonal updates. At a width of 768 their
  // elements are sqrt(1 / 768) on average. Updates of Crest's Muon have elements of 0.2.
  static const SettingsOfPreset modern = {{"optimizer", {"muon"}},   {"lr", {"0.0036"}},
                                          {"min-lr", {"0"}},         {"schedule", {"wsd"}},
                                          {"decay-share", {"0.65"}}, {"decay-shape", {"linear"}}};
  const ModelConfig* preset = find_preset(name);
  if (!preset || !preset->name.starts_with("modern-")) return {};
  const auto is_given = [&](const char* setting) { return given.count(setting) && !given.at(setting).empty(); };
  SettingsOfPreset result = modern;
  std::erase_if(result, [&](auto& row) { return is_given(row.first.c_str()); });
  if (is_given("optimizer")) result.erase("lr");  // another optimizer needs its own
  return result;
}

}  // namespace crest

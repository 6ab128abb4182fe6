// SmolLM 3: Llama with rotation in some layers, and optional windows.
#include "model/families/decoder.h"

namespace crest {

namespace {

constexpr DecoderKeys smollm3_keys = {.kv_heads = 4, .tied = true};

// 1: the layer rotates. Without a list, each fourth layer (or another interval) does not.
std::vector<bool> rotating_layers(const Keys& k, int64_t layers) {
  const nlohmann::json* list = k.find("no_rope_layers");
  const int64_t interval = k.size("no_rope_layer_interval", 4);
  std::vector<bool> rotate;
  if (!list) {
    for (int64_t i = 0; i < layers; ++i) rotate.push_back((i + 1) % interval != 0);
    return rotate;
  }
  if (!list->is_array() || int64_t(list->size()) < layers)
    fail_usage(fmt::format("'no_rope_layers' is no list of {} layers", layers), k.where(),
               "It has 1 for a layer with RoPE, and 0 for one without.");
  for (auto& one : *list) {
    if (one != 0 && one != 1)
      fail_usage(fmt::format("'no_rope_layers' has {}", printable(one.dump(), 60)), k.where(), "Supported: 0, 1.");
    if (int64_t(rotate.size()) < layers) rotate.push_back(one == 1);
  }
  return rotate;
}

ModelConfig read_smollm3(const Keys& k) {
  ModelConfig c = read_decoder(k, smollm3_keys);
  require_silu(k);
  read_biases(k, c);
  require_no_dropout(k, {"attention_dropout"});
  read_rope(k, {.theta = 2e6}, c);
  const std::vector<bool> rotate = rotating_layers(k, c.layers);
  const bool windows = k.flag("use_sliding_window", false) && k.has("sliding_window");
  const auto sliding = sliding_layers(k, c.layers);
  std::vector<LayerConfig> layers;
  for (size_t i = 0; i < rotate.size(); ++i) {
    LayerConfig layer = static_cast<const LayerConfig&>(c);
    layer.rope = rotate[i];
    if (windows && (sliding ? (*sliding)[i] : !rotate[i])) layer.window = k.size("sliding_window", 0);
    if (!windows && sliding && (*sliding)[i])
      fail_usage("'layer_types' has sliding_attention without a window", k.where(),
                 "Set use_sliding_window and sliding_window, or give these layers full_attention.");
    layers.push_back(layer);
  }
  c.set_layers(layers);
  return c;
}

bool write_smollm3(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, smollm3_keys);
  j["hidden_act"] = "silu";
  write_biases(c, j);
  write_rope(c, j);
  auto rotate = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < c.layers; ++i) rotate.push_back(c.layer(i).rope ? 1 : 0);
  j["no_rope_layers"] = rotate;
  j["layer_types"] = layer_types(c);
  j["use_sliding_window"] = c.widest_window() > 0;
  if (c.widest_window()) j["sliding_window"] = c.widest_window();
  j["pad_token_id"] = nullptr;  // the default may be outside the vocabulary
  return true;
}

}  // namespace

extern const Family smollm3_family = {"smollm3",   "SmolLM3ForCausalLM", "smollm3",
                                      llama_names, read_smollm3,         write_smollm3};

}  // namespace crest

#include "model/families/decoder.h"

#include <algorithm>

namespace crest {

ModelConfig read_decoder(const Keys& k, const DecoderKeys& d) {
  ModelConfig c;
  c.norm = NormKind::rms, c.position = PositionKind::rope, c.activation = ActivationKind::swiglu, c.bias = false;
  c.width = k.size("hidden_size");
  c.ff = k.size("intermediate_size");
  c.layers = k.size("num_hidden_layers");
  if (c.layers > 1024) validate(c, k.where());  // reject before anything loops over the layers
  c.heads = k.size("num_attention_heads");
  const bool as_many = !d.kv_heads || k.has_null("num_key_value_heads");
  c.kv_heads = k.size("num_key_value_heads", as_many ? c.heads : d.kv_heads);
  c.vocab = k.size("vocab_size");
  c.context = k.size("max_position_embeddings");
  const int64_t head_dim = k.has_null("head_dim") ? 0 : d.head_dim;
  if (!k.has("head_dim") && !head_dim && c.width % c.heads)
    fail_usage(fmt::format("num_attention_heads = {} does not divide hidden_size = {}", c.heads, c.width), k.where(),
               "Give head_dim if the heads do not divide the width equally.");
  c.head_dim = k.size("head_dim", head_dim ? head_dim : c.width / c.heads);
  c.norm_eps = k.number(d.eps_key, d.eps);
  c.tied = k.flag("tie_word_embeddings", d.tied);
  return c;
}

void write_decoder(const ModelConfig& c, nlohmann::ordered_json& j, const DecoderKeys& d) {
  j["vocab_size"] = c.vocab;
  j["max_position_embeddings"] = max_position_embeddings(c);
  j["hidden_size"] = c.width;
  j["num_hidden_layers"] = c.layers;
  j["num_attention_heads"] = c.heads;
  j["num_key_value_heads"] = c.kv_heads;
  j["head_dim"] = c.head_dim;
  j["intermediate_size"] = c.ff;
  j[d.eps_key] = c.norm_eps;
}

void read_logit_cap(const Keys& k, double otherwise, ModelConfig& c) {
  const char* key = "final_logit_softcapping";
  if (k.has_null(key)) return;
  c.logit_cap = k.number(key, otherwise);
  if (k.has(key) && !(c.logit_cap > 0))
    fail_usage(fmt::format("'{}' is {}", key, c.logit_cap), k.where(), "It must be positive, or null for no cap.");
}

void write_logit_cap(const ModelConfig& c, nlohmann::ordered_json& j) {
  j["final_logit_softcapping"] = c.logit_cap > 0 ? nlohmann::ordered_json(c.logit_cap) : nlohmann::ordered_json();
}

void require_silu(const Keys& k, const char* key) {
  std::string activation = k.text(key, "silu");
  if (activation != "silu" && activation != "swish")
    fail_usage(fmt::format("'{}' is \"{}\"", key, printable(activation)), k.where(), "Supported: silu.");
}

void require_no_dropout(const Keys& k, const std::vector<const char*>& names) {
  for (const char* name : names)
    if (k.number(name, 0) != 0)
      fail_usage(fmt::format("'{}' is not 0", name), k.where(),
                 "Crest's dropout applies to the embedding, the residual branches and attention. Set it to 0.");
}

void read_biases(const Keys& k, ModelConfig& c) {
  c.attention_bias = k.flag("attention_bias", false);
  c.mlp_bias = k.flag("mlp_bias", false);
}

void write_biases(const ModelConfig& c, nlohmann::ordered_json& j) {
  j["attention_bias"] = c.attention_bias;
  j["mlp_bias"] = c.mlp_bias;
}

std::optional<std::vector<bool>> sliding_layers(const Keys& k, int64_t layers) {
  const nlohmann::json* types = k.find("layer_types");
  if (!types) return {};
  if (!types->is_array() || int64_t(types->size()) != layers)
    fail_usage(fmt::format("'layer_types' is no list of {} layers", layers), k.where(),
               "It has as many entries as num_hidden_layers.");
  std::vector<bool> sliding;
  for (auto& type : *types) {
    if (type != "full_attention" && type != "sliding_attention")
      fail_usage(fmt::format("'layer_types' has {}", printable(type.dump(), 60)), k.where(),
                 "Supported: full_attention, sliding_attention.");
    sliding.push_back(type == "sliding_attention");
  }
  return sliding;
}

void set_sliding(ModelConfig& c, const std::vector<bool>& sliding) {
  std::vector<LayerConfig> layers;
  for (bool slides : sliding) {
    layers.push_back(c);
    if (!slides) layers.back().window = 0;
  }
  c.set_layers(layers);
}

nlohmann::ordered_json layer_types(const ModelConfig& c) {
  auto types = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < c.layers; ++i) types.push_back(c.layer(i).window ? "sliding_attention" : "full_attention");
  return types;
}

// Layers with a window: listed in layer_types, or from max_window_layers on.
void read_optional_windows(const Keys& k, ModelConfig& c) {
  auto sliding = sliding_layers(k, c.layers);
  const bool unused = !k.flag("use_sliding_window", false);
  if (unused || k.has_null("sliding_window")) {
    if (sliding && std::find(sliding->begin(), sliding->end(), true) != sliding->end())
      fail_usage(fmt::format("'layer_types' has sliding_attention though '{}' is {}",
                             unused ? "use_sliding_window" : "sliding_window", unused ? "false" : "null"),
                 k.where(), "Set sliding_window, or give these layers full_attention.");
    return;
  }
  const int64_t window = k.size("sliding_window", 4096), first = k.count("max_window_layers", 28);
  if (!sliding) {
    sliding.emplace(size_t(c.layers), true);
    std::fill_n(sliding->begin(), std::min(first, c.layers), false);
  }
  c.window = window;
  set_sliding(c, *sliding);
}

void write_optional_windows(const ModelConfig& c, nlohmann::ordered_json& j) {
  const int64_t window = c.widest_window(), full = first_full_layers(c);
  j["use_sliding_window"] = window > 0;
  if (!window) return;
  j["sliding_window"] = window;
  j["max_window_layers"] = full;
  if (!full && !c.others.empty()) j["layer_types"] = layer_types(c);
}

void read_layer_types(const Keys& k, const RopeKeys& sliding, const RopeKeys& full, int64_t interval, ModelConfig& c) {
  auto slides = sliding_layers(k, c.layers);
  if (!slides) {
    slides.emplace();
    for (int64_t i = 0; i < c.layers; ++i) slides->push_back((i + 1) % interval != 0);
  }
  LayerConfig other = static_cast<const LayerConfig&>(c);
  int64_t context = c.context;
  read_rope_of(k, "full_attention", full, c.context, c.head_dim, other);
  read_rope_of(k, "sliding_attention", sliding, context, c.head_dim, c);
  c.window = k.has_null("sliding_window") ? 0 : k.size("sliding_window", 4096);
  if (!c.window && std::find(slides->begin(), slides->end(), true) != slides->end())
    fail_usage("'layer_types' has sliding_attention though 'sliding_window' is null", k.where(),
               "Set sliding_window, or give these layers full_attention.");
  std::vector<LayerConfig> layers;
  for (bool s : *slides) layers.push_back(s ? c : other);
  c.set_layers(layers);
}

void write_layer_types(const ModelConfig& c, nlohmann::ordered_json& j) {
  j["layer_types"] = layer_types(c);
  j["sliding_window"] = c.widest_window() ? nlohmann::ordered_json(c.widest_window()) : nlohmann::ordered_json();
  for (int64_t i = 0; i < c.layers; ++i)
    j["rope_parameters"][c.layer(i).window ? "sliding_attention" : "full_attention"] =
        rope_object(c.layer(i), c.head_dim);
}

const TensorNames llama_names = {"model.",
                                 "layers.",
                                 {{"wte", "embed_tokens"}, {"ln_f", "norm"}},
                                 {{"ln_1", "input_layernorm"},
                                  {"ln_2", "post_attention_layernorm"},
                                  {"attn.qkv", "self_attn.*_proj", TensorForm::apart},
                                  {"attn.proj", "self_attn.o_proj"},
                                  {"mlp.gate", "mlp.gate_proj"},
                                  {"mlp.up", "mlp.up_proj"},
                                  {"mlp.proj", "mlp.down_proj"}}};

}  // namespace crest

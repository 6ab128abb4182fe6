// Mistral: Llama without biases, with an optional window in every layer.
#include <algorithm>

#include "model/families/decoder.h"

namespace crest {

namespace {

ModelConfig read_mistral(const Keys& k) {
  ModelConfig c = read_decoder(k, {.kv_heads = 8});
  require_silu(k);
  require_no_dropout(k, {"attention_dropout"});
  read_rope(k, {}, c);
  const auto sliding = sliding_layers(k, c.layers);
  auto some = [&](bool slides) {
    return sliding && std::find(sliding->begin(), sliding->end(), slides) != sliding->end();
  };
  if (k.has_null("sliding_window")) {
    if (some(true))
      fail_usage("'layer_types' has sliding_attention though 'sliding_window' is null", k.where(),
                 "Set sliding_window, or give these layers full_attention.");
    return c;
  }
  c.window = k.size("sliding_window", 4096);
  if (some(false))
    fail_usage(fmt::format("'layer_types' has full_attention though 'sliding_window' is {}", c.window), k.where(),
               "MistralForCausalLM has the window in all layers, AutoModelForCausalLM only where layer_types says so. "
               "Set sliding_window to null for none.");
  return c;
}

bool write_mistral(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  write_rope(c, j);
  j["sliding_window"] = c.window ? nlohmann::ordered_json(c.window) : nlohmann::ordered_json();
  return true;
}

}  // namespace

extern const Family mistral_family = {"mistral",   "MistralForCausalLM", "llama",
                                      llama_names, read_mistral,         write_mistral};

}  // namespace crest

// Granite 3: Llama with factors for embedding, scores, residual branches and logits.
#include "model/families/decoder.h"

namespace crest {

namespace {

ModelConfig read_granite(const Keys& k) {
  ModelConfig c = read_decoder(k, {});
  require_silu(k);
  read_biases(k, c);
  require_no_dropout(k, {"attention_dropout"});
  read_rope(k, {}, c);
  c.embedding_scale = k.number("embedding_multiplier", 1);
  c.residual_scale = k.number("residual_multiplier", 1);
  c.attention_scale = k.number("attention_multiplier", 1);
  const double divisor = k.number("logits_scaling", 1);
  for (auto [key, x] : {std::pair{"logits_scaling", divisor}, {"attention_multiplier", c.attention_scale}})
    if (!(x > 0)) fail_usage(fmt::format("'{}' is {}", key, x), k.where(), "It must be positive.");
  c.logit_scale = 1 / divisor;
  return c;
}

bool write_granite(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  write_biases(c, j);
  write_rope(c, j);
  j["embedding_multiplier"] = c.embedding_scale;
  j["residual_multiplier"] = c.residual_scale;
  j["attention_multiplier"] = c.attention_scale;
  j["logits_scaling"] = 1 / c.logit_scale;
  return c.width % c.heads == 0;
}

}  // namespace

extern const Family granite_family = {"granite",   "GraniteForCausalLM", "granite",
                                      llama_names, read_granite,         write_granite};

}  // namespace crest

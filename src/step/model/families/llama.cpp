// Llama: RMSNorm, RoPE, SwiGLU.
#include "model/families/decoder.h"

namespace crest {

namespace {

ModelConfig read_llama(const Keys& k) {
  ModelConfig c = read_decoder(k, {});
  require_silu(k);
  read_biases(k, c);
  require_no_dropout(k, {"attention_dropout"});
  read_rope(k, {}, c);
  if (auto sliding = sliding_layers(k, c.layers)) {
    for (bool slides : *sliding)
      if (slides) fail_usage("'layer_types' has \"sliding_attention\"", k.where(), "Supported: full_attention.");
  }
  return c;
}

bool write_llama(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  write_biases(c, j);
  write_rope(c, j);
  return c.width % c.heads == 0;
}

}  // namespace

extern const Family llama_family = {"llama", "LlamaForCausalLM", "llama", llama_names, read_llama, write_llama};

}  // namespace crest

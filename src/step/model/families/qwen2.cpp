// Qwen 2 and 2.5: Llama with query, key and value biases, and windows in some layers.
#include "model/families/decoder.h"

namespace crest {

namespace {

ModelConfig read_qwen2(const Keys& k) {
  ModelConfig c = read_decoder(k, {.kv_heads = 32});
  require_silu(k);
  require_no_dropout(k, {"attention_dropout"});
  c.qkv_bias = true;
  read_rope(k, {}, c);
  read_optional_windows(k, c);
  return c;
}

bool write_qwen2(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  write_rope(c, j);
  write_optional_windows(c, j);
  return true;
}

}  // namespace

extern const Family qwen2_family = {"qwen2", "Qwen2ForCausalLM", "qwen2", llama_names, read_qwen2, write_qwen2};

}  // namespace crest

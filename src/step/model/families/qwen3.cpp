// Qwen 3: Llama with norms of each query and key head, and windows in some layers.
#include "model/families/decoder.h"

namespace crest {

namespace {

ModelConfig read_qwen3(const Keys& k) {
  ModelConfig c = read_decoder(k, {.kv_heads = 32, .head_dim = 128});
  require_silu(k);
  require_no_dropout(k, {"attention_dropout"});
  c.attention_bias = k.flag("attention_bias", false);
  c.qk_norm = QkNorm::head;
  read_rope(k, {}, c);
  read_optional_windows(k, c);
  return c;
}

bool write_qwen3(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  j["attention_bias"] = c.attention_bias;
  write_rope(c, j);
  write_optional_windows(c, j);
  return true;
}

const TensorNames qwen3_names = {"model.",
                                 "layers.",
                                 {{"wte", "embed_tokens"}, {"ln_f", "norm"}},
                                 {{"ln_1", "input_layernorm"},
                                  {"ln_2", "post_attention_layernorm"},
                                  {"attn.qkv", "self_attn.*_proj", TensorForm::apart},
                                  {"attn.q_norm", "self_attn.q_norm"},
                                  {"attn.k_norm", "self_attn.k_norm"},
                                  {"attn.proj", "self_attn.o_proj"},
                                  {"mlp.gate", "mlp.gate_proj"},
                                  {"mlp.up", "mlp.up_proj"},
                                  {"mlp.proj", "mlp.down_proj"}}};

}  // namespace

extern const Family qwen3_family = {"qwen3", "Qwen3ForCausalLM", "qwen3", qwen3_names, read_qwen3, write_qwen3};

}  // namespace crest

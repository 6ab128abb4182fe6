// OLMo 2: norms after attention and MLP, and one norm over all queries and one over all keys of a
// token.
#include "model/families/olmo.h"

namespace crest {

ModelConfig read_olmo(const Keys& k) {
  ModelConfig c = read_decoder(k, {.eps = 1e-5});
  require_silu(k);
  require_no_dropout(k, {"attention_dropout"});
  c.attention_bias = k.flag("attention_bias", false);
  c.norm_position = NormPosition::after, c.qk_norm = QkNorm::row;
  return c;
}

bool write_olmo(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  j["attention_bias"] = c.attention_bias;
  j["pad_token_id"] = nullptr;  // the default is a token of OLMo's vocabulary
  return c.width % c.heads == 0;
}

const TensorNames olmo_names = {"model.",
                                "layers.",
                                {{"wte", "embed_tokens"}, {"ln_f", "norm"}},
                                {{"ln_1_post", "post_attention_layernorm"},
                                 {"ln_2_post", "post_feedforward_layernorm"},
                                 {"attn.qkv", "self_attn.*_proj", TensorForm::apart},
                                 {"attn.q_norm", "self_attn.q_norm"},
                                 {"attn.k_norm", "self_attn.k_norm"},
                                 {"attn.proj", "self_attn.o_proj"},
                                 {"mlp.gate", "mlp.gate_proj"},
                                 {"mlp.up", "mlp.up_proj"},
                                 {"mlp.proj", "mlp.down_proj"}}};

namespace {

ModelConfig read_olmo2(const Keys& k) {
  ModelConfig c = read_olmo(k);
  read_rope(k, {}, c);
  return c;
}

bool write_olmo2(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_rope(c, j);
  return write_olmo(c, j);
}

}  // namespace

extern const Family olmo2_family = {"olmo2", "Olmo2ForCausalLM", "olmo2", olmo_names, read_olmo2, write_olmo2};

}  // namespace crest

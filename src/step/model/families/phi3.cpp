// Phi-3 and Phi-4: Llama with fused matrices, and an optional window in every layer.
#include <cmath>

#include "model/families/decoder.h"

namespace crest {

namespace {

ModelConfig read_phi3(const Keys& k) {
  ModelConfig c = read_decoder(k, {.eps = 1e-5});
  require_silu(k);
  require_no_dropout(k, {"attention_dropout", "resid_pdrop", "embd_pdrop"});
  read_rope(k, {}, c);
  if (c.rope_scaling != RopeScaling())
    fail_usage(fmt::format("the rope_type is {}", name(c.rope_scaling.type)), k.where(),
               "Models of this type have rope_type default.");
  if (k.has("sliding_window")) c.window = k.size("sliding_window");
  return c;
}

bool write_phi3(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {});
  j["hidden_act"] = "silu";
  write_rope(c, j);
  j["original_max_position_embeddings"] = c.context;
  j["sliding_window"] = c.window ? nlohmann::ordered_json(c.window) : nlohmann::ordered_json();
  j["pad_token_id"] = nullptr;  // the default is a token that the vocabulary may lack
  return c.width % c.heads == 0;
}

const TensorNames phi3_names = {"model.",
                                "layers.",
                                {{"wte", "embed_tokens"}, {"ln_f", "norm"}},
                                {{"ln_1", "input_layernorm"},
                                 {"ln_2", "post_attention_layernorm"},
                                 {"attn.qkv", "self_attn.qkv_proj"},
                                 {"attn.proj", "self_attn.o_proj"},
                                 {"mlp.gate+mlp.up", "mlp.gate_up_proj", TensorForm::joined},
                                 {"mlp.proj", "mlp.down_proj"}}};

}  // namespace

extern const Family phi3_family = {"phi3", "Phi3ForCausalLM", phi3_names, read_phi3, write_phi3};

}  // namespace crest

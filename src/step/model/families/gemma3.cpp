// Gemma 3 for text: norms before and after attention and MLP, and of each query and key head;
// GEGLU; scaled embeddings; windows in five of six layers; one rotation for each layer type.
#include <cmath>

#include "model/families/decoder.h"

namespace crest {

namespace {

constexpr DecoderKeys gemma3_keys = {.kv_heads = 4, .head_dim = 256, .tied = true};

ModelConfig read_gemma3(const Keys& k) {
  ModelConfig c = read_decoder(k, gemma3_keys);
  require_no_dropout(k, {"attention_dropout"});
  c.attention_bias = k.flag("attention_bias", false);
  const std::string activation = k.text("hidden_activation", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh" && activation != "gelu_new")
    fail_usage(fmt::format("'hidden_activation' is \"{}\"", printable(activation)), k.where(),
               "Supported: gelu_pytorch_tanh.");
  read_logit_cap(k, 0, c);
  c.activation = ActivationKind::geglu;
  c.norm_position = NormPosition::both, c.qk_norm = QkNorm::head;
  c.embedding_scale = std::sqrt(double(c.width));
  const double scalar = k.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0))
    fail_usage(fmt::format("'query_pre_attn_scalar' is {}", scalar), k.where(), "It must be positive.");
  if (scalar != double(c.head_dim)) c.attention_scale = 1 / std::sqrt(scalar);
  const int64_t interval = k.size("sliding_window_pattern", 6);
  read_layer_types(k, {.theta = 10000, .theta_key = "rope_local_base_freq"}, {.theta = 1e6}, interval, c);
  return c;
}

bool write_gemma3(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, gemma3_keys);
  j["hidden_activation"] = "gelu_pytorch_tanh";
  j["attention_bias"] = c.attention_bias;
  write_logit_cap(c, j);
  const double scalar = c.attention_scale == 0 ? double(c.head_dim) : 1 / (c.attention_scale * c.attention_scale);
  const auto whole = int64_t(std::round(scalar));  // transformers requires a whole number
  j["query_pre_attn_scalar"] = whole;
  write_layer_types(c, j);
  return c.width % c.heads == 0 && std::abs(scalar - double(whole)) < 1e-9 * scalar;
}

const TensorNames gemma3_names = {"model.",
                                  "layers.",
                                  {{"wte", "embed_tokens"}, {"ln_f", "norm", TensorForm::less_one}},
                                  {{"ln_1", "input_layernorm", TensorForm::less_one},
                                   {"ln_1_post", "post_attention_layernorm", TensorForm::less_one},
                                   {"ln_2", "pre_feedforward_layernorm", TensorForm::less_one},
                                   {"ln_2_post", "post_feedforward_layernorm", TensorForm::less_one},
                                   {"attn.qkv", "self_attn.*_proj", TensorForm::apart},
                                   {"attn.q_norm", "self_attn.q_norm", TensorForm::less_one},
                                   {"attn.k_norm", "self_attn.k_norm", TensorForm::less_one},
                                   {"attn.proj", "self_attn.o_proj"},
                                   {"mlp.gate", "mlp.gate_proj"},
                                   {"mlp.up", "mlp.up_proj"},
                                   {"mlp.proj", "mlp.down_proj"}}};

}  // namespace

extern const Family gemma3_family = {"gemma3_text", "Gemma3ForCausalLM", "gemma3",
                                     gemma3_names,  read_gemma3,         write_gemma3};

}  // namespace crest

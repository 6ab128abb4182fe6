// StarCoder 2: LayerNorm, RoPE, GELU, biases, an optional window in every layer.
#include "model/families/decoder.h"

namespace crest {

namespace {

constexpr DecoderKeys starcoder2_keys = {.kv_heads = 2, .eps_key = "norm_epsilon", .eps = 1e-5, .tied = true};

ModelConfig read_starcoder2(const Keys& k) {
  ModelConfig c = read_decoder(k, starcoder2_keys);
  c.norm = NormKind::layer, c.norm_bias = true;
  c.bias = k.flag("use_bias", true);
  if (c.bias) c.norm_bias = false;  // `bias` includes the norms
  const std::string activation = k.text("hidden_act", "gelu_pytorch_tanh");
  if (activation == "gelu")
    c.activation = ActivationKind::gelu_erf;
  else if (activation == "gelu_pytorch_tanh" || activation == "gelu_new")
    c.activation = ActivationKind::gelu;
  else
    fail_usage(fmt::format("'hidden_act' is \"{}\"", printable(activation)), k.where(),
               "Supported: gelu_pytorch_tanh, gelu_new, gelu.");
  c.dropout = k.number("residual_dropout", 0);
  for (const char* other : {"embedding_dropout", "attention_dropout"})
    if (k.number(other, 0) != c.dropout)
      fail_usage(fmt::format("'{}' = {} differs from 'residual_dropout' = {}", other, k.number(other, 0), c.dropout),
                 k.where(), "Crest has one dropout probability: make the three equal.");
  read_rope(k, {}, c);
  if (k.has("sliding_window")) c.window = k.size("sliding_window");
  return c;
}

bool write_starcoder2(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, starcoder2_keys);
  j["hidden_act"] = c.activation == ActivationKind::gelu_erf ? "gelu" : "gelu_pytorch_tanh";
  j["use_bias"] = c.bias;
  for (const char* dropout : {"residual_dropout", "embedding_dropout", "attention_dropout"}) j[dropout] = c.dropout;
  write_rope(c, j);
  j["sliding_window"] = c.window ? nlohmann::ordered_json(c.window) : nlohmann::ordered_json();
  return c.width % c.heads == 0;
}

const TensorNames starcoder2_names = {"model.",
                                      "layers.",
                                      {{"wte", "embed_tokens"}, {"ln_f", "norm"}},
                                      {{"ln_1", "input_layernorm"},
                                       {"ln_2", "post_attention_layernorm"},
                                       {"attn.qkv", "self_attn.*_proj", TensorForm::apart},
                                       {"attn.proj", "self_attn.o_proj"},
                                       {"mlp.fc", "mlp.c_fc"},
                                       {"mlp.proj", "mlp.c_proj"}}};

}  // namespace

extern const Family starcoder2_family = {"starcoder2",     "Starcoder2ForCausalLM", "starcoder2",
                                         starcoder2_names, read_starcoder2,         write_starcoder2};

}  // namespace crest

// GPT-NeoX and Pythia: LayerNorm, GELU, biases, partial rotation, and an MLP in parallel with
// attention.
#include "model/families/decoder.h"

namespace crest {

namespace {

constexpr RopeKeys neox_rope = {.theta_key = "rotary_emb_base", .part_key = "rotary_pct", .part = 0.25};

ModelConfig read_gpt_neox(const Keys& k) {
  ModelConfig c = read_decoder(k, {.eps_key = "layer_norm_eps", .eps = 1e-5});
  c.norm = NormKind::layer, c.bias = true, c.kv_heads = c.heads, c.head_dim = c.width / c.heads;
  const std::string activation = k.text("hidden_act", "gelu");
  if (activation == "gelu")
    c.activation = ActivationKind::gelu_erf;
  else if (activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast")
    c.activation = ActivationKind::gelu;
  else if (activation == "relu")
    c.activation = ActivationKind::relu;
  else
    fail_usage(fmt::format("'hidden_act' is \"{}\"", printable(activation)), k.where(),
               "Supported: gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu.");
  k.must_be("attention_bias", true, "Crest supports models of this type with biases in all linear layers.");
  c.dropout = k.number("hidden_dropout", 0);
  if (k.number("attention_dropout", 0) != c.dropout)
    fail_usage("'attention_dropout' differs from 'hidden_dropout'", k.where(),
               "Crest has one dropout probability: make the two equal.");
  c.parallel_residual = k.flag("use_parallel_residual", true);
  read_rope(k, neox_rope, c);
  return c;
}

bool write_gpt_neox(const ModelConfig& c, nlohmann::ordered_json& j) {
  write_decoder(c, j, {.eps_key = "layer_norm_eps"});
  for (const char* other : {"num_key_value_heads", "head_dim"}) j.erase(other);
  const bool exact = c.activation == ActivationKind::gelu_erf;
  j["hidden_act"] = exact ? "gelu" : c.activation == ActivationKind::relu ? "relu" : "gelu_new";
  j["use_parallel_residual"] = c.parallel_residual;
  for (const char* dropout : {"hidden_dropout", "attention_dropout"}) j[dropout] = c.dropout;
  write_rope(c, j);
  j.erase("rope_theta");
  j[neox_rope.theta_key] = c.rope_theta;
  j[neox_rope.part_key] = rotated_part(c.rotary_dim, c.head_dim);
  return c.width % c.heads == 0;
}

const TensorNames neox_names = {"gpt_neox.",
                                "layers.",
                                {{"wte", "embed_in"}, {"ln_f", "final_layer_norm"}},
                                {{"ln_1", "input_layernorm"},
                                 {"ln_2", "post_attention_layernorm"},
                                 {"attn.qkv", "attention.query_key_value", TensorForm::by_head},
                                 {"attn.proj", "attention.dense"},
                                 {"mlp.fc", "mlp.dense_h_to_4h"},
                                 {"mlp.proj", "mlp.dense_4h_to_h"}},
                                "embed_out"};

}  // namespace

extern const Family gpt_neox_family = {"gpt_neox", "GPTNeoXForCausalLM", "gptneox",
                                       neox_names, read_gpt_neox,        write_gpt_neox};

}  // namespace crest

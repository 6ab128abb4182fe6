// GPT-2: LayerNorm, learned positions, GELU, biases.
#include <algorithm>
#include <iterator>

#include "model/families/decoder.h"

namespace crest {

namespace {

// Names of activation functions in transformers. Files get the first name of a kind.
constexpr struct {
  const char* name;
  ActivationKind kind;
} gpt2_activations[] = {{"gelu_new", ActivationKind::gelu},        {"gelu_pytorch_tanh", ActivationKind::gelu},
                        {"gelu_fast", ActivationKind::gelu},       {"gelu", ActivationKind::gelu_erf},
                        {"gelu_python", ActivationKind::gelu_erf}, {"relu", ActivationKind::relu}};

// Sizes have second names. transformers lets the second name win.
ModelConfig read_gpt2(const Keys& k) {
  ModelConfig c;
  c.width = k.size(k.either("hidden_size", "n_embd"));
  c.layers = k.size(k.either("num_hidden_layers", "n_layer"));
  c.heads = c.kv_heads = k.size(k.either("num_attention_heads", "n_head"));
  c.vocab = k.size("vocab_size");
  const char* context = k.either("max_position_embeddings", "n_positions");
  if (!k.find(context) && k.find("n_ctx"))
    fail_usage("'n_positions' is missing", k.where(), "transformers ignores 'n_ctx': give its value as n_positions.");
  c.context = k.size(context);
  c.ff = k.size("n_inner", 4 * c.width);
  if (c.width % c.heads)
    fail_usage(fmt::format("n_head = {} does not divide n_embd = {}", c.heads, c.width), k.where(),
               "In GPT-2 the heads divide the width equally.");
  c.head_dim = c.width / c.heads;
  std::string activation = k.text("activation_function", "gelu_new");
  auto known = std::find_if(std::begin(gpt2_activations), std::end(gpt2_activations),
                            [&](auto& a) { return activation == a.name; });
  if (known == std::end(gpt2_activations))
    fail_usage(fmt::format("'activation_function' is \"{}\"", printable(activation)), k.where(),
               "Supported: gelu_new, gelu_pytorch_tanh and gelu_fast (tanh form), gelu and gelu_python (exact), relu.");
  c.activation = known->kind;
  c.norm_eps = k.number("layer_norm_epsilon", 1e-5);
  c.tied = k.flag("tie_word_embeddings", true);
  c.dropout = k.number("resid_pdrop", 0.1);
  for (const char* other : {"embd_pdrop", "attn_pdrop"})
    if (k.number(other, 0.1) != c.dropout)
      fail_usage(fmt::format("'{}' = {} differs from 'resid_pdrop' = {}", other, k.number(other, 0.1), c.dropout),
                 k.where(), "Crest has one dropout probability: make resid_pdrop, embd_pdrop and attn_pdrop equal.");
  k.must_be("scale_attn_weights", true, "Crest scales attention scores by 1 / sqrt(head_dim).");
  k.must_be("scale_attn_by_inverse_layer_idx", false, "Crest does not scale attention by the layer index.");
  k.must_be("add_cross_attention", false, "Crest trains decoders without cross-attention.");
  return c;
}

bool write_gpt2(const ModelConfig& c, nlohmann::ordered_json& j) {
  auto activation = std::find_if(std::begin(gpt2_activations), std::end(gpt2_activations),
                                 [&](auto& a) { return c.activation == a.kind; });
  if (activation == std::end(gpt2_activations)) return false;
  j["vocab_size"] = c.vocab;
  j["n_positions"] = c.context;
  j["n_embd"] = c.width;
  j["n_layer"] = c.layers;
  j["n_head"] = c.heads;
  j["n_inner"] = c.ff;
  j["activation_function"] = activation->name;
  j["layer_norm_epsilon"] = c.norm_eps;
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) j[dropout] = c.dropout;
  return true;
}

const TensorNames gpt2_names = {"transformer.",
                                "h.",
                                {{"wte", "wte"}, {"wpe", "wpe"}, {"ln_f", "ln_f"}},
                                {{"ln_1", "ln_1"},
                                 {"ln_2", "ln_2"},
                                 {"attn.qkv", "attn.c_attn", TensorForm::transposed},
                                 {"attn.proj", "attn.c_proj", TensorForm::transposed},
                                 {"mlp.fc", "mlp.c_fc", TensorForm::transposed},
                                 {"mlp.proj", "mlp.c_proj", TensorForm::transposed}}};

}  // namespace

extern const Family gpt2_family = {"gpt2", "GPT2LMHeadModel", "gpt2", gpt2_names, read_gpt2, write_gpt2};

}  // namespace crest
